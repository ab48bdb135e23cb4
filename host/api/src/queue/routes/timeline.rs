//! `GET /{endpoint}/timeline/{job}`: what happened to a job, and when.

use axum::Json;

use gristmill_core::billing::price::Prices;
use gristmill_core::billing::usage::{JobUsage, UsageSum};
use gristmill_core::job::record::JobRecord;
use gristmill_core::jobs::timeline::{Timeline, TimelineEntry, TimelineEvent};
use gristmill_wire::queue as wire;
use gristmill_wire::queue::TimelineEventKind;

use crate::answer::amount::amount;
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;

/// The events of the job, oldest first: when it was queued, started and ended, for each attempt,
/// and the attempts to send its webhook; with the usage and the cost of the job.
#[utoipa::path(
    get, path = "/{endpoint}/timeline/{job}", operation_id = "GetTimeline", tag = tag::JOBS,
    responses((status = 200, description = "Its events", body = wire::Timeline), Mistaken),
)]
pub(crate) async fn timeline(
    Admitted { state, call, .. }: Admitted<Read>,
) -> Result<Json<wire::Timeline>, ApiError> {
    let id = call.job()?;
    let endpoint = &call.deployment.endpoint.id;
    let record = state.jobs.record(endpoint, id).await?.ok_or_else(ApiError::job_not_found)?;
    let timeline = state.control.endpoints.timeline(&record).await?;
    Ok(Json(shown(&record, timeline, state.control.billing.prices())))
}

/// The answer's form of a timeline.
fn shown(record: &JobRecord, timeline: Timeline, prices: &Prices) -> wire::Timeline {
    let Timeline { entries, attempts_omitted } = timeline;
    wire::Timeline {
        id: record.id.to_string(),
        status: record.status,
        events: entries.into_iter().map(event).collect(),
        attempts_omitted,
        trace_id: record.trace.as_ref().map(|context| context.trace.to_string()),
        usage: usage(&record.usage, prices),
    }
}

/// `None` without any attempt.
fn usage(used: &JobUsage, prices: &Prices) -> Option<wire::JobUsage> {
    let JobUsage { billed, egress_bytes } = *used;
    let UsageSum { jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, memory_mib_ms, .. } = billed;
    #[expect(clippy::cast_precision_loss, reason = "a sum above 285 years loses microseconds")]
    let cpu_ms = cpu_us as f64 / 1_000.0;
    (jobs > 0).then(|| wire::JobUsage {
        attempts: jobs,
        time_billed_ms: wall_ms,
        cpu_ms,
        fuel,
        memory_bytes_peak,
        memory_mib_ms,
        bytes_in: billed.bytes_in,
        bytes_out: billed.bytes_out,
        chunks: billed.chunks,
        egress_bytes,
        amount: amount(prices.amount(&billed)),
    })
}

fn event(TimelineEntry { at, event }: TimelineEntry) -> wire::TimelineEvent {
    let kind = match &event {
        TimelineEvent::Queued { .. } => TimelineEventKind::Queued,
        TimelineEvent::Started { .. } => TimelineEventKind::Started,
        TimelineEvent::Failed { .. } => TimelineEventKind::Failed,
        TimelineEvent::Ended { .. } => TimelineEventKind::Ended,
        TimelineEvent::WebhookSent { .. } => TimelineEventKind::WebhookSent,
        TimelineEvent::WebhookDelivered => TimelineEventKind::WebhookDelivered,
        TimelineEvent::WebhookGivenUp { .. } => TimelineEventKind::WebhookGivenUp,
    };
    let plain = wire::TimelineEvent {
        at: rfc3339(at),
        event: kind,
        cause: None,
        attempt: None,
        worker_id: None,
        status: None,
        http_status: None,
        error: None,
    };
    match event {
        TimelineEvent::Queued { cause } => wire::TimelineEvent { cause, ..plain },
        TimelineEvent::Started { attempt, worker } => {
            wire::TimelineEvent { attempt: Some(attempt), worker_id: worker, ..plain }
        }
        TimelineEvent::Failed { attempt, error } => {
            wire::TimelineEvent { attempt: Some(attempt), error, ..plain }
        }
        TimelineEvent::Ended { status, error } => {
            wire::TimelineEvent { status: Some(status), error, ..plain }
        }
        TimelineEvent::WebhookSent { attempt, status } => {
            wire::TimelineEvent { attempt: Some(attempt), http_status: status, ..plain }
        }
        TimelineEvent::WebhookDelivered => plain,
        TimelineEvent::WebhookGivenUp { error } => wire::TimelineEvent { error, ..plain },
    }
}
