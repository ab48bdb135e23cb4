//! The status document. It is written by hand, because payloads are copied into it unchanged.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use gristmill_core::job::document::open_document;
use gristmill_core::job::payload::Json;
use gristmill_core::jobs::operations::JobDocument;

use crate::answer::json::json_response;
use crate::answer::wire_time::rfc3339;
use crate::queue::streaming_body::StreamingBody;

/// The status document, with the job's input if it is given.
pub(crate) fn status_document(document: &JobDocument, input: Option<&Json>) -> Response {
    let reason = document.waiting_reason.as_deref();
    let run_at = document.record.run_at(document.read_at).map(rfc3339);
    let mut head = open_document(&document.record, document.read_at, reason, run_at.as_deref());
    let payloads = [(&b",\"input\":"[..], input), (b",\"output\":", document.output.as_ref())];
    let payloads = payloads.into_iter().filter_map(|(name, payload)| Some((name, payload?)));
    /// Below this a payload is copied behind the head: one write instead of three.
    const COPY_BYTES_MAX: usize = 16 << 10;
    let mut pieces: Vec<Bytes> = Vec::new();
    for (name, payload) in payloads {
        head.extend_from_slice(name);
        if payload.len() <= COPY_BYTES_MAX {
            head.extend_from_slice(payload.as_bytes());
        } else {
            pieces.extend([std::mem::take(&mut head).into(), payload.as_bytes().clone()]);
        }
    }
    head.push(b'}');
    if pieces.is_empty() {
        return json_response(Body::from(head));
    }
    pieces.push(head.into());
    json_response(StreamingBody::new(pieces).into_body())
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
