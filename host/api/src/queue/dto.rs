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
use gristmill_core::stream;
use gristmill_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::queue::StreamShape;
use crate::queue::pieces::Pieces;
use crate::wire_time::rfc3339;

/// The answer of `/run`, `/cancel` and `/retry`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Accepted {
    #[schema(value_type = schema::JobId)]
    id: JobId,
    #[schema(value_type = schema::Status)]
    status: &'static str,
}

impl Accepted {
    pub(crate) fn new(id: JobId, status: JobStatus) -> axum::Json<Self> {
        axum::Json(Self { id, status: status.as_str() })
    }
}

/// A job as it is. What is not set is absent, never null.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "the shape of what is written by hand"))]
pub(crate) struct StatusDocument {
    #[schema(value_type = schema::JobId)]
    id: String,
    #[schema(value_type = schema::Status)]
    status: String,
    /// Milliseconds in the queue.
    delay_time: u64,
    /// Milliseconds since the attempt began, or that it took.
    execution_time: u64,
    /// Once a worker has taken the job.
    #[schema(value_type = String, required = false)]
    worker_id: Option<String>,
    /// When above 0: how often the job was queued again.
    #[schema(value_type = u32, required = false)]
    retries: Option<u32>,
    /// When FAILED or TIMED_OUT.
    #[schema(value_type = String, required = false)]
    error: Option<String>,
    /// Why a job that waits is not being run.
    #[schema(value_type = String, required = false)]
    reason: Option<String>,
    /// The result; while the job runs, its newest progress value.
    #[schema(value_type = Value, required = false)]
    output: Option<Box<RawValue>>,
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

/// Names the job in a header, which is there before the body is.
pub(crate) fn tell_id(response: &mut Response, id: JobId) {
    let id = HeaderValue::from_str(&id.to_string()).expect("a job id is a header value");
    response.headers_mut().insert("x-job-id", id);
}

/// A 200 with a body that is JSON.
pub(crate) fn json_response(body: Body) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body).into_response()
}

/// One element of a stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "the shape of what is written by hand"))]
pub(crate) struct StreamChunk {
    /// What the handler emitted.
    #[schema(value_type = Value)]
    output: Box<RawValue>,
    metrics: StreamMetrics,
    /// Of an output that was split: which of its parts this is.
    #[schema(value_type = u32, required = false)]
    part: Option<u32>,
    /// And of how many.
    #[schema(value_type = u32, required = false)]
    parts: Option<u32>,
}

/// The handler's metrics, with the index of the chunk.
#[derive(Deserialize, ToSchema)]
#[cfg_attr(not(test), expect(dead_code, reason = "the shape of what is written by hand"))]
pub(crate) struct StreamMetrics {
    /// A number, unless the handler has set it to something else.
    #[schema(value_type = Value)]
    stream_index: Box<RawValue>,
}

/// An answer of `/stream` under `/sdk/v2`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "the shape of what is written by hand"))]
pub(crate) struct StreamPage {
    /// Final only with the last chunk.
    #[schema(value_type = schema::Status)]
    status: String,
    stream: Vec<StreamChunk>,
}

/// An answer of `/stream` under `/v2`, and as server-sent events.
#[derive(utoipa::IntoResponses)]
#[response(
    status = 200,
    description = "The chunks",
    headers(
        ("X-Job-Status" = schema::Status, description = "Final only with the last chunk"),
        ("X-Stream-Next" = u64, description = "The index of the next chunk"),
    ),
)]
#[expect(dead_code, reason = "the shape of what is written by hand")]
pub(crate) struct StreamAnswer(Vec<StreamChunk>);

/// Writes an answer of `/stream`: a list of [`StreamChunk`], or a [`StreamPage`].
pub(crate) fn stream_page(shape: StreamShape, page: &stream::StreamPage) -> Vec<u8> {
    let stream::StreamPage { status, page, .. } = page;
    let bytes = 64 + page.chunks.iter().map(|chunk| chunk.len() + 64).sum::<usize>();
    let mut text = Vec::with_capacity(bytes);
    if shape == StreamShape::Object {
        text.extend_from_slice(format!("{{\"status\":\"{status}\",\"stream\":").as_bytes());
    }
    text.push(b'[');
    for (index, chunk) in (page.first..).zip(&page.chunks) {
        if index > page.first {
            text.push(b',');
        }
        write_chunk(&mut text, index, chunk);
    }
    text.push(b']');
    if shape == StreamShape::Object {
        text.push(b'}');
    }
    text
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
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthReport {
    jobs: JobsReport,
    workers: WorkersReport,
}

/// Jobs by state; the ended and retried ones since the endpoint was created.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct JobsReport {
    completed: u64,
    failed: u64,
    in_progress: u64,
    in_queue: u64,
    retried: u64,
}

/// Workers by what they do.
#[derive(Debug, Serialize, ToSchema)]
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
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequestList {
    requests: Vec<RequestSummary>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// A job of such a page.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RequestSummary {
    #[schema(value_type = schema::JobId)]
    id: JobId,
    #[schema(value_type = schema::Status)]
    status: &'static str,
    #[schema(value_type = schema::Time)]
    created_at: String,
    delay_time: u64,
    execution_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
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
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Purged {
    pub(crate) removed: u64,
    pub(crate) status: &'static str,
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{EndpointId, NodeId, Submission};
    use gristmill_core::record::{ChunkPage, Part};
    use http_body_util::BodyExt as _;

    use super::*;

    fn record(status: JobStatus) -> JobRecord {
        let at = |ms| Timestamp::from_millis(ms);
        JobRecord {
            id: JobId::generate(Submission::Async, NodeId(0)),
            endpoint: EndpointId::new("e").unwrap(),
            status,
            created_at: at(1_000),
            started_at: (status != JobStatus::InQueue).then(|| at(1_010)),
            finished_at: status.is_final().then(|| at(1_030)),
            worker: (status != JobStatus::InQueue).then(|| WorkerId::new("w").unwrap()),
            retries: u32::from(status == JobStatus::Failed),
            error: (status == JobStatus::Failed).then(|| "no \"grain\"\n".to_owned()),
            progress: None,
            chunk_count: 0,
            chunks_delivered: 0,
            purge_at: Timestamp::NEVER,
        }
    }

    #[tokio::test]
    async fn the_status_document_is_what_its_schema_says() {
        for status in JobStatus::ALL {
            for output in [None, Some("[1.0,null]".to_owned()), Some(format!("\"{:32768}\"", 0))] {
                let document = JobDocument {
                    record: record(status),
                    read_at: Timestamp::from_millis(1_050),
                    output: output.clone().map(|text| Json::parse(text).unwrap()),
                    waiting_reason: (status == JobStatus::InQueue).then(|| "no worker".to_owned()),
                };
                let body = status_document(&document).into_body().collect().await.unwrap();
                let shown: StatusDocument = serde_json::from_slice(&body.to_bytes()).unwrap();
                assert_eq!(shown.id, document.record.id.to_string());
                assert_eq!(shown.status, status.as_str());
                let waits = status == JobStatus::InQueue;
                assert_eq!(
                    (shown.delay_time, shown.execution_time == 0),
                    (if waits { 50 } else { 10 }, waits)
                );
                assert_eq!(shown.worker_id.is_none(), waits);
                assert_eq!(shown.retries, (status == JobStatus::Failed).then_some(1));
                assert_eq!(shown.error, document.record.error);
                assert_eq!(shown.reason, document.waiting_reason);
                assert_eq!(shown.output.map(|raw| raw.get().to_owned()), output);
            }
        }
    }

    #[test]
    fn a_stream_is_what_its_schema_says() {
        let chunk = |metrics: Option<&str>, part| Chunk {
            output: Json::parse("{\"a\":1}").unwrap(),
            metrics: metrics.map(|text| Json::parse(text.to_owned()).unwrap()),
            part,
        };
        let part = Part { index: 1, count: 3 };
        let chunks = vec![chunk(None, None), chunk(Some("{\"tokens\":4}"), Some(part))];
        let page = stream::StreamPage {
            status: JobStatus::InProgress,
            error: None,
            page: ChunkPage { first: 7, chunks },
        };
        let list = stream_page(StreamShape::Array, &page);
        let list: Vec<StreamChunk> = serde_json::from_slice(&list).unwrap();
        let object = stream_page(StreamShape::Object, &page);
        let object: StreamPage = serde_json::from_slice(&object).unwrap();
        assert_eq!(object.status, "IN_PROGRESS");
        for [first, second] in
            [list, object.stream].map(|list| <[_; 2]>::try_from(list).ok().unwrap())
        {
            assert_eq!((first.part, first.parts), (None, None));
            assert_eq!((second.part, second.parts), (Some(1), Some(3)));
            assert_eq!(first.metrics.stream_index.get(), "7");
            assert_eq!(second.metrics.stream_index.get(), "8");
            assert_eq!([first, second].map(|c| c.output.get().to_owned()), ["{\"a\":1}"; 2]);
        }
    }

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
