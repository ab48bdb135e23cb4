//! The answer to a call that does not stream: the handler's bare output.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::BytesMut;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::jobs::stream::Position;
use gristmill_core::limits::OUTPUT_BYTES_MAX;

use super::error::status_of;
use super::job::OwnedJob;
use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::json::json_response;

/// Waits for the end. The body is the handler's output or, if it returned nothing, the output of
/// its first emit.
pub(crate) async fn answer(mut job: OwnedJob) -> Result<Response, ApiError> {
    job.wait_until_completed().await?;
    let returned = job.returned().await?;
    let emitted = if returned.is_null() { first_emit(&job).await? } else { None };
    let output = emitted.unwrap_or(returned);
    let status = status(&job, &output).await?;
    Ok(respond(status, &output))
}

/// The status code for an output of this job, which may be large.
pub(super) async fn status(job: &OwnedJob, output: &Json) -> Result<StatusCode, ApiError> {
    let output = output.clone();
    job.work_on(output.as_bytes().len(), move || status_of(&output)).await
}

/// An answer with this output.
pub(super) fn respond(status: StatusCode, output: &Json) -> Response {
    let mut response = json_response(Body::from(output.as_bytes().clone()));
    *response.status_mut() = status;
    response
}

/// The output of the first emit. Its chunks are joined if it was too large for one.
async fn first_emit(job: &OwnedJob) -> Result<Option<Json>, ApiError> {
    let mut next = job.chunks(Position::From(0), Duration::ZERO).await?;
    let Some(first) = next.page.chunks.first().cloned() else { return Ok(None) };
    let mut emit = FirstEmit { first, count: 1, joined: BytesMut::new() };
    let mut read = 1;
    loop {
        let (bytes, status) = (next.page.text_bytes(), next.status);
        let add = move || {
            let chunks = &next.page.chunks;
            let goes_on = chunks.iter().skip(read).all(|chunk| emit.add(chunk));
            (emit, goes_on && !chunks.is_empty())
        };
        let goes_on;
        (emit, goes_on) = job.work_on(bytes, add).await?;
        // Otherwise another emit has begun, or the page is the last one of the job, which has
        // ended.
        let may_continue = goes_on && !status.is_final();
        if emit.joined.len() > OUTPUT_BYTES_MAX {
            let sentence = format!("the first chunk is too large, limit: {OUTPUT_BYTES_MAX} bytes");
            return Err(ApiError::new(ErrorCode::JobFailed, sentence));
        }
        if !may_continue {
            return emit.output().map(Some).ok_or_else(|| job.not_found());
        }
        next = job.chunks(Position::From(emit.count), Duration::ZERO).await?;
        read = 0;
    }
}

/// The chunks of the first emit.
struct FirstEmit {
    first: Chunk,
    /// Number of its chunks so far.
    count: u64,
    /// Empty with one chunk; then the JSON text, without the second quotation mark of a string.
    joined: BytesMut,
}

impl FirstEmit {
    /// Adds the next chunk of the stream. False if it belongs to another emit, which begins without
    /// an index or with the index 0.
    fn add(&mut self, chunk: &Chunk) -> bool {
        if chunk.part.is_none_or(|part| u64::from(part.index) != self.count) {
            return false;
        }
        if self.count == 1 {
            if self.first.part.is_none() {
                self.joined.extend_from_slice(b"\"");
            }
            let first = self.first.clone();
            self.join(&first);
        }
        self.join(chunk);
        self.count += 1;
        true
    }

    fn join(&mut self, chunk: &Chunk) {
        if self.first.part.is_none() {
            // A piece of a string: its content is escaped already.
            let piece = chunk.output.as_str();
            let content = piece.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            self.joined.extend_from_slice(content.unwrap_or_default().as_bytes());
        } else {
            let text = chunk.output.read::<String>().unwrap_or_default();
            self.joined.extend_from_slice(text.as_bytes());
        }
    }

    /// The output; `None` if parts are missing, because the job was deleted meanwhile.
    fn output(self) -> Option<Json> {
        let Self { first, count, mut joined } = self;
        match first.part {
            Some(part) if u64::from(part.count) > count => None,
            None if count == 1 => Some(first.output),
            None => {
                joined.extend_from_slice(b"\"");
                Some(Json::from_stored(joined.freeze()))
            }
            Some(_) => Some(Json::from_stored(joined.freeze())),
        }
    }
}
