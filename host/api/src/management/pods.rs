//! `GET /v1/pods`: there are no Pods, so the list has the workers of endpoints, and only if the
//! caller asks for them.
//!
//! **Bounds.** A page, as for every list. **Cost.** Each page makes some 400 bytes for each worker
//! of the caller, and looks at all of its endpoints.

use axum::extract::RawQuery;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::workers::Worker;
use gristmill_wire::management as wire;

use super::page::{Page, Paged};
use super::volumes::{DATA_CENTER, network_volume};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{COMPUTE_TYPES, POD_STATUSES, PageOfList, PodQuery};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::request::query::{self, Query};

/// An empty list; with `includeWorkers` the workers of the endpoints of the key's owner, with an
/// admin key those of all owners.
///
/// The workers that `workersMin` keeps and that no job has needed yet are not in the list: they
/// have no id, and `health` counts them. There are no other Pods.
#[utoipa::path(
    get, path = "/pods", operation_id = "ListPods", tag = tag::ENDPOINTS,
    params(PodQuery, PageOfList),
    responses((status = 200, description = "By endpoint, the oldest worker first", body = Vec<wire::Pod>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    RawQuery(query): RawQuery,
    page: Page,
) -> Result<Paged, ApiError> {
    let filter = Filter::of(query.as_deref().unwrap_or_default())?;
    let (endpoints, caller) = (state.control.endpoints.clone(), key.clone());
    let select = move |page: Page| {
        let deployments = match filter.is_empty {
            true => vec![],
            false => endpoints.deployments(&caller),
        };
        let pods = deployments.iter().flat_map(|deployment| {
            let workers = endpoints.workers(&deployment.endpoint.id).into_iter();
            let network_volume = deployment.volume.as_deref().map(network_volume);
            workers.map(move |worker| wire::Pod {
                network_volume: network_volume.clone(),
                ..pod(deployment, worker)
            })
        });
        let position =
            |pod: &wire::Pod| format!("{} {} {}", pod.endpoint_id, pod.last_started_at, pod.id);
        page.of(pods.filter(|pod| filter.matches(pod)), position, |pod| filter.shown(pod))
    };
    page.make(&state, &key, select).await
}

/// A text of a worker that can be asked for.
type Field = for<'p> fn(&'p wire::Pod) -> &'p str;

/// The workers that are asked for.
struct Filter {
    /// No worker matches.
    is_empty: bool,
    /// The fields with the texts that they must have.
    texts: Vec<(Field, String)>,
    shows_volumes: bool,
}

impl Filter {
    fn of(query: &str) -> Result<Self, ApiError> {
        let flag = |name| query::flag(query, &[name]);
        let (shows_workers, shows_volumes) =
            (flag("includeWorkers")?, flag("includeNetworkVolume")?);
        // They concern Pods alone.
        for name in ["includeMachine", "includeSavingsPlans", "includeTemplate"] {
            flag(name)?;
        }
        let query = Query(query);
        let status = query.one_of("desiredStatus", POD_STATUSES, |word| word)?;
        let hardware = query.one_of("computeType", COMPUTE_TYPES, |word| word)?;
        let is_empty = !shows_workers
            || status.is_some_and(|status| status != POD_STATUSES[0])
            || hardware.is_some_and(|hardware| hardware != COMPUTE_TYPES[0])
            || !query.permits("dataCenterId", Some(DATA_CENTER))
            || !query.permits("cpuFlavorId", None)
            || !query.permits("gpuTypeId", None);
        let fields: [(&str, Field); 6] = [
            ("id", |pod| pod.id.as_str()),
            ("endpointId", |pod| pod.endpoint_id.as_str()),
            ("templateId", |pod| pod.template_id.as_str()),
            ("imageName", |pod| &pod.image),
            ("name", |pod| &pod.name),
            ("networkVolumeId", |pod| pod.network_volume.as_ref().map_or("", |of| of.id.as_str())),
        ];
        let text = |(name, field)| Some((field, query.text(name)?.into_owned()));
        Ok(Self { is_empty, texts: fields.into_iter().filter_map(text).collect(), shows_volumes })
    }

    fn matches(&self, pod: &wire::Pod) -> bool {
        self.texts.iter().all(|(field, text)| field(pod) == text)
    }

    /// The worker without the parts that are not asked for.
    fn shown(&self, pod: wire::Pod) -> wire::Pod {
        let network_volume = pod.network_volume.filter(|_| self.shows_volumes);
        wire::Pod { network_volume, ..pod }
    }
}

/// The answer's form of a worker of this deployment. It has no environment and no arguments, which
/// may have a MiB: these are in the documents of the endpoint and the template.
pub(super) fn pod(of: &Deployment, worker: Worker) -> wire::Pod {
    const MIB_PER_GIB: f64 = 1024.0;
    // The template of another owner who shows it no more looks like one that was deleted.
    let (endpoint, template) = (&of.endpoint, of.uses_template().then_some(&of.template));
    let memory_mib = u32::try_from(endpoint.settings.memory_mib).unwrap_or(u32::MAX);
    wire::Pod {
        id: worker.id,
        endpoint_id: endpoint.id.clone(),
        name: endpoint.name.clone(),
        consumer_user_id: endpoint.owner.clone(),
        template_id: endpoint.template.clone(),
        image: template.map(|template| template.image.clone()).unwrap_or_default(),
        desired_status: wire::PodStatus::Running,
        last_started_at: rfc3339(worker.started_at),
        sls_version: worker.version,
        memory_in_gb: f64::from(memory_mib) / MIB_PER_GIB,
        container_disk_in_gb: template.map_or(0, |template| template.container_disk_gb),
        network_volume: None,
    }
}
