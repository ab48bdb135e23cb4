//! The status document. It is written by hand, because payloads are copied into it unchanged.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use gristmill_core::document::open_document;
use gristmill_core::jobs::JobDocument;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::json_response;
use crate::openapi::schema;
use crate::queue::streaming_body::StreamingBody;

/// The present state of a job. Fields without a value are absent, never null.
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
    /// Milliseconds that the handler has run, or ran, in the last attempt.
    execution_time: u64,
    /// The worker that claimed the job; absent before that.
    #[schema(value_type = String, required = false)]
    worker_id: Option<String>,
    /// How often the job was queued again; absent when 0.
    #[schema(value_type = u32, required = false)]
    retries: Option<u32>,
    /// Why the job is FAILED or TIMED_OUT.
    #[schema(value_type = String, required = false)]
    error: Option<String>,
    /// Why a waiting job does not run.
    #[schema(value_type = String, required = false)]
    reason: Option<String>,
    /// The result; while the job runs, and when it has FAILED, its newest progress value.
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
    json_response(StreamingBody::new(pieces).into_body())
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{EndpointId, JobId, NodeId, Submission, WorkerId};
    use gristmill_core::job::{Claim, JobStatus};
    use gristmill_core::payload::Json;
    use gristmill_core::record::JobRecord;
    use gristmill_core::time::Timestamp;
    use http_body_util::BodyExt as _;

    use super::*;

    fn record(status: JobStatus) -> JobRecord {
        let at = |ms| Timestamp::from_millis(ms);
        JobRecord {
            id: JobId::generate(Submission::Async, NodeId(0)),
            endpoint: EndpointId::new("e").unwrap(),
            status,
            created_at: at(900),
            queued_at: at(1_000),
            started_at: (status != JobStatus::InQueue).then(|| at(1_010)),
            finished_at: status.is_final().then(|| at(1_030)),
            worker: (status != JobStatus::InQueue).then(|| WorkerId::new("w").unwrap()),
            retries: u32::from(status == JobStatus::Failed),
            error: (status == JobStatus::Failed).then(|| "no \"grain\"\n".to_owned()),
            progress: None,
            attempt: Claim(1),
            chunk_count: 0,
            result_bytes: 0,
            chunks_delivered: 0,
            past_attempts: Vec::new(),
            purge_at: Timestamp::NEVER,
        }
    }

    #[tokio::test]
    async fn the_status_document_matches_its_schema() {
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
}
