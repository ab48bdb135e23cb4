//! Status documents of all statuses, read back by their schema, with inputs and outputs unchanged.

use gristmill_core::billing::usage::JobUsage;
use gristmill_core::id::{EndpointId, JobId, ShardId, SubmissionKind, WorkerId};
use gristmill_core::job::record::JobRecord;
use gristmill_core::job::state::{Claim, JobStatus};
use gristmill_core::job::tags::Tags;
use gristmill_core::time::Timestamp;
use gristmill_wire::queue::StatusDocument;
use http_body_util::BodyExt as _;

use super::*;

fn record(status: JobStatus) -> JobRecord {
    let at = |ms| Timestamp::from_millis(ms);
    JobRecord {
        id: JobId::generate(SubmissionKind::Async, ShardId(0)),
        endpoint: EndpointId::new("e").unwrap(),
        status,
        created_at: at(900),
        queued_at: at(1_000),
        started_at: (status != JobStatus::InQueue).then(|| at(1_010)),
        finished_at: status.is_final().then(|| at(1_030)),
        worker: (status != JobStatus::InQueue).then(|| WorkerId::new("w").unwrap()),
        retries: u32::from(status == JobStatus::Failed),
        error: (status == JobStatus::Failed).then(|| "no \"grain\"\n".to_owned()),
        blocked: None,
        is_exhausted: false,
        progress: None,
        attempt: Claim(1),
        chunk_count: 0,
        result_bytes: 0,
        chunks_delivered: 0,
        past_attempts: Vec::new(),
        usage: JobUsage::default(),
        tags: (status == JobStatus::Failed).then(|| Tags::new([("a", "b")]).unwrap()).flatten(),
        purge_at: Timestamp::NEVER,
        trace: None,
    }
}

#[tokio::test]
async fn the_status_document_matches_its_schema() {
    for status in JobStatus::ALL {
        for output in [None, Some("[1.0,null]".to_owned()), Some(format!("\"{:32768}\"", 0))] {
            let document = JobDocument {
                record: Box::new(record(status)),
                read_at: Timestamp::from_millis(1_050),
                output: output.clone().map(|text| Json::parse(text).unwrap()),
                waiting_reason: (status == JobStatus::InQueue).then(|| "no worker".to_owned()),
            };
            let body = status_document(&document, None).into_body().collect().await.unwrap();
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

#[tokio::test]
async fn the_input_stands_before_the_output_and_both_are_unchanged() {
    let texts = ["{\"n\": 9007199254740993, \"n\": 1.0}".to_owned(), format!("\"{:32768}\"", 0)];
    for input in &texts {
        for output in &texts {
            let document = JobDocument {
                record: Box::new(record(JobStatus::Failed)),
                read_at: Timestamp::from_millis(1_050),
                output: Some(Json::parse(output.clone()).unwrap()),
                waiting_reason: None,
            };
            let input = Json::parse(input.clone()).unwrap();
            let answer = status_document(&document, Some(&input)).into_body();
            let body = answer.collect().await.unwrap().to_bytes();
            let shown: StatusDocument<'_> = serde_json::from_slice(&body).unwrap();
            assert_eq!(serde_json::to_vec(&shown).unwrap(), body);
            assert_eq!(shown.input.unwrap().get(), input.as_str());
            assert_eq!(shown.output.unwrap().get(), output);
        }
    }
}
