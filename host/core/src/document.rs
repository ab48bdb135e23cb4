//! The status document of a job as JSON text, for clients and webhooks. Payloads are copied into it
//! unchanged.

use serde::Serialize;

use crate::id::JobId;
use crate::payload::Json;
use crate::record::JobRecord;
use crate::time::Timestamp;

/// The document without its payloads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    id: JobId,
    status: &'static str,
    delay_time: u64,
    execution_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The document without its payloads, and without the closing brace: `,"output":…}` or `}` follows.
pub fn open_document(record: &JobRecord, read_at: Timestamp, reason: Option<&str>) -> Vec<u8> {
    let head = Head {
        id: record.id,
        status: record.status.as_str(),
        delay_time: record.delay_ms(read_at),
        execution_time: record.execution_ms(read_at),
        worker_id: record.worker.as_ref().map(|worker| worker.as_str()),
        retries: record.retries,
        error: record.error.as_deref(),
        reason,
    };
    let mut text = serde_json::to_vec(&head).expect("the head is plain data");
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
    let mut text = open_document(record, record.finished_at.unwrap_or(record.created_at), None);
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
    use crate::id::{EndpointId, NodeId, Submission};
    use crate::job::{Claim, JobStatus};

    #[test]
    fn a_webhook_carries_the_status_the_payloads_and_its_own_address() {
        let id = JobId::generate(Submission::Async, NodeId(0));
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
            progress: None,
            attempt: Claim(1),
            chunk_count: 0,
            result_bytes: 0,
            chunks_delivered: 0,
            past_attempts: Vec::new(),
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
        let body = webhook_body(&record, None, &json("null"), "http://h/");
        assert_eq!(
            String::from_utf8(body).unwrap(),
            format!(
                r#"{{"id":"{id}","status":"FAILED","delayTime":10,"executionTime":20,"retries":2,"error":"no\n","input":null,"webhook":"http://h/"}}"#
            )
        );
    }
}
