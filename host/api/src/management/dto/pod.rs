//! Workers, as Pods.

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::workers::Worker;
use gristmill_wire::management::{Pod, PodStatus};

use crate::answer::wire_time::rfc3339;

/// The answer's form of a worker of this deployment. It has no environment and no arguments, which
/// may have a MiB: these are in the documents of the endpoint and the template.
pub(crate) fn pod(of: &Deployment, worker: Worker) -> Pod {
    const MIB_PER_GIB: f64 = 1024.0;
    // The template of another owner who shows it no more looks like one that was deleted.
    let (endpoint, template) = (&of.endpoint, of.uses_template().then_some(&of.template));
    let memory_mib = u32::try_from(endpoint.settings.memory_mib).unwrap_or(u32::MAX);
    Pod {
        id: worker.id,
        endpoint_id: endpoint.id.clone(),
        name: endpoint.name.clone(),
        consumer_user_id: endpoint.owner.clone(),
        template_id: endpoint.template.clone(),
        image: template.map(|template| template.image.clone()).unwrap_or_default(),
        desired_status: PodStatus::Running,
        last_started_at: rfc3339(worker.started_at),
        sls_version: worker.version,
        memory_in_gb: f64::from(memory_mib) / MIB_PER_GIB,
        container_disk_in_gb: template.map_or(0, |template| template.container_disk_gb),
        network_volume: None,
    }
}
