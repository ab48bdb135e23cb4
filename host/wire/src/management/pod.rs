//! Workers, in the form in which the hosted service lists them.

use serde::{Deserialize, Serialize};

use super::volume::NetworkVolume;
use crate::id::{EndpointId, OwnerId, TemplateId, WorkerId};
#[cfg(feature = "openapi")]
use crate::schema;

/// A worker of an endpoint, in the form of a Pod of the hosted service: with the fields that have a
/// meaning here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// The worker's id, as the `workerId` of its jobs; it ends with `slsVersion`.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: WorkerId,
    /// The endpoint of its jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::EndpointId))]
    pub endpoint_id: EndpointId,
    /// The display name of the endpoint.
    pub name: String,
    /// The owner of the endpoint.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub consumer_user_id: OwnerId,
    /// The endpoint's template.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub template_id: TemplateId,
    /// The handler that the template names.
    pub image: String,
    /// A worker that has ended is in no list.
    pub desired_status: PodStatus,
    /// When it was started.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub last_started_at: String,
    /// The version of the endpoint that it runs.
    pub sls_version: u32,
    /// Memory of one attempt, in GiB.
    pub memory_in_gb: f64,
    /// Size of each job's scratch space, in gigabytes; 0: none.
    pub container_disk_in_gb: u32,
    /// With `includeNetworkVolume`: the endpoint's network volume. Absent: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub network_volume: Option<NetworkVolume>,
}

/// The state that a worker should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum PodStatus {
    /// It runs jobs, or waits for them.
    Running,
}
