//! The status document. It is written by hand, because payloads are copied into it unchanged.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use gristmill_core::document::open_document;
use gristmill_core::jobs::JobDocument;

use super::json_response;
use crate::queue::streaming_body::StreamingBody;

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
    use gristmill_core::id::{EndpointId, JobId, ShardId, Submission, WorkerId};
    use gristmill_core::job::{Claim, JobStatus};
    use gristmill_core::payload::Json;
    use gristmill_core::record::JobRecord;
    use gristmill_core::tags::Tags;
    use gristmill_core::time::Timestamp;
    use gristmill_wire::queue::StatusDocument;
    use http_body_util::BodyExt as _;

    use super::*;

    fn record(status: JobStatus) -> JobRecord {
        let at = |ms| Timestamp::from_millis(ms);
        JobRecord {
            id: JobId::generate(Submission::Async, ShardId(0)),
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
            tags: (status == JobStatus::Failed).then(|| Tags::new([("a", "b")]).unwrap()).flatten(),
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
                let body = body.to_bytes();
                let shown: StatusDocument<'_> = serde_json::from_slice(&body).unwrap();
                assert_eq!(serde_json::to_vec(&shown).unwrap(), body, "no other field");
                assert_eq!(shown.id, document.record.id.to_string());
                assert_eq!(shown.status, status);
                let waits = status == JobStatus::InQueue;
                assert_eq!(
                    (shown.delay_time, shown.execution_time == 0),
                    (if waits { 50 } else { 10 }, waits)
                );
                assert_eq!(shown.worker_id.is_none(), waits);
                assert_eq!(shown.retries, (status == JobStatus::Failed).then_some(1));
                assert_eq!(shown.error, document.record.error.map(Into::into));
                assert_eq!(shown.tags.is_some(), status == JobStatus::Failed);
                assert_eq!(shown.reason, document.waiting_reason.map(Into::into));
                assert_eq!(shown.output.map(|raw| raw.get().to_owned()), output);
            }
        }
    }
}
