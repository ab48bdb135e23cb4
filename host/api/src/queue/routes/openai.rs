//! `POST /{endpoint}/openai/{*rest}`: one call of an OpenAI client, as a job. GET is for the models
//! alone: a link or an image of a web page is a GET too, and must not start jobs.

use axum::extract::{Path, Request};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use gristmill_core::job::policy::PolicyRequest;
use gristmill_core::jobs::operations::{SubmitMode, SubmitRequest};
use gristmill_core::limits::RUN_SYNC_BODY_BYTES_MAX;

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::caller::{Admitted, Submit};
use crate::openapi::tag;
use crate::queue::dto;
use crate::queue::openai::{
    OpenAiError, answer, events, input,
    job::{Client, OwnedJob},
};
use crate::queue::results::Memory;

/// One call of an OpenAI client, as a job.
///
/// Answers with the handler's output alone, or with `"stream":true` with its chunks as events. GET
/// is only for `v1/models` and the paths below it.
#[utoipa::path(
    method(get, post), path = "/{endpoint}/openai/{*rest}", operation_id = "GetOpenAi",
    tag = tag::JOBS, request_body = Object,
    responses((status = 200, description = "What the handler answers", content(
        (serde_json::Value = "application/json"),
        (String = "text/event-stream"),
    ), headers(
        ("X-Job-Id" = String, description = "The job's id"),
        ("X-Request-Id" = String, description = "The same, where OpenAI's clients look for it"),
    )), (status = "default", description = "Any refusal or failure, with its own status code", body = OpenAiError<'_>)),
)]
pub(crate) async fn openai(
    Admitted { state, call, .. }: Admitted<Submit>,
    Path((_, rest)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    if request.method() != Method::POST && !input::is_listing(&rest) {
        return Ok(only_post());
    }
    let (parts, body) = request.into_parts();
    input::check_type(&parts.headers)?;
    let body = call.read_body(&state, &parts, body, RUN_SYNC_BODY_BYTES_MAX).await?;
    let wanted =
        state.checks.run(&call.key, &body.bytes, move |body| input::parse(&rest, body)).await?;
    let submission = SubmitRequest {
        owner: call.key.owner.clone(),
        input: wanted.input,
        policy: PolicyRequest::default(),
        webhook: None,
        s3_config: None,
        mode: SubmitMode::Sync { kept_ms: 0 },
        idempotency: None,
        tags: None,
        trace: call.trace.clone(),
        note: None,
    };
    let key = call.key_check(&state);
    let client = Client {
        key,
        memory: Memory::new(&state.results, &call.key.id),
        pages: state.pages.of(call.key.clone()),
    };
    let job = OwnedJob::submit(state.jobs.clone(), client, call.deployment, submission).await?;
    drop(body); // the job is stored; its body is no longer in flight
    let id = job.id();
    let answer =
        if wanted.is_stream { events::answer(job).await } else { answer::answer(job).await };
    let mut response = answer.into_response();
    dto::add_job_id_header(&mut response, id);
    dto::add_request_id_header(&mut response);
    Ok(response)
}

fn only_post() -> Response {
    let sentence = "GET is for /v1/models under openai; send this call with POST";
    let mut refused = ApiError::new(ErrorCode::MethodNotAllowed, sentence).into_response();
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    refused
}
