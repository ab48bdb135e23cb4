//! Conversion between the messages and the types of the host. Input from another host is checked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_core::catalog::Component;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::WorkerId;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Part};
use gristmill_core::job::retry::RetryWish;
use gristmill_core::job::state::Claim;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptReport, FailureReason, LogLevel, Usage,
};
use gristmill_core::sharing::shares::Level;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::trace::{TraceContext, TraceState};
use tokio_util::sync::CancellationToken;

use crate::messages::{
    Answer, Answered, AttemptName, Call, ChunkMessage, Chunks, End, Failure, How, KeptAttempt,
    LogLine, Prepare, Refusal, RefusalKind, Requested, Start, Stop, UsageMessage, Wish,
};

/// A message that this host cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the other host has sent {0}")]
pub(crate) struct Unusable(String);

fn unusable(what: &str, why: impl std::fmt::Display) -> Unusable {
    Unusable(format!("a malformed {what}: {why}"))
}

fn json(of: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(of).expect("records are JSON").into()
}

/// The JSON value that another host has checked before.
fn value(bytes: Bytes, what: &str) -> Result<Json, Unusable> {
    Json::parse(bytes).map_err(|error| unusable(what, error))
}

/// A value that may be absent.
fn optional(bytes: Bytes, what: &str) -> Result<Option<Json>, Unusable> {
    if bytes.is_empty() { Ok(None) } else { value(bytes, what).map(Some) }
}

/// The message that makes a deployment ready on a runner.
pub(crate) fn prepare(number: u64, deployment: &Deployment, component: &Component) -> Prepare {
    Prepare {
        deployment: number,
        endpoint: json(&*deployment.endpoint),
        template: json(&*deployment.template),
        component: json(component),
    }
}

/// The deployment of such a message. It has no input schema, since inputs are checked before jobs
/// are queued.
pub(crate) fn deployment(message: &Prepare) -> Result<(Arc<Deployment>, Component), Unusable> {
    let Prepare { endpoint, template, component, .. } = message;
    let endpoint: Endpoint =
        serde_json::from_slice(endpoint).map_err(|error| unusable("endpoint", error))?;
    let template: Template =
        serde_json::from_slice(template).map_err(|error| unusable("template", error))?;
    let component = self::component(component)?;
    let deployment = Deployment {
        incarnation: endpoint.new_incarnation(),
        endpoint: Arc::new(endpoint),
        template: Arc::new(template),
        component: Some(component.digest),
        input_schema: None,
        volume: None,
    };
    Ok((Arc::new(deployment), component))
}

/// The records of components.
pub(crate) fn components<'a>(records: impl Iterator<Item = &'a Component>) -> Vec<Bytes> {
    records.map(json).collect()
}

/// A record of a component.
pub(crate) fn component(bytes: &[u8]) -> Result<Component, Unusable> {
    serde_json::from_slice(bytes).map_err(|error| unusable("component", error))
}

pub(crate) fn attempt_name(key: &AttemptKey) -> AttemptName {
    let AttemptKey { job, claim: Claim(claim), worker } = key;
    AttemptName { job: job.to_string(), claim: *claim, worker: worker.to_string() }
}

pub(crate) fn attempt_key(name: AttemptName) -> Result<AttemptKey, Unusable> {
    let AttemptName { job, claim, worker } = name;
    Ok(AttemptKey {
        job: job.parse().map_err(|error| unusable("job id", error))?,
        claim: Claim(claim),
        worker: WorkerId::new(&worker).map_err(|error| unusable("worker id", error))?,
    })
}

/// The keys of these attempts. Those that no store can have given are left out.
pub(crate) fn attempt_keys(names: &[AttemptName]) -> Vec<AttemptKey> {
    names.iter().filter_map(|name| attempt_key(name.clone()).ok()).collect()
}

pub(crate) fn kept_attempt(key: &AttemptKey, deadline: Instant) -> KeptAttempt {
    KeptAttempt { attempt: Some(attempt_name(key)), remaining_ms: millis_until(deadline) }
}

/// The keys of these attempts with their deadlines. Those that no store can have given are left
/// out.
pub(crate) fn kept_attempts(kept: &[KeptAttempt]) -> HashMap<AttemptKey, Instant> {
    let now = Instant::now();
    let read = |one: &KeptAttempt| {
        let key = attempt_key(one.attempt.clone()?).ok()?;
        Some((key, now.checked_add(Duration::from_millis(one.remaining_ms))?))
    };
    kept.iter().filter_map(read).collect()
}

fn millis_until(deadline: Instant) -> u64 {
    let remaining = deadline.saturating_duration_since(Instant::now());
    u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)
}

/// The first message of an attempt.
pub(crate) fn start(deployment: u64, attempt: &Attempt, level: Level, tenancy: &Tenancy) -> Start {
    let Attempt { key, number, input, s3_config, trace, timeout_ms, deadline, .. } = attempt;
    let state = trace.as_ref().and_then(|trace| trace.state.as_str()).unwrap_or_default();
    Start {
        deployment,
        attempt: Some(attempt_name(key)),
        number: *number,
        input: input.as_bytes().clone(),
        s3_config: s3_config.as_deref().map(json).unwrap_or_default(),
        trace: trace.as_ref().map(|of| Bytes::copy_from_slice(&of.to_bytes())).unwrap_or_default(),
        trace_state: state.to_owned(),
        timeout_ms: *timeout_ms,
        remaining_ms: millis_until(*deadline),
        level: level.get().into(),
        several_owners: tenancy.has_several_owners(),
        several_endpoints: tenancy.has_several_endpoints(&attempt.deployment.endpoint.owner),
        calls: tenancy.has_calls(),
    }
}

/// The attempt of such a message.
pub(crate) fn attempt(
    start: Start,
    deployment: Arc<Deployment>,
    stop: CancellationToken,
) -> Result<Attempt, Unusable> {
    let Start { attempt, number, input, s3_config, trace, trace_state, timeout_ms, .. } = start;
    let s3_config = match s3_config.is_empty() {
        true => None,
        false => {
            let read = serde_json::from_slice(&s3_config);
            Some(Arc::new(read.map_err(|error| unusable("object storage", error))?))
        }
    };
    let state = TraceState::from_headers([&*trace_state]);
    let trace = TraceContext::from_bytes(&trace).map(|trace| TraceContext { state, ..trace });
    Ok(Attempt {
        key: attempt_key(attempt.unwrap_or_default())?,
        number,
        deployment,
        input: value(input, "input")?,
        s3_config,
        trace,
        timeout_ms,
        deadline: Instant::now() + Duration::from_millis(start.remaining_ms),
        stop,
    })
}

pub(crate) fn chunks(chunks: Vec<Chunk>) -> Chunks {
    let message = |Chunk { output, metrics, part }| ChunkMessage {
        output: Json::as_bytes(&output).clone(),
        metrics: metrics.as_ref().map(Json::as_bytes).cloned().unwrap_or_default(),
        part: part.map_or(0, |part: Part| part.index),
        parts: part.map_or(0, |part: Part| part.count),
    };
    Chunks { chunks: chunks.into_iter().map(message).collect(), first: 0 }
}

pub(crate) fn chunks_of(message: Chunks) -> Result<Vec<Chunk>, Unusable> {
    let chunk = |ChunkMessage { output, metrics, part: index, parts: count }| {
        Ok(Chunk {
            output: value(output, "chunk")?,
            metrics: optional(metrics, "chunk")?,
            part: Part::of_numbers(index, count),
        })
    };
    message.chunks.into_iter().map(chunk).collect()
}

/// A progress value, or another JSON value.
pub(crate) fn progress(bytes: Bytes) -> Result<Json, Unusable> {
    value(bytes, "progress")
}

pub(crate) fn log_line(level: LogLevel, line: &str) -> LogLine {
    LogLine { level: level.as_str().to_owned(), line: line.to_owned() }
}

/// The level of a line; lines of an unknown level are information.
pub(crate) fn level(message: &LogLine) -> LogLevel {
    let found = LogLevel::ALL.into_iter().find(|level| level.as_str() == message.level);
    found.unwrap_or(LogLevel::Info)
}

pub(crate) fn requested(end: RequestEnd, took_us: u64) -> Requested {
    Requested { end: end.as_str().to_owned(), took_us }
}

/// The end of a request, and its microseconds; an unknown end is a failure.
pub(crate) fn request_end(Requested { end, took_us }: &Requested) -> (RequestEnd, u64) {
    let found = RequestEnd::ALL.into_iter().find(|known| known.as_str() == end);
    (found.unwrap_or(RequestEnd::Failed), *took_us)
}

pub(crate) fn call(number: u64, call: HandlerCall, waits: bool) -> Call {
    let HandlerCall { endpoint, input, idempotency_key, job } = call;
    let (input, job) = (input.as_bytes().clone(), job.map(|id| id.to_string()).unwrap_or_default());
    Call { number, endpoint, input, idempotency_key, waits, job }
}

/// The call of a handler; its input is checked as that of any call.
pub(crate) fn handler_call(message: Call) -> Result<HandlerCall, Unusable> {
    let Call { endpoint, input, idempotency_key, job, .. } = message;
    let input = value(input, "input of a call")?;
    Ok(HandlerCall { endpoint, input, idempotency_key, job: job.parse().ok() })
}

pub(crate) fn answer(call: u64, answered: Result<Answered, CallError>) -> Answer {
    let answered = answered.unwrap_or_else(|error| {
        let text = error.to_string();
        let refusal = |kind: RefusalKind, text| Refusal {
            kind: kind.into(),
            text,
            job: String::new(),
            status: String::new(),
        };
        Answered::Error(match error {
            CallError::Denied(_) => refusal(RefusalKind::Denied, text),
            CallError::InvalidRequest(_) => refusal(RefusalKind::InvalidRequest, text),
            CallError::LimitReached(_) => refusal(RefusalKind::LimitReached, text),
            CallError::Timeout(_) => refusal(RefusalKind::Timeout, text),
            CallError::Other(_) => refusal(RefusalKind::Other, text),
            CallError::Failed { id, status, error } => Refusal {
                job: id.to_string(),
                status: status.as_str().to_owned(),
                ..refusal(RefusalKind::Failed, error)
            },
        })
    });
    Answer { call, answered: Some(answered) }
}

/// The error of a refused call.
pub(crate) fn call_error(refusal: Refusal) -> CallError {
    let kind = refusal.kind();
    let Refusal { text, job, status, .. } = refusal;
    match kind {
        RefusalKind::Denied => CallError::Denied(text),
        RefusalKind::InvalidRequest => CallError::InvalidRequest(text),
        RefusalKind::LimitReached => CallError::LimitReached(text),
        RefusalKind::Timeout => CallError::Timeout(text),
        RefusalKind::Other => CallError::Other(text),
        RefusalKind::Failed => match (job.parse(), status.parse()) {
            (Ok(id), Ok(status)) => CallError::Failed { id, status, error: text },
            _ => CallError::Other(text),
        },
    }
}

pub(crate) fn end(report: AttemptReport) -> End {
    let AttemptReport { end, usage, wish } = report;
    let how = match end {
        AttemptEnd::Returned(output) => How::Returned(output.as_bytes().clone()),
        AttemptEnd::Failed { reason, error } => {
            How::Failed(Failure { reason: reason.as_str().to_owned(), error })
        }
        AttemptEnd::DeadlineReached => How::DeadlineReached(Stop {}),
        AttemptEnd::NoMemory => How::NoMemory(Stop {}),
        // A runner neither loses nor leaves the attempts that it runs itself.
        AttemptEnd::Stopped | AttemptEnd::HostLost(_) | AttemptEnd::Left => How::Stopped(Stop {}),
    };
    let Usage {
        instantiate_us,
        run_us,
        cpu_us,
        fuel,
        memory_bytes_peak,
        sent_bytes,
        received_bytes,
        chunks,
        log_lines_dropped,
    } = usage;
    let usage = UsageMessage {
        instantiate_us,
        run_us,
        cpu_us,
        fuel,
        memory_bytes_peak,
        sent_bytes,
        received_bytes,
        chunks,
        log_lines_dropped,
    };
    let wish = wish.map(|wish| match wish {
        RetryWish::Never => Wish::Never(Stop {}),
        RetryWish::After(ms) => Wish::AfterMs(ms),
    });
    End { how: Some(how), usage: Some(usage), wish }
}

pub(crate) fn report(message: End) -> Result<AttemptReport, Unusable> {
    let how = message.how.ok_or_else(|| Unusable("an end of an unknown kind".to_owned()))?;
    let end = match how {
        How::Returned(output) => AttemptEnd::Returned(value(output, "output")?),
        How::Failed(Failure { reason, error }) => {
            let found = FailureReason::ALL.into_iter().find(|known| known.as_str() == reason);
            AttemptEnd::Failed { reason: found.unwrap_or(FailureReason::Host), error }
        }
        How::DeadlineReached(Stop {}) => AttemptEnd::DeadlineReached,
        How::Stopped(Stop {}) => AttemptEnd::Stopped,
        How::NoMemory(Stop {}) => AttemptEnd::NoMemory,
    };
    let UsageMessage {
        instantiate_us,
        run_us,
        cpu_us,
        fuel,
        memory_bytes_peak,
        sent_bytes,
        received_bytes,
        chunks,
        log_lines_dropped,
    } = message.usage.unwrap_or_default();
    let usage = Usage {
        instantiate_us,
        run_us,
        cpu_us,
        fuel,
        memory_bytes_peak,
        sent_bytes,
        received_bytes,
        chunks,
        log_lines_dropped,
    };
    let wish = message.wish.map(|wish| match wish {
        Wish::Never(Stop {}) => RetryWish::Never,
        Wish::AfterMs(ms) => RetryWish::After(ms),
    });
    Ok(AttemptReport { end, usage, wish })
}

impl From<Unusable> for CallError {
    fn from(Unusable(what): Unusable) -> Self {
        Self::Other(what)
    }
}
