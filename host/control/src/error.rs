//! Why an operation was not carried out.

use gristmill_core::access::key::Scope;
use gristmill_core::backup::BackupError;
use gristmill_core::deploy::image::RemoteImage;
use gristmill_core::deploy::volume_files::VolumeFileError;
use gristmill_core::jobs::operations::SubmitError;
use gristmill_core::registries::FetchError;
use gristmill_core::runtime::{AddComponentError, StageError};
use gristmill_core::store::StoreError;
use gristmill_wire::settings::InvalidField;

/// Why an operation was not carried out. Each variant is another situation for the caller; its text
/// is one sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A value is wrong. The sentence names the field, and what is allowed.
    #[error("{0}")]
    Invalid(String),
    /// There is no such object, or the key may not see it.
    #[error("{what} `{name}` not found")]
    NotFound {
        /// The kind of the object.
        what: &'static str,
        /// Its id, or its name.
        name: String,
    },
    /// The component that a name should refer to is not stored any more.
    #[error("the component was deleted meanwhile; push it again")]
    ComponentDeleted,
    /// The state of another object does not permit the change. The sentence names that object.
    #[error("{0}")]
    Conflict(String),
    /// The operation needs a scope that the key does not have.
    #[error("this API key lacks the scope `{}`", .0.as_str())]
    MissingScope(Scope),
    /// The key is not valid any more.
    #[error("this API key was revoked or has expired during the call")]
    KeyEnded,
    /// The store did not accept the change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The job was not accepted.
    #[error(transparent)]
    Submission(#[from] SubmitError),
    /// The upload cannot begin now.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The uploaded component was not accepted.
    #[error(transparent)]
    Component(#[from] AddComponentError),
    /// The image of a template was not fetched.
    #[error("cannot fetch `{image}`: {error}")]
    Fetch {
        /// The image.
        image: Box<RemoteImage>,
        /// The reason.
        error: FetchError,
    },
    /// There is no backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The operation on a file of a network volume was not carried out.
    #[error(transparent)]
    VolumeFile(#[from] VolumeFileError),
    /// The object is deleted, and its files are still there.
    #[error(
        "the volume is deleted, but its files cannot be removed before the host's next start; see its \
         log"
    )]
    FilesStay,
    /// The host stops.
    #[error("the host is stopping")]
    Stopping,
}

impl From<InvalidField> for ControlError {
    fn from(error: InvalidField) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl ControlError {
    pub(crate) fn invalid(sentence: impl Into<String>) -> Self {
        Self::Invalid(sentence.into())
    }

    pub(crate) fn conflict(sentence: impl Into<String>) -> Self {
        Self::Conflict(sentence.into())
    }
}
