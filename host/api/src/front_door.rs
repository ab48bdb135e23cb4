//! What every call of the queue API passes before its route: the key, the endpoint, the rate
//! limit and the cap on calls at one time, in this order. The body has not been touched then.
//!
//! Limits count per key owner, endpoint and operation. A place among the calls at one time is
//! held until the last byte of the answer has been taken, or the connection is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use gristmill_core::endpoint::Deployment;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::key::ApiKey;
use hyper::body::{Frame, SizeHint};

use crate::auth::{self, Form};
use crate::error::ApiError;
use crate::rate_limit::{Operation, Place};
use crate::state::ApiState;

/// A call that was let in.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The caller's key.
    pub(crate) key: Arc<ApiKey>,
    /// The endpoint in the path.
    pub(crate) deployment: Arc<Deployment>,
    /// The job in the path, if the text there is a job's id.
    job: Option<JobId>,
}

impl Call {
    /// The job named in the path. Ids are opaque to clients, so a text that is none is not found.
    pub(crate) fn job(&self) -> Result<JobId, ApiError> {
        self.job.ok_or_else(ApiError::job_not_found)
    }
}

/// Lets a call of `operation` in, or answers for the route.
pub(crate) async fn enter(
    State((state, operation)): State<(ApiState, Operation)>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let key = auth::identify(request.headers(), request.extensions(), &state, Form::BearerOrBare)?;
    let path = path.map_err(|_| ApiError::not_found("the path is not UTF-8"))?;
    let part = |wanted| path.iter().find_map(|(name, value)| (name == wanted).then_some(value));
    let text = part("endpoint").unwrap_or_default();
    let not_found = || ApiError::not_found(format!("endpoint `{text}` not found"));
    let id = EndpointId::new(text).map_err(|_| not_found())?;
    auth::require(&key, operation.scope(), Some(&id))?;
    let deployment = state.catalog.deployment(&id).ok_or_else(not_found)?;
    let running = || state.workers.counts(&id).running;
    let place = state.limiter.enter(&key.owner, &id, operation, running)?;
    let job = part("job").and_then(|text| text.parse().ok());
    request.extensions_mut().insert(Call { key, deployment, job });
    let response = next.run(request).await;
    Ok(match place {
        Some(place) => response.map(|body| Body::new(HeldBody { body, _place: place })),
        None => response,
    })
}

/// A body that holds a place until it has been sent.
struct HeldBody {
    body: Body,
    _place: Place,
}

impl hyper::body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
