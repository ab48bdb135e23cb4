//! The part of a request in the distributed trace of its job.

use gristmill_core::trace::{Attributes, OpenSpan, TraceContext};
use gristmill_egress::Destination;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::error::EgressError;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The open span of a request. It ends with the head of the answer. Dropped before, it ends with an
/// error: the handler, or the end of the attempt, has ended the request.
#[derive(Debug)]
pub(super) struct RequestSpan {
    context: TraceContext,
    /// `None` when it has ended.
    span: Option<OpenSpan>,
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
        Self { context: span.context(), span: Some(span), method: method.clone(), attributes }
    }

    /// The context for the receiver.
    pub(super) fn context(&self) -> TraceContext {
        self.context.clone()
    }

    /// Records the span with the status of the answer, or the reason why there is none.
    pub(super) fn end(mut self, answer: Result<StatusCode, &EgressError>) {
        let error = match answer {
            Ok(status) => {
                self.attributes.push(("http.response.status_code", status.as_u16().into()));
                (status.as_u16() >= 400).then(|| format!("answered {}", status.as_u16()))
            }
            Err(error) => Some(error.to_string()),
        };
        self.record(error);
    }

    fn record(&mut self, error: Option<String>) {
        let Some(span) = self.span.take() else { return };
        // A method is a text of the handler: other texts would make as many names.
        let is_known = matches!(
            self.method.as_str(),
            "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE"
        );
        let name = if is_known { self.method.to_string() } else { "HTTP".to_owned() };
        span.end(name, std::mem::take(&mut self.attributes), error);
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        self.record(Some("the request was ended before its answer".to_owned()));
    }
}

/// Adds the context, unless the handler has set one: its `tracestate` belongs to its own
/// `traceparent` then.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gristmill_core::trace::{Sampler, SpanKind, Tracer};
    use gristmill_test_support::RecordedSpans;
    use url::Url;

    use super::*;

    #[test]
    fn a_span_that_is_dropped_ends_with_an_error_and_is_recorded_once() {
        let recorded = Arc::new(RecordedSpans::default());
        let tracer = Tracer::new(Sampler { follows_parent: true, ratio: 1.0 }, recorded.clone());
        let job =
            TraceContext::from_header("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let destination = Destination::of(&Url::parse("http://upstream.example/").unwrap());
        let destination = destination.unwrap();
        let open = || {
            let span = tracer.child(job.as_ref(), SpanKind::Client).unwrap();
            RequestSpan::new(span, &Method::GET, &destination)
        };
        drop(open());
        open().end(Ok(StatusCode::OK));
        let errors: Vec<_> =
            recorded.take().into_iter().map(|span| (span.name, span.error)).collect();
        let ended = "the request was ended before its answer".to_owned();
        let get = || "GET".to_owned();
        assert_eq!(errors, [(get(), Some(ended)), (get(), None)]);
    }
}
