//! The part of a request in the distributed trace of its job.

use gristmill_core::trace::{Attributes, OpenSpan, TraceContext};
use gristmill_egress::Destination;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::error::EgressError;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The open span of a request. It ends with the head of the answer.
#[derive(Debug)]
pub(super) struct RequestSpan {
    span: OpenSpan,
    method: Method,
    attributes: Attributes,
}

impl RequestSpan {
    /// The path and the query of a URL may hold secrets, so the span has its host and port only.
    pub(super) fn new(span: OpenSpan, method: &Method, destination: &Destination) -> Self {
        let attributes = vec![
            ("http.request.method", method.as_str().into()),
            ("server.address", destination.host.as_str().into()),
            ("server.port", destination.port.into()),
        ];
        Self { span, method: method.clone(), attributes }
    }

    /// The context for the receiver.
    pub(super) fn context(&self) -> TraceContext {
        self.span.context()
    }

    /// Records the span with the status of the answer, or the reason why there is none.
    pub(super) fn end(self, answer: Result<StatusCode, &EgressError>) {
        let Self { span, method, mut attributes } = self;
        let error = match answer {
            Ok(status) => {
                attributes.push(("http.response.status_code", status.as_u16().into()));
                (status.as_u16() >= 400).then(|| format!("answered {}", status.as_u16()))
            }
            Err(error) => Some(error.to_string()),
        };
        // A method is a text of the handler: other texts would make as many names.
        let is_known = matches!(
            method.as_str(),
            "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE"
        );
        span.end(if is_known { method.to_string() } else { "HTTP".to_owned() }, attributes, error);
    }
}

/// Adds the context, unless the handler has set one: its `tracestate` belongs to its own `traceparent` then.
pub(super) fn add_trace(headers: &mut HeaderMap, trace: Option<&TraceContext>) {
    let Some(trace) = trace.filter(|_| !headers.contains_key(TRACEPARENT)) else { return };
    if let Ok(parent) = HeaderValue::try_from(trace.to_string()) {
        headers.insert(TRACEPARENT, parent);
    }
    let state = trace.state.as_str().and_then(|state| HeaderValue::from_str(state).ok());
    if let Some(state) = state {
        headers.entry(TRACESTATE).or_insert(state);
    }
}
