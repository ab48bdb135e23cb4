//! A batch as a record for the journal, with its payloads.

use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::tags::Tags;
use gristmill_core::trace::TraceContext;

use crate::format::image::{
    BatchImage, DeliveryImage, FixedImage, IdempotencyImage, JobImage, StateImage,
};
use crate::format::pages::{self, Page};
use crate::format::payload::InputBytes;
use crate::journal::checksum::{self, PayloadPart};
use crate::seal::Seal;
use crate::state::batch::{Batch, Fixed, JobWrite, RowWrite};
use crate::state::job::{NewRow, Stored};
use crate::state::meters::UsageWrite;

/// The image of a batch, and its payloads.
pub(crate) fn encode<'a>(batch: &'a Batch, seal: &Seal) -> (BatchImage<'a>, Vec<PayloadPart>) {
    let mut payloads = Vec::with_capacity(5 * batch.jobs.len());
    let jobs = batch.jobs.iter().map(|write| job(write, seal, &mut payloads)).collect();
    let endpoints = batch.endpoints.iter().map(|(key, name)| (key.0, name.as_str()));
    let counts = batch.totals.iter();
    let counts = counts.map(|(key, sum)| (key.0, [sum.completed, sum.failed, sum.retried]));
    let attempts = batch.deliveries.iter();
    let image = BatchImage {
        endpoints: endpoints.collect(),
        counts: counts.collect(),
        usage: batch.usage.iter().map(UsageWrite::image).collect(),
        jobs,
        attempts: attempts.map(|(key, delivery)| DeliveryImage::of(*key, delivery)).collect(),
        dropped_deliveries: batch.dropped_deliveries.iter().map(|id| id.0).collect(),
        forgotten: batch.forgotten.iter().map(|key| key.0).collect(),
        dropped_records_up_to: batch.dropped_records_up_to,
        schedules: batch.schedules.iter().map(|(key, note)| (key.0, note.as_deref())).collect(),
    };
    (image, payloads)
}

/// The image of a changed job; its payloads are added to `payloads`.
fn job<'a>(write: &'a JobWrite, seal: &Seal, payloads: &mut Vec<PayloadPart>) -> JobImage<'a> {
    let fixed = &write.fixed;
    let state = match &write.kind {
        RowWrite::Insert(new) => StateImage::New {
            fixed: fixed_image(fixed, new),
            row: write.row.image(),
            input: write.row.needs_input().then(|| {
                let InputBytes { body, rest } = InputBytes::of(&new.input, seal, fixed.seq);
                checksum::add(payloads, [body, rest])
            }),
        },
        RowWrite::Update => StateImage::Changed(write.row.image()),
        &RowWrite::Delete(Stored { job, output, chunks }) => {
            StateImage::Deleted { job, output, chunks }
        }
        RowWrite::NeverStored => StateImage::Deleted { job: false, output: false, chunks: false },
    };
    let output = write.output.as_ref();
    let output = output.map(|output| checksum::add(payloads, [output.as_bytes().clone()]));
    let pages = write.pages.iter();
    let mut add_page = |page: &Page| checksum::add(payloads, [pages::encode(&page.chunks)]);
    let pages = pages.map(|page| (page.first, add_page(page))).collect();
    let delivery = write.delivery.as_ref().map(|new| {
        if let Some(body) = &new.body {
            checksum::add(payloads, [body.clone()]);
        }
        DeliveryImage::of(fixed.endpoint, &new.delivery)
    });
    let idempotency = write.idempotency.map(|idempotency| idempotency_image(idempotency, fixed));
    JobImage {
        seq: fixed.seq,
        id: fixed.id.to_bytes(),
        endpoint: fixed.endpoint.0,
        state,
        idempotency,
        output,
        clears_result: write.clear_result,
        pages,
        has_body: write.delivery.as_ref().is_some_and(|new| new.body.is_some()),
        delivery,
    }
}

/// The columns of a new job that never change.
pub(crate) fn fixed_image<'a>(fixed: &Fixed, new: &'a NewRow) -> FixedImage<'a> {
    FixedImage {
        owner: new.owner.as_str(),
        low_priority: fixed.low_priority,
        execution_timeout_ms: fixed.execution_timeout_ms.unwrap_or(0),
        ttl_ms: new.ttl_ms,
        retention_ms: fixed.retention.default_ms,
        created_at: fixed.created_at.as_millis(),
        webhook: new.webhook.as_deref().map(|url| &**url),
        retention_completed_ms: fixed.retention.chosen.completed_ms,
        retention_failed_ms: fixed.retention.chosen.failed_ms,
        retention_cancelled_ms: fixed.retention.chosen.cancelled_ms,
        tags: new.tags.as_ref().map(Tags::as_str),
        trace: new.trace.as_ref().map(TraceContext::to_bytes),
        trace_state: new.trace.as_ref().and_then(|trace| trace.state.as_str()),
    }
}

/// The idempotency record of a new job.
pub(crate) fn idempotency_image(idempotency: Idempotency, fixed: &Fixed) -> IdempotencyImage {
    let Idempotency { key, content } = idempotency;
    IdempotencyImage { key, content, at: fixed.created_at.as_millis() }
}
