//! The answer to a call that does not stream: the handler's bare output.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::BytesMut;
use gristmill_core::job::payload::Json;
use gristmill_core::job::stream::Position;
use gristmill_core::limits::OUTPUT_BYTES_MAX;

use super::error::status_of;
use super::job::OwnedJob;
use crate::answer::error::{ApiError, ErrorCode};
use crate::queue::dto::json_response;

/// Waits for the end. The body is the handler's output or, if it returned nothing, the output of
/// its first chunk.
pub(crate) async fn answer(mut job: OwnedJob) -> Result<Response, ApiError> {
    job.wait_until_completed().await?;
    let returned = job.returned().await?;
    let output = if returned.is_null() { first_chunk(&job).await? } else { None };
    Ok(respond(&output.unwrap_or(returned)))
}

/// An answer with this output, and with the status code that an error object names.
pub(super) fn respond(output: &Json) -> Response {
    let mut response = json_response(Body::from(output.as_bytes().clone()));
    *response.status_mut() = status_of(output);
    response
}

/// The output of the first emit; its parts are joined if it was too large for one chunk.
async fn first_chunk(job: &OwnedJob) -> Result<Option<Json>, ApiError> {
    let mut page = job.chunks(Position::From(0), Duration::ZERO).await?.page;
    let Some(first) = page.chunks.first() else { return Ok(None) };
    let Some(part) = first.part else { return Ok(Some(first.output.clone())) };
    let (mut text, mut next, count) = (BytesMut::new(), 0, u64::from(part.count));
    loop {
        for chunk in page.chunks.iter().take(usize::try_from(count - next).unwrap_or(usize::MAX)) {
            text.extend_from_slice(chunk.output.read::<String>().unwrap_or_default().as_bytes());
        }
        next = page.next();
        if text.len() > OUTPUT_BYTES_MAX {
            let sentence = format!("the first chunk is too large, limit: {OUTPUT_BYTES_MAX} bytes");
            return Err(ApiError::new(ErrorCode::JobFailed, sentence));
        }
        if next >= count {
            return Ok(Some(Json::from_stored(text.freeze())));
        }
        if page.chunks.is_empty() {
            return Err(job.not_found());
        }
        page = job.chunks(Position::From(next), Duration::ZERO).await?.page;
    }
}
