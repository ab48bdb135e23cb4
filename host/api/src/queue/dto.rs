//! The wire shapes of the queue API.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gristmill_core::document::open_document;
use gristmill_core::id::{JobId, WorkerId};
use gristmill_core::job::JobStatus;
use gristmill_core::jobs::{Health, JobDocument};
use gristmill_core::listing::{Cursor, JobPage};
use gristmill_core::payload::Json;
use gristmill_core::record::{Chunk, JobRecord};
use gristmill_core::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::queue::pieces::Pieces;
use crate::wire_time::rfc3339;

/// The answer of `/run`, `/cancel` and `/retry`.
#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
    id: JobId,
    status: &'static str,
}

impl Accepted {
    pub(crate) fn new(id: JobId, status: JobStatus) -> axum::Json<Self> {
        axum::Json(Self { id, status: status.as_str() })
    }
}

/// The status document.
pub(crate) fn status_document(document: &JobDocument) -> Response {
    let reason = document.waiting_reason.as_deref();
    let mut head = open_document(&document.record, document.read_at, reason);
    let Some(output) = &document.output else {
        head.push(b'}');
        return json_response(Body::from(head));
    };
    head.extend_from_slice(b",\"output\":");
    /// Below this an output is copied behind the head: one write instead of three.
    const COPY_BYTES_MAX: usize = 16 << 10;
    if output.len() <= COPY_BYTES_MAX {
        head.extend_from_slice(output.as_bytes());
        head.push(b'}');
        return json_response(Body::from(head));
    }
    let pieces = [head.into(), output.as_bytes().clone(), Bytes::from_static(b"}")];
    json_response(Pieces::new(pieces).into_body())
}

/// A 200 with a body that is JSON.
pub(crate) fn json_response(body: Body) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body).into_response()
}

/// Writes one element of a stream: `{"output":…,"metrics":{…,"stream_index":n}}`.
pub(crate) fn write_chunk(into: &mut Vec<u8>, index: u64, chunk: &Chunk) {
    into.extend_from_slice(b"{\"output\":");
    into.extend_from_slice(chunk.output.as_bytes());
    into.extend_from_slice(b",\"metrics\":");
    write_metrics(into, index, chunk.metrics.as_ref());
    if let Some(part) = chunk.part {
        let text = format!(",\"part\":{},\"parts\":{}", part.index, part.count);
        into.extend_from_slice(text.as_bytes());
    }
    into.push(b'}');
}

/// The handler's metrics with `stream_index` added, unless the handler has set it.
fn write_metrics(into: &mut Vec<u8>, index: u64, metrics: Option<&Json>) {
    #[derive(serde::Deserialize)]
    struct Probe<'a> {
        #[serde(borrow)]
        stream_index: Option<&'a RawValue>,
    }
    let text = metrics.map_or("{}", Json::as_str);
    let has_index = text.contains("stream_index")
        && serde_json::from_str::<Probe<'_>>(text).is_ok_and(|probe| probe.stream_index.is_some());
    let without_brace = match text.strip_suffix('}') {
        Some(start) if !has_index => start,
        Some(_) | None => {
            into.extend_from_slice(text.as_bytes());
            return;
        }
    };
    into.extend_from_slice(without_brace.as_bytes());
    if without_brace.trim_end() != "{" {
        into.push(b',');
    }
    into.extend_from_slice(format!("\"stream_index\":{index}}}").as_bytes());
}

/// The health report.
#[derive(Debug, Serialize)]
pub(crate) struct HealthReport {
    jobs: JobsReport,
    workers: WorkersReport,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JobsReport {
    completed: u64,
    failed: u64,
    in_progress: u64,
    in_queue: u64,
    retried: u64,
}

#[derive(Debug, Serialize)]
struct WorkersReport {
    idle: u64,
    initializing: u64,
    ready: u64,
    running: u64,
    throttled: u64,
    unhealthy: u64,
}

impl From<Health> for HealthReport {
    fn from(Health { jobs, workers }: Health) -> Self {
        Self {
            jobs: JobsReport {
                completed: jobs.completed,
                failed: jobs.failed,
                in_progress: jobs.in_progress,
                in_queue: jobs.in_queue,
                retried: jobs.retried,
            },
            workers: WorkersReport {
                idle: workers.idle,
                initializing: workers.initializing,
                ready: workers.idle,
                running: workers.running,
                throttled: workers.throttled,
                unhealthy: workers.unhealthy,
            },
        }
    }
}

/// A page of `/requests`.
#[derive(Debug, Serialize)]
pub(crate) struct RequestList {
    requests: Vec<RequestSummary>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestSummary {
    id: JobId,
    status: &'static str,
    created_at: String,
    delay_time: u64,
    execution_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<WorkerId>,
}

impl RequestList {
    pub(crate) fn new(page: &JobPage, read_at: Timestamp) -> Self {
        let summary = |job: &JobRecord| RequestSummary {
            id: job.id,
            status: job.status.as_str(),
            created_at: rfc3339(job.created_at),
            delay_time: job.delay_ms(read_at),
            execution_time: job.execution_ms(read_at),
            worker_id: job.worker.clone(),
        };
        Self {
            requests: page.jobs.iter().map(summary).collect(),
            cursor: page.next.map(|Cursor(place)| place.to_string()),
        }
    }
}

/// The queue purge result.
#[derive(Debug, Serialize)]
pub(crate) struct Purged {
    pub(crate) removed: u64,
    pub(crate) status: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_index_joins_the_handlers_metrics() {
        let cases = [
            (None, r#"{"stream_index":4}"#),
            (Some("{}"), r#"{"stream_index":4}"#),
            (Some("{ }"), r#"{ "stream_index":4}"#),
            (Some(r#"{"a":1}"#), r#"{"a":1,"stream_index":4}"#),
            (Some(r#"{"stream_index":9}"#), r#"{"stream_index":9}"#),
            (Some(r#"{"a":"stream_index"}"#), r#"{"a":"stream_index","stream_index":4}"#),
        ];
        for (metrics, expected) in cases {
            let metrics = metrics.map(|text| Json::parse(text).unwrap());
            let mut text = Vec::new();
            write_metrics(&mut text, 4, metrics.as_ref());
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}
