//! The properties of an endpoint that a caller may set, and the rules for them.

use std::collections::BTreeMap;

use gristmill_core::catalog::View;
use gristmill_core::deploy::egress::{AllowedHosts, HostPattern};
use gristmill_core::deploy::endpoint::{Endpoint, Metering, Reuse, SandboxLimits, Scaler, Scaling};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId, VolumeId};
use gristmill_core::job::retention::{ChosenRetention, HistoryMax};
use gristmill_core::limits::{
    ALLOWED_HOSTS_MAX, Bounds, CALL_ENDPOINTS_MAX, EXECUTION_TIMEOUT_MS, HISTORY_JOBS, HISTORY_MIB,
    NETWORK_VOLUMES_MAX, RETENTION_MS,
};
use gristmill_core::sharing::rate::OperationLimit;

use crate::bounds::{bounded, bounded_u32, check_count, check_env, check_name};
use crate::error::ControlError;
use crate::volumes::attached;

/// The properties to set; the others keep their values.
#[derive(Debug, Default)]
pub struct EndpointPatch {
    /// A display name.
    pub name: Option<String>,
    /// The template with its handler.
    pub template: Option<TemplateId>,
    /// Fewest workers.
    pub workers_min: Option<u64>,
    /// Most workers.
    pub workers_max: Option<u64>,
    /// Whether it runs no jobs for now.
    pub paused: Option<bool>,
    /// Seconds after which an idle worker ends.
    pub idle_timeout_s: Option<u64>,
    /// The condition for a further worker.
    pub scaler: Option<ScalerKind>,
    /// The bound of that condition.
    pub scaler_value: Option<u64>,
    /// Most waiting jobs; 0: the host's bound.
    pub waiting_jobs_max: Option<u64>,
    /// Limits by operation.
    pub rate_limits: Option<BTreeMap<String, OperationLimit>>,
    /// Default timeout of a job.
    pub execution_timeout_ms: Option<u64>,
    /// How long jobs are kept after their end.
    pub retention: Option<RetentionPatch>,
    /// Memory of a sandbox.
    pub memory_mib: Option<u64>,
    /// Fuel of an attempt; 0: derived from the timeout.
    pub fuel_max: Option<u64>,
    /// How computation is metered.
    pub metering: Option<Metering>,
    /// The lifetime of an instance.
    pub reuse: Option<ReusePatch>,
    /// The hosts that handlers may call.
    pub allowed_hosts: Option<Vec<HostPattern>>,
    /// Whether requests and webhooks carry the trace of their job.
    pub propagates_traces: Option<bool>,
    /// The endpoints that handlers may submit jobs to.
    pub call_endpoints: Option<Vec<EndpointId>>,
    /// The handler's environment.
    pub env: Option<BTreeMap<String, String>>,
    /// The id of the network volume; empty: none.
    pub network_volume: Option<String>,
    /// The same as a list.
    pub network_volumes: Option<Vec<String>>,
}

/// The condition for a further worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalerKind {
    /// A job has waited for so many seconds.
    QueueDelay,
    /// There are more than so many jobs for each worker.
    RequestCount,
}

/// How long jobs are kept after their end, in milliseconds; 0: the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetentionPatch {
    /// COMPLETED jobs.
    pub completed_ms: Option<u64>,
    /// FAILED and TIMED_OUT jobs.
    pub failed_ms: Option<u64>,
    /// CANCELLED jobs.
    pub cancelled_ms: Option<u64>,
    /// Most ended jobs; 0: no bound.
    pub jobs_max: Option<u64>,
    /// Most MiB that they keep; 0: no bound.
    pub mib_max: Option<u64>,
}

/// The lifetime of an instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReusePatch {
    /// Most jobs of one instance.
    pub jobs_max: Option<u64>,
    /// Seconds for which it waits for its next job.
    pub idle_s: Option<u64>,
}

impl EndpointPatch {
    /// The endpoint with these properties, if the result is valid.
    pub(super) fn apply(self, view: &View, current: Endpoint) -> Result<Endpoint, ControlError> {
        let scaling = scaling(current.scaling, &self)?;
        let (template, template_is_deleted) = chosen_template(view, &current, self.template)?;
        let deleted_template_owner = current.deleted_template_owner.filter(|_| template_is_deleted);
        let name = self.name.unwrap_or(current.name);
        check_name(&name)?;
        if let Some(hosts) = &self.allowed_hosts {
            check_count("allowedHosts", hosts.len(), ALLOWED_HOSTS_MAX)?;
        }
        if let Some(endpoints) = &self.call_endpoints {
            check_count("callEndpoints", endpoints.len(), CALL_ENDPOINTS_MAX)?;
        }
        if let Some(env) = &self.env {
            check_env(env)?;
        }
        let named = named_volume(
            current.network_volume.as_ref(),
            self.network_volume,
            self.network_volumes,
        )?;
        let network_volume = match named {
            Some((field, id)) => attached(view, &current.owner, field, &id)?,
            None => current.network_volume,
        };
        let execution_timeout_ms = match self.execution_timeout_ms {
            Some(ms) => bounded("executionTimeoutMs", EXECUTION_TIMEOUT_MS, ms)?,
            None => current.execution_timeout_ms,
        };
        let limits = SandboxLimits {
            memory_bytes_max: match self.memory_mib {
                Some(mib) => bounded("memoryMib", SandboxLimits::MEMORY_MIB, mib)? << 20,
                None => current.limits.memory_bytes_max,
            },
            // 0 removes the explicit budget: it is derived from the timeout again.
            fuel_max: self.fuel_max.or(current.limits.fuel_max).filter(|fuel| *fuel > 0),
            metering: self.metering.unwrap_or(current.limits.metering),
        };
        check_fuel(limits)?;
        Ok(Endpoint {
            id: current.id,
            name,
            owner: current.owner,
            template,
            template_is_deleted,
            deleted_template_owner,
            version: current.version,
            template_revision: current.template_revision,
            releases: current.releases,
            created_at: current.created_at,
            scaling,
            execution_timeout_ms,
            limits,
            reuse: match self.reuse {
                Some(given) => reuse(current.reuse, given)?,
                None => current.reuse,
            },
            waiting_jobs_max: match self.waiting_jobs_max {
                // 0 removes the explicit bound.
                Some(0) => None,
                Some(jobs) => {
                    Some(bounded_u32("maxWaitingJobs", Endpoint::WAITING_JOBS_MAX, jobs)?)
                }
                None => current.waiting_jobs_max,
            },
            retention: match self.retention {
                Some(given) => retention(current.retention, given)?,
                None => current.retention,
            },
            history_max: match self.retention {
                Some(given) => history_max(current.history_max, given)?,
                None => current.history_max,
            },
            rate_limits: match self.rate_limits {
                Some(limits) => rate_limits(limits)?,
                None => current.rate_limits,
            },
            allowed_hosts: self.allowed_hosts.map_or(current.allowed_hosts, AllowedHosts::new),
            propagates_traces: self.propagates_traces.unwrap_or(current.propagates_traces),
            call_endpoints: self.call_endpoints.unwrap_or(current.call_endpoints),
            env: self.env.unwrap_or(current.env),
            network_volume,
            webhook_secrets: current.webhook_secrets,
            incarnation: current.incarnation,
        })
    }
}

/// Refuses a bound of fuel where none is counted: it would never end a job.
fn check_fuel(limits: SandboxLimits) -> Result<(), ControlError> {
    if limits.fuel_max.is_some() && limits.metering == Metering::Epoch {
        return Err(ControlError::invalid(
            "`maxFuel` has no effect with `metering` `epoch`, which counts no fuel; set `metering` to \
             `fuel`, or `maxFuel` to 0",
        ));
    }
    Ok(())
}

/// The id of the network volume that a change names, empty for none, and the field with it; `None`:
/// the change names none. Of two different ones the present one does not count, so that a client
/// can send an answer back after it has changed one of the fields.
fn named_volume(
    present: Option<&VolumeId>,
    one: Option<String>,
    list: Option<Vec<String>>,
) -> Result<Option<(&'static str, String)>, ControlError> {
    const ONE: &str = "networkVolumeId";
    const LIST: &str = "networkVolumeIds";
    let list = list.map(|ids| check_count(LIST, ids.len(), NETWORK_VOLUMES_MAX).map(|()| ids));
    let listed = list.transpose()?.map(|ids| ids.into_iter().next().unwrap_or_default());
    let present = present.map_or("", VolumeId::as_str);
    match (one, listed) {
        (Some(one), Some(listed)) if one == present => Ok(Some((LIST, listed))),
        (Some(one), Some(listed)) if listed != one && listed != present => {
            Err(ControlError::invalid(format!(
                "`{ONE}` and `{LIST}` name different network volumes; send one of the fields"
            )))
        }
        (Some(one), _) => Ok(Some((ONE, one))),
        (None, listed) => Ok(listed.map(|id| (LIST, id))),
    }
}

/// The endpoint's template after the change, and whether it is a deleted one. The endpoint's present
/// template is not checked again.
///
/// While its template is deleted, the present id still means that template. Otherwise another owner could
/// take the id for a public template of their own, and a client that sends the whole endpoint back with
/// another change would run their handler with this owner's inputs, environment and network volume.
fn chosen_template(
    view: &View,
    current: &Endpoint,
    given: Option<TemplateId>,
) -> Result<(TemplateId, bool), ControlError> {
    // A new endpoint has the given template already.
    let is_new = !view.deployments.contains_key(&current.id);
    match given {
        Some(id) if is_new || id != current.template => {
            check_template(view, &current.owner, &id)?;
            Ok((id, false))
        }
        Some(id) => Ok((id, current.template_is_deleted && !is_made_again(view, current))),
        None => Ok((current.template.clone(), current.template_is_deleted)),
    }
}

/// Whether there is a template with the id of the endpoint's deleted one that may take its place: the
/// endpoint's owner may use it, and the same owner has made it again, or it belongs to the endpoint's
/// owner or to the operator.
fn is_made_again(view: &View, endpoint: &Endpoint) -> bool {
    view.templates.get(&endpoint.template).is_some_and(|template| {
        let is_known = template.owner == endpoint.owner
            || template.owner.is_operator()
            || endpoint.deleted_template_owner.as_ref() == Some(&template.owner);
        is_known && check_template(view, &endpoint.owner, &template.id).is_ok()
    })
}

/// Refuses a template that this owner's endpoints may not use.
fn check_template(view: &View, owner: &OwnerId, id: &TemplateId) -> Result<(), ControlError> {
    let usable = view.templates.get(id).filter(|template| template.is_usable_by(owner));
    let template = usable
        .ok_or_else(|| ControlError::invalid(format!("`templateId`: template `{id}` not found")))?;
    if !template.is_serverless {
        return Err(ControlError::invalid(format!(
            "`templateId`: template `{id}` has `isServerless` false; an endpoint needs one where it is true"
        )));
    }
    Ok(())
}

/// A bound of a retention or a history: the given one, none for 0, and the current one without any.
fn chosen(
    field: &'static str,
    bounds: Bounds,
    given: Option<u64>,
    current: Option<u64>,
) -> Result<Option<u64>, ControlError> {
    match given {
        None => Ok(current),
        Some(0) => Ok(None),
        Some(number) => bounded(field, bounds, number).map(Some),
    }
}

fn retention(
    current: ChosenRetention,
    given: RetentionPatch,
) -> Result<ChosenRetention, ControlError> {
    let chosen = |field, given, current| chosen(field, RETENTION_MS, given, current);
    Ok(ChosenRetention {
        completed_ms: chosen("retention.completed", given.completed_ms, current.completed_ms)?,
        failed_ms: chosen("retention.failed", given.failed_ms, current.failed_ms)?,
        cancelled_ms: chosen("retention.cancelled", given.cancelled_ms, current.cancelled_ms)?,
    })
}

fn history_max(current: HistoryMax, given: RetentionPatch) -> Result<HistoryMax, ControlError> {
    let mib = current.bytes.map(|bytes| bytes >> 20);
    let mib = chosen("retention.maxMib", HISTORY_MIB, given.mib_max, mib)?;
    Ok(HistoryMax {
        jobs: chosen("retention.maxJobs", HISTORY_JOBS, given.jobs_max, current.jobs)?,
        bytes: mib.map(|mib| mib << 20),
    })
}

fn reuse(current: Reuse, given: ReusePatch) -> Result<Reuse, ControlError> {
    Ok(Reuse {
        jobs_max: match given.jobs_max {
            Some(jobs) => bounded_u32("reuse.maxJobs", Reuse::JOBS_MAX, jobs)?,
            None => current.jobs_max,
        },
        idle_s: match given.idle_s {
            Some(seconds) => bounded_u32("reuse.maxIdle", Reuse::IDLE_S, seconds)?,
            None => current.idle_s,
        },
    })
}

fn scaling(current: Scaling, input: &EndpointPatch) -> Result<Scaling, ControlError> {
    let workers_max = match input.workers_max {
        Some(count) => bounded_u32("workersMax", Scaling::WORKERS_MAX, count)?,
        None => current.workers_max,
    };
    let workers_min = match input.workers_min {
        Some(count) => match u32::try_from(count) {
            Ok(count) if count <= workers_max => count,
            Ok(_) | Err(_) => {
                return Err(ControlError::invalid(format!(
                    "`workersMin` must be 0 to {workers_max}, which is `workersMax`, not {count}"
                )));
            }
        },
        None => current.workers_min.min(workers_max),
    };
    let idle_timeout_s = match input.idle_timeout_s {
        Some(seconds) => bounded_u32("idleTimeout", Scaling::IDLE_TIMEOUT_S, seconds)?,
        None => current.idle_timeout_s,
    };
    let value = match input.scaler_value {
        Some(value) => bounded_u32("scalerValue", Scaler::VALUE, value)?,
        None => current.scaler.value(),
    };
    let scaler = match (input.scaler, current.scaler) {
        (Some(ScalerKind::QueueDelay), _) | (None, Scaler::QueueDelay(_)) => {
            Scaler::QueueDelay(value)
        }
        (Some(ScalerKind::RequestCount), _) | (None, Scaler::RequestCount(_)) => {
            Scaler::RequestCount(value)
        }
    };
    let paused = input.paused.unwrap_or(current.paused);
    Ok(Scaling { workers_min, workers_max, paused, idle_timeout_s, scaler })
}

/// The limits, if each operation has one, and each permits calls: a limit of 0 would refuse every call
/// with the advice to try again later.
fn rate_limits(
    limits: BTreeMap<String, OperationLimit>,
) -> Result<BTreeMap<String, OperationLimit>, ControlError> {
    const CALLS: Bounds = Bounds { min: 1, default: 1, max: u32::MAX as u64 };
    let names = Endpoint::RATE_LIMITED;
    for (name, limit) in &limits {
        if !names.contains(&name.as_str()) {
            return Err(ControlError::invalid(format!(
                "`rateLimits` has `{name}`; the operations are {}",
                names.join(", ")
            )));
        }
        let calls = limit.calls_per_10s.into();
        bounded(&format!("rateLimits.{name}.callsPer10s"), CALLS, calls)?;
        if let Some(calls) = limit.concurrent {
            bounded(&format!("rateLimits.{name}.concurrent"), CALLS, calls.into())?;
        }
    }
    Ok(limits)
}
