//! One attempt to deliver a webhook: reads the bytes, signs and sends them, and records the
//! outcome.

use std::sync::Arc;

use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::metrics::endpoint::WebhookEnd;
use gristmill_core::sharing::permits::Permits;
use gristmill_core::store::StoreError;
use gristmill_core::trace::{Attributes, OpenSpan, SpanKind};
use gristmill_core::webhook::delivery::{
    AfterAttempt, Delivery, DeliveryOutcome, RETRY_INTERVAL_MS,
};
use tracing::{debug, info};

use super::parts::DeliveryParts;
use super::sender::{CallEnd, WebhookCall};

/// Attempts for one delivery: the first, and two more.
const ATTEMPTS: u32 = 3;

/// Makes an attempt. If the future is dropped before its end, the attempt counts as not made: the
/// delivery stays due.
///
/// # Errors
/// When the body cannot be read, or the outcome cannot be recorded: then too the attempt counts as
/// not made.
pub(super) async fn run(
    parts: Arc<DeliveryParts>,
    delivery: Delivery,
    bodies: Permits,
) -> Result<(), StoreError> {
    let id = delivery.id;
    let Some(Made { end, of }) = attempt(&parts, &delivery, &bodies).await? else { return Ok(()) };
    let (report, next) = judge(end, delivery.attempts + 1);
    log_outcome(&delivery, &report, next);
    parts.store.record_attempt(id, report, next).await?;
    if let Some(incarnation) = of {
        count_outcome(&incarnation, next);
    }
    Ok(())
}

/// An attempt that has ended.
struct Made {
    end: CallEnd,
    /// The endpoint of the job; `None` if it was deleted before.
    of: Option<EndpointIncarnation>,
}

/// `None` when the delivery, or its endpoint, was deleted meanwhile.
async fn attempt(
    parts: &DeliveryParts,
    delivery: &Delivery,
    bodies: &Permits,
) -> Result<Option<Made>, StoreError> {
    // Looked up before the body: the deletion of an endpoint removes its deliveries before another
    // endpoint can have its name. So a delivery whose body is found below belongs to this
    // incarnation of the endpoint.
    let Some(deployment) = parts.catalog.deployment(&delivery.endpoint) else {
        let end = CallEnd::Refused("the endpoint was deleted".to_owned());
        return Ok(Some(Made { end, of: None }));
    };
    let of = Some(deployment.incarnation.clone());
    let endpoint = &deployment.endpoint;
    let kib = usize::try_from(delivery.body_bytes.div_ceil(1 << 10)).unwrap_or(usize::MAX);
    let _room = bodies.share(&endpoint.owner, &endpoint.id).acquire_many(kib.max(1)).await;
    let body = match parts.store.delivery_body(delivery.id).await {
        Ok(Some(body)) => body,
        Ok(None) => return Ok(None),
        // Another attempt would fail in the same way.
        Err(StoreError::Damaged(reason)) => {
            return Ok(Some(Made { end: CallEnd::Refused(reason), of }));
        }
        Err(error) => return Err(error),
    };
    // No call is made for a deleted endpoint, and a new endpoint of that name has other secrets.
    if deployment.incarnation.has_ended() {
        return Ok(None);
    }
    let span = parts.tracer.child(delivery.trace.as_ref(), SpanKind::Client);
    let trace = span.as_ref().map(OpenSpan::context).or_else(|| delivery.trace.clone());
    let (now, id) = (parts.clock.now(), delivery.webhook_id());
    let call = WebhookCall {
        owner: endpoint.owner.clone(),
        endpoint: endpoint.id.clone(),
        url: delivery.url.clone(),
        timestamp_s: now.as_millis() / 1_000,
        signature: endpoint.webhook_secrets.sign(&id, now, body.as_bytes()),
        trace: trace.filter(|_| endpoint.settings.propagate_traces),
        body: body.as_bytes().clone(),
        id,
    };
    let end = parts.sender.send(call).await;
    if let Some(span) = span {
        record(span, delivery, &end);
    }
    Ok(Some(Made { end, of }))
}

/// Records the span of a call. The URL may hold secrets, so the span has its host and port only.
fn record(span: OpenSpan, delivery: &Delivery, end: &CallEnd) {
    let mut attributes: Attributes = vec![
        ("http.request.method", "POST".into()),
        ("messaging.system", "gristmill".into()),
        ("messaging.destination.name", delivery.endpoint.as_str().into()),
        ("messaging.message.id", delivery.job.to_string().into()),
        ("gristmill.attempt", (delivery.attempts + 1).into()),
    ];
    if let Some((host, port)) = delivery.receiver() {
        attributes.extend([("server.address", host.into()), ("server.port", port.into())]);
    }
    let error = match end {
        CallEnd::Answered(status) => {
            attributes.push(("http.response.status_code", (*status).into()));
            (!(200..300).contains(status)).then(|| format!("answered {status}"))
        }
        CallEnd::Failed(error) | CallEnd::Refused(error) => Some(error.clone()),
    };
    span.end("webhook".to_owned(), attributes, error);
}

/// Decides what follows an attempt's end, by the number of attempts so far.
fn judge(end: CallEnd, attempts: u32) -> (DeliveryOutcome, AfterAttempt) {
    let failed = if attempts < ATTEMPTS {
        AfterAttempt::TryAgain { after_ms: RETRY_INTERVAL_MS }
    } else {
        AfterAttempt::GiveUp
    };
    match end {
        CallEnd::Answered(status @ 200..=299) => {
            (DeliveryOutcome { status: Some(status), error: None }, AfterAttempt::Delivered)
        }
        CallEnd::Answered(status) => {
            let error = match status {
                300..=399 => format!("answered {status}; redirects are not followed"),
                _ => format!("answered {status}"),
            };
            (DeliveryOutcome { status: Some(status), error: Some(error) }, failed)
        }
        CallEnd::Failed(error) => (DeliveryOutcome { status: None, error: Some(error) }, failed),
        CallEnd::Refused(error) => {
            (DeliveryOutcome { status: None, error: Some(error) }, AfterAttempt::GiveUp)
        }
    }
}

/// Counts an attempt for the endpoint of its job, and not for the next one with the same name.
fn count_outcome(incarnation: &EndpointIncarnation, next: AfterAttempt) {
    let end = match next {
        AfterAttempt::Delivered => WebhookEnd::Delivered,
        AfterAttempt::TryAgain { .. } => WebhookEnd::Failed,
        AfterAttempt::GiveUp => WebhookEnd::GivenUp,
    };
    if !incarnation.has_ended() {
        incarnation.metrics().webhook_ended(end);
    }
}

/// The URL may hold secrets, so the log has its host only.
fn log_outcome(delivery: &Delivery, report: &DeliveryOutcome, next: AfterAttempt) {
    let (job, target) = (delivery.job, delivery.target());
    let error = report.error.as_deref().unwrap_or_default();
    match next {
        AfterAttempt::Delivered => debug!(%job, target, "webhook of job {job} delivered"),
        AfterAttempt::TryAgain { .. } => {
            debug!(%job, target, error, "webhook of job {job} to {target} failed: {error}");
        }
        AfterAttempt::GiveUp => {
            info!(%job, target, error, "webhook of job {job} to {target} given up: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_200_to_299_counts_and_only_the_third_failure_is_the_last() {
        let next = |end, attempts| judge(end, attempts).1;
        let again = AfterAttempt::TryAgain { after_ms: 10_000 };
        for status in [200, 204, 299] {
            assert_eq!(next(CallEnd::Answered(status), 3), AfterAttempt::Delivered);
        }
        for status in [100, 199, 300, 302, 404, 410, 500] {
            assert_eq!(next(CallEnd::Answered(status), 1), again);
            assert_eq!(next(CallEnd::Answered(status), 2), again);
            assert_eq!(next(CallEnd::Answered(status), 3), AfterAttempt::GiveUp);
        }
        assert_eq!(next(CallEnd::Failed(String::new()), 2), again);
        assert_eq!(next(CallEnd::Refused(String::new()), 1), AfterAttempt::GiveUp);
    }
}
