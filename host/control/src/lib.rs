//! The control plane: one call for each operation on what is deployed, without HTTP.
//!
//! **Promises.** A call carries out its whole operation or nothing of it. A caller that stops
//! waiting does not stop an operation between two of its steps ([`complete()`]), and after a crash
//! the next start finds the operation done or not begun. A key that was revoked, or has expired,
//! changes nothing, however long the call has waited: the change itself checks the key again.
//!
//! An object of another owner does not exist for a key, unless the key has the scope `admin`.
//! Whether a key may call an operation at all is checked by the front end, before this crate.
//!
//! Messages name the fields of an object as the management API and the project file spell them.

mod access;
mod backup;
mod billing;
mod blob_uploads;
mod charts;
mod complete;
mod control;
mod deployed;
mod endpoints;
mod error;
mod host;
mod images;
mod job_actions;
mod keys;
mod live;
mod metric_series;
mod owned;
mod registry_auths;
mod schedules;
mod sessions;
mod templates;
#[cfg(test)]
mod tests;
mod volume_files;
mod volumes;

pub use access::Access;
pub use backup::{Backup, Backups};
pub use billing::{Billing, BucketSize, Buckets, Grouping, Record, ReportQuery, TemplateUsage};
pub use blob_uploads::{
    BlobClaim, BlobUploadId, BlobUploadInUse, BlobUploads, ClaimedBlobs, TooManyUploads,
    UploadNotTaken,
};
pub use charts::{
    Chart, Charts, ChartsDamaged, MostWorkers, Point, Quantiles, SAMPLE_INTERVAL, Window,
};
pub use complete::complete;
pub use control::{Control, ControlParts};
pub use deployed::Extent;
pub use endpoints::{EndpointLogs, Endpoints};
pub use error::ControlError;
pub use host::{Host, HostCounters};
pub use images::{ImageName, Images, NamedComponent, NamedImages, is_image_part};
pub use job_actions::{JobActions, NewJobAction};
pub use keys::Keys;
pub use live::{DELETED_VERSIONS, Live, LiveValue, LiveValues, OwnerValues};
pub use metric_series::{EndpointNow, MetricSeries, SeriesValues};
pub use owned::{Listed, Owned};
pub use registry_auths::RegistryAuths;
pub use schedules::Schedules;
pub use sessions::{SecretText, Session, SessionId, Sessions};
pub use templates::{TemplateList, Templates};
pub use volume_files::{FileUpload, file_path};
pub use volumes::Volumes;
