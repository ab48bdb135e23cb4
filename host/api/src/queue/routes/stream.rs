//! `GET /{endpoint}/stream/{job}`: the emitted chunks that no call has delivered yet.

use axum::Extension;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures::FutureExt as _;
use gristmill_core::id::JobId;
use gristmill_core::jobs::stream::{Position, StreamPage};
use gristmill_core::limits::STREAM_WAIT_MS;

use crate::answer::error::ApiError;
use crate::answer::json::json_response;
use crate::event_stream::is_accepted;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::parameters::StreamPosition;
use crate::openapi::refusals::Mistaken;
use crate::openapi::{StreamShape, tag};
use crate::queue::results::Memory;
use crate::queue::streaming_body::StreamingBody;
use crate::queue::{dto, sse, waiting};
use crate::request::query::Query;
use crate::state::ApiState;

/// Returns the emitted chunks that no call has delivered yet.
///
/// The answer is one page of 8 MB at most; with `Accept: text/event-stream` it has all pages, until
/// the job ends. A caller who accepts `application/json` too gets the type with the greater `q`,
/// and of equal ones the first; ranges such as `*/*` do not count.
#[utoipa::path(
    method(get, post), path = "/{endpoint}/stream/{job}", operation_id = "GetStream",
    tag = tag::JOBS, params(StreamPosition), responses(dto::StreamAnswer, Mistaken),
)]
pub(crate) async fn stream(
    Admitted { state, call, .. }: Admitted<Read>,
    Extension(shape): Extension<StreamShape>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let id = call.job()?;
    let endpoint = &call.deployment.endpoint.id;
    let query = Query(query.as_deref().unwrap_or_default());
    let wait = query.wait(STREAM_WAIT_MS)?;
    let position = query.unsigned("from")?.map_or(Position::Undelivered, Position::From);
    let key = call.key_check(&state);
    // An invalid header is refused also where it has no meaning, as the documents of the API say.
    let resumed = sse::resume(&headers)?;
    if is_accepted(&headers) {
        let position = resumed.unwrap_or(position);
        let caller = (call.key.clone(), key);
        return sse::follow(&state, caller, endpoint.clone(), id, position).await;
    }
    let memory = Memory::new(&state.results, &call.key.id);
    let job = (endpoint, id);
    let page = waiting::for_page(&key, &state.jobs, &memory, job, position, wait).await?;
    let page = page.ok_or_else(ApiError::job_not_found)?;
    let bytes = page.page.text_bytes();
    let write = move || (dto::stream_page(shape, &page), page);
    let (text, page) = state.pages.of(call.key.clone()).write_sized(bytes, write).await?;
    let mut response = json_response(page_body(&state, text, id, position, &page));
    let headers = response.headers_mut();
    headers.insert("x-job-status", HeaderValue::from_static(page.status.as_str()));
    headers.insert("x-stream-next", HeaderValue::from(page.page.next()));
    headers.insert("x-stream-attempt", HeaderValue::from(page.page.attempt.0));
    Ok(response)
}

fn page_body(
    state: &ApiState,
    text: Vec<u8>,
    id: JobId,
    position: Position,
    page: &StreamPage,
) -> axum::body::Body {
    let body = StreamingBody::new([text.into()]);
    // A replay does not change the read position of other readers.
    if position != Position::Undelivered || page.page.chunks.is_empty() {
        return body.into_body();
    }
    // The position moves when the connection has taken the page: a reader that disconnected before
    // gets it again.
    let (jobs, next) = (state.jobs.clone(), page.page.end());
    body.on_end(move || {
        let mut marking = Box::pin(async move {
            // The store is closing: then the position is forgotten anyway.
            let _ = jobs.mark_delivered(id, next).await;
        });
        // At once if the store can: the page is not on the wire yet, so the reader's next call sees
        // the new position, however soon it arrives.
        if marking.as_mut().now_or_never().is_none() {
            tokio::spawn(marking);
        }
    })
    .into_body()
}
