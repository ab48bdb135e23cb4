//! The management API. Fields without a value are absent; in a change, absent fields stay as they
//! are.

mod billing;
mod cluster;
mod compute_type;
mod delivery;
mod endpoint;
mod event;
mod handler;
mod http_request;
mod job;
mod job_action;
mod key;
mod log;
mod pod;
mod registry_auth;
mod release;
mod schedule;
mod secrets;
mod series;
mod start_limits;
mod system;
mod template;
mod volume;

pub use crate::grouping::{BucketSize, Grouping};
pub use billing::{Amount, BillingRecord};
pub use cluster::{Cluster, ClusterHost, HostRole};
pub use compute_type::ComputeType;
pub use delivery::{Delivery, DeliveryState};
pub use endpoint::{
    CorsInput, CorsSettings, Endpoint, EndpointInput, EndpointRetention, EndpointSettings,
    EndpointType, EndpointWithSecret, HttpInput, HttpSettings, RateLimit, RetentionInput, Reuse,
    ReuseInput, ScalerType, check_fuel,
};
pub use event::{EndpointEvent, JobStatusEvent, LiveEndpoint, NewestJobs, OverviewEvent};
pub use handler::{Handler, Producer};
pub use http_request::HttpRequest;
pub use job::{JobList, JobSummary};
pub use job_action::{JobAction, JobActionFilter, JobActionKind, JobActionState, NewJobAction};
pub use key::{Key, KeyWithText, NewKey};
pub use log::LogLine;
pub use pod::{Pod, PodStatus};
pub use registry_auth::{NewRegistryAuth, RegistryAuth};
pub use release::{Release, ReleaseSettings, ReleaseWithSettings, Rollback};
pub use schedule::{CatchUp, CatchUpInput, Overlap, Schedule, ScheduleInput, Tick, TickOutcome};
pub use secrets::RotatedSecrets;
pub use series::{
    EndpointSeries, SeriesList, SeriesPoint, SeriesQuantiles, SeriesWorkers, ShortSeries,
};
pub use start_limits::{KeyLimits, KeyLimitsInput, KeyWeight, StartRate, StartRateInput};
pub use system::{Disk, SandboxBytes, Sandboxes, System, Webhooks};
pub use template::{Template, TemplateCategory, TemplateInput};
pub use volume::{NetworkVolume, NetworkVolumeInput, NewNetworkVolume, VolumeFile, VolumeFileType};

#[cfg(feature = "openapi")]
pub use endpoint::NewEndpoint;
#[cfg(feature = "openapi")]
pub use schedule::NewSchedule;
#[cfg(feature = "openapi")]
pub use template::NewTemplate;
