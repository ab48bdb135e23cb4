//! The trait by which the deliverer makes calls.

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::trace::TraceContext;

/// Makes calls to receivers.
#[async_trait]
pub trait WebhookSender: Send + Sync + std::fmt::Debug {
    /// Makes one call, once. Ends in bounded time, whatever the receiver does, once the lookup of
    /// the receiver's name has had its turn.
    async fn send(&self, call: WebhookCall) -> CallEnd;
}

/// One call, signed.
#[derive(Debug, Clone)]
pub struct WebhookCall {
    /// The owner of the endpoint.
    pub owner: OwnerId,
    /// The endpoint whose job has ended.
    pub endpoint: EndpointId,
    /// The receiver's URL.
    pub url: String,
    /// `webhook-id`: the same for each attempt.
    pub id: String,
    /// `webhook-timestamp`: when this attempt is made, in seconds since the Unix epoch.
    pub timestamp_s: u64,
    /// `webhook-signature`.
    pub signature: String,
    /// `traceparent` and `tracestate`, if the endpoint propagates traces.
    pub trace: Option<TraceContext>,
    /// The body, JSON.
    pub body: Bytes,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// The receiver answered with this status code.
    Answered(u16),
    /// There was no answer; the next attempt may have one.
    Failed(String),
    /// The call must not be made; nothing was connected to.
    Refused(String),
}
