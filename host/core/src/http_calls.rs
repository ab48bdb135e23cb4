//! The calls by which HTTP requests are answered: by a worker of the endpoint, without a queue on
//! the disk.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Request, Response};

use crate::deploy::endpoint::Deployment;
use crate::http_call::{Affinity, HttpBody, NoResponse};
use crate::http_requests::ObservedRequest;
use crate::id::KeyId;
use crate::metrics::failure_reason::FailureReason;
use crate::trace::TraceContext;

/// Has requests answered.
#[async_trait]
pub trait HttpCalls: Send + Sync + std::fmt::Debug {
    /// Returns the head of the answer, with its body as a stream. The request waits for a worker as
    /// long as its endpoint says. The handler is stopped when this future is dropped, or the body
    /// before its end.
    ///
    /// # Errors
    /// [`NoAnswer`]. The request may have had effects, except for [`Busy`](NoAnswer::Busy) and
    /// [`CannotRun`](NoAnswer::CannotRun), and is never repeated here.
    async fn call(&self, wanted: WantedAnswer) -> Result<Response<HttpBody>, NoAnswer>;
}

/// A request to be answered.
#[derive(Debug)]
pub struct WantedAnswer {
    /// The endpoint as the caller was checked for it. Its present deployment answers.
    pub deployment: Arc<Deployment>,
    /// Whose turns the request takes: a key, or the address of a visitor.
    pub caller: KeyId,
    /// The request. Its URI has scheme and authority.
    pub request: Request<HttpBody>,
    /// The instance that the client asks for.
    pub affinity: Option<Affinity>,
    /// Its position in a distributed trace.
    pub trace: Option<TraceContext>,
    /// Notes what happens to it.
    pub observed: Arc<ObservedRequest>,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// No worker was free within the endpoint's time, or too many requests wait.
    #[error("no workers available")]
    Busy,
    /// The component cannot be prepared.
    #[error("the handler cannot be run: {0}")]
    CannotRun(String),
    /// The host stops, or the endpoint was deleted.
    #[error("the request was stopped, since the host stops or the endpoint was deleted")]
    Stopped,
    /// The host had no memory for it.
    #[error("the host had no memory for the request")]
    NoMemory,
    /// The handler's time was over.
    #[error("the handler has not answered within its {0} ms (`executionTimeoutMs`)")]
    TimedOut(u64),
    /// The handler has failed before it answered.
    #[error("{error}")]
    Failed {
        /// The kind of cause.
        reason: FailureReason,
        /// One sentence that names the cause.
        error: String,
    },
    /// The answer has no valid form, or the wanted instance cannot give one.
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
}
