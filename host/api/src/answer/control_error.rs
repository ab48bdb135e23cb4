//! The refusals of the operations of [`gristmill_control`], with their codes.

use std::time::Duration;

use gristmill_control::ControlError;
use gristmill_core::backup::BackupError;
use gristmill_core::deploy::image::RemoteImage;
use gristmill_core::deploy::volume_files::VolumeFileError;
use gristmill_core::limits::{UPLOADS_WAITING_MAX, VOLUME_TRANSFERS_MAX};
use gristmill_core::registries::FetchError;
use gristmill_core::runtime::{AddComponentError, StageError};
use tracing::error;

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::refusal::Refusal;

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let code = match error {
            ControlError::Invalid(_) => ErrorCode::BadRequest,
            ControlError::NotFound { .. } | ControlError::ComponentDeleted => ErrorCode::NotFound,
            ControlError::Conflict(_) => ErrorCode::Conflict,
            ControlError::MissingScope(_) | ControlError::KeyEnded => ErrorCode::Unauthorized,
            ControlError::Store(error) => return error.into(),
            ControlError::Submission(error) => return error.into(),
            ControlError::Stage(error) => return error.into(),
            ControlError::Component(error) => return not_accepted(error),
            ControlError::Fetch { image, error } => {
                return not_fetched(&image, error);
            }
            ControlError::Backup(error) => return error.into(),
            ControlError::VolumeFile(error) => return error.into(),
            ControlError::FilesStay => ErrorCode::Internal,
            ControlError::Stopping => ErrorCode::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BackupError> for ApiError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Busy | BackupError::Rotating => {
                Self::new(ErrorCode::Unavailable, error.to_string())
            }
            BackupError::Elsewhere(_) => Self::new(ErrorCode::NotImplemented, error.to_string()),
            BackupError::Closed => {
                Self::new(ErrorCode::Unavailable, "the host is shutting down; try again shortly")
            }
            BackupError::Io(error) => {
                error!("a backup cannot be made: {error}");
                Self::new(ErrorCode::Internal, "the host's files cannot be read; see its log")
            }
        }
    }
}

impl From<StageError> for ApiError {
    fn from(error: StageError) -> Self {
        match error {
            StageError::Full => Self::new(ErrorCode::Unavailable, error.to_string()),
            StageError::NoSpace(_) => Self::new(ErrorCode::DiskFull, error.to_string()),
            StageError::OwnerDiskFull { .. } => {
                Self::new(ErrorCode::QuotaExceeded, error.to_string())
            }
            StageError::Io(_) => {
                error!("{error}");
                Self::new(ErrorCode::Internal, "the upload could not be stored; see the host's log")
            }
        }
    }
}

impl From<VolumeFileError> for ApiError {
    fn from(error: VolumeFileError) -> Self {
        let code = match &error {
            VolumeFileError::NotFound(_) | VolumeFileError::VolumeDeleted(_) => ErrorCode::NotFound,
            VolumeFileError::IsDirectory(_)
            | VolumeFileError::NotDirectory(_)
            | VolumeFileError::NotEmpty(_)
            | VolumeFileError::Special(_) => ErrorCode::Conflict,
            VolumeFileError::VolumeFull { .. } | VolumeFileError::OwnerDiskFull { .. } => {
                ErrorCode::QuotaExceeded
            }
            VolumeFileError::NoSpace(_) => ErrorCode::DiskFull,
            VolumeFileError::Busy => {
                let max = u32::try_from(VOLUME_TRANSFERS_MAX).unwrap_or(u32::MAX);
                let refusal = Refusal::at_one_time("files", max);
                return Self::new(ErrorCode::ConcurrencyLimited, error.to_string())
                    .with_refusal(refusal);
            }
            VolumeFileError::Io(_) => {
                error!("{error}");
                let sentence = "the file cannot be read or written; see the host's log";
                return Self::new(ErrorCode::Internal, sentence);
            }
        };
        Self::new(code, error.to_string())
    }
}

/// The refusal of an upload whose owner has too many uploads that wait to be compiled. A compile
/// takes seconds, and minutes at most.
fn too_many_waiting(sentence: impl Into<String>) -> ApiError {
    let refusal =
        Refusal::at_one_time("upload", UPLOADS_WAITING_MAX).after(Duration::from_secs(10));
    ApiError::new(ErrorCode::ConcurrencyLimited, sentence).with_refusal(refusal)
}

/// The refusal of an uploaded or pushed component.
fn not_accepted(error: AddComponentError) -> ApiError {
    match error {
        AddComponentError::Rejected(reason) => ApiError::bad_request(reason),
        AddComponentError::TooManyWaiting => too_many_waiting(error.to_string()),
        AddComponentError::NoSpace(_) => ApiError::new(ErrorCode::DiskFull, error.to_string()),
        AddComponentError::Failed(reason) => {
            error!("an uploaded component could not be stored: {reason}");
            ApiError::new(
                ErrorCode::Internal,
                "the component could not be compiled or kept; the host's log has the details",
            )
        }
    }
}

/// The refusal of a template whose image was not fetched.
fn not_fetched(image: &RemoteImage, error: FetchError) -> ApiError {
    match error {
        FetchError::Refused(reason) => {
            ApiError::bad_request(format!("`imageName`: cannot fetch `{image}`: {reason}"))
        }
        FetchError::Full => ApiError::new(ErrorCode::Unavailable, error.to_string()),
        FetchError::TooManyWaiting(sentence) => too_many_waiting(sentence),
        FetchError::OwnerDiskFull(sentence) => ApiError::new(ErrorCode::QuotaExceeded, sentence),
        FetchError::NoSpace(_) => ApiError::new(ErrorCode::DiskFull, error.to_string()),
        FetchError::Host(reason) => {
            error!("the image `{image}` could not be stored: {reason}");
            let sentence = "the image could not be stored; the host's log has the details";
            ApiError::new(ErrorCode::Internal, sentence)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_was_not_fetched_is_refused_with_the_code_of_its_cause() {
        let image: RemoteImage = "registry.example/guest:1".parse().unwrap();
        for (error, expected) in [
            (FetchError::Refused("no such image".to_owned()), ErrorCode::BadRequest),
            (FetchError::Full, ErrorCode::Unavailable),
            (FetchError::OwnerDiskFull("the share is taken".to_owned()), ErrorCode::QuotaExceeded),
        ] {
            assert_eq!(not_fetched(&image, error).code(), expected);
        }
    }
}
