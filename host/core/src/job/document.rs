//! The status document of a job as JSON text, for clients and webhooks. Payloads are copied into it
//! unchanged.

use gristmill_wire::queue::StatusDocument;

use crate::job::payload::Json;
use crate::job::record::JobRecord;
use crate::time::Timestamp;

/// The document without its payloads, and without the closing brace: `,"output":…}` or `}` follows.
pub fn open_document(
    record: &JobRecord,
    read_at: Timestamp,
    reason: Option<&str>,
    run_at: Option<&str>,
) -> Vec<u8> {
    let id = record.id.text();
    let head = StatusDocument {
        id: id.as_str().into(),
        status: record.status,
        delay_time: record.delay_ms(read_at),
        execution_time: record.execution_ms(read_at),
        worker_id: record.worker.as_ref().map(|worker| worker.as_str().into()),
        retries: (record.retries > 0).then_some(record.retries),
        error: record.error.as_deref().map(Into::into),
        exhausted: record.is_exhausted,
        reason: reason.map(Into::into),
        run_at: run_at.map(Into::into),
        tags: record
            .tags
            .as_ref()
            .map(|tags| tags.iter().map(|(key, value)| (key.into(), value.into())).collect()),
        input: None,
        output: None,
    };
    // Room for the head of most jobs and for a small payload behind it.
    let mut text = Vec::with_capacity(512);
    serde_json::to_writer(&mut text, &head).expect("the head is plain data");
    text.pop(); // the closing brace
    text
}

/// The body of a webhook: the status document of a job that has ended, its `input`, and the
/// `webhook` itself.
pub fn webhook_body(
    record: &JobRecord,
    output: Option<&Json>,
    input: &Json,
    webhook: &str,
) -> Vec<u8> {
    let mut text =
        open_document(record, record.finished_at.unwrap_or(record.created_at), None, None);
    text.reserve(output.map_or(0, Json::len) + input.len() + webhook.len() + 64);
    let url = serde_json::to_vec(webhook).expect("a string is JSON");
    let fields = [
        ("output", output.map(|output| output.as_bytes().as_ref())),
        ("input", Some(input.as_bytes().as_ref())),
        ("webhook", Some(url.as_slice())),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            text.extend_from_slice(b",\"");
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b"\":");
            text.extend_from_slice(value);
        }
    }
    text.push(b'}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::billing::usage::JobUsage;
    use crate::id::{EndpointId, JobId, ShardId, SubmissionKind};
    use crate::job::state::{Claim, JobStatus};
    use crate::job::tags::Tags;

    #[test]
    fn a_webhook_carries_the_status_the_payloads_and_its_own_address() {
        let id = JobId::generate(SubmissionKind::Async, ShardId(0));
        let at = Timestamp::from_millis;
        let mut record = JobRecord {
            id,
            endpoint: EndpointId::new("e").unwrap(),
            status: JobStatus::Completed,
            created_at: at(900),
            queued_at: at(1_000),
            started_at: Some(at(1_010)),
            finished_at: Some(at(1_030)),
            worker: None,
            retries: 0,
            error: None,
            blocked: None,
            is_exhausted: false,
            progress: None,
            attempt: Claim(1),
            chunk_count: 0,
            result_bytes: 0,
            chunks_delivered: 0,
            past_attempts: Vec::new(),
            usage: JobUsage::default(),
            tags: None,
            trace: None,
            purge_at: Timestamp::NEVER,
        };
        let json = |text: &str| Json::parse(text.to_owned()).unwrap();
        let input = json(r#"{"z":9007199254740993, "a":1.0}"#);
        let body = webhook_body(&record, Some(&json("[1e2]")), &input, "http://h/?q=\"");
        assert_eq!(
            String::from_utf8(body).unwrap(),
            format!(
                r#"{{"id":"{id}","status":"COMPLETED","delayTime":10,"executionTime":20,"output":[1e2],"input":{{"z":9007199254740993, "a":1.0}},"webhook":"http://h/?q=\""}}"#
            )
        );
        record.status = JobStatus::Failed;
        record.retries = 2;
        record.error = Some("no\n".to_owned());
        record.is_exhausted = true;
        record.tags = Tags::new([("b", "\""), ("a", "é")]).unwrap();
        let body = webhook_body(&record, None, &json("null"), "http://h/");
        assert_eq!(
            String::from_utf8(body).unwrap(),
            format!(
                r#"{{"id":"{id}","status":"FAILED","delayTime":10,"executionTime":20,"retries":2,"error":"no\n","exhausted":true,"tags":{{"a":"é","b":"\""}},"input":null,"webhook":"http://h/"}}"#
            )
        );
    }
}
