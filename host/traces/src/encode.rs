//! Spans, and a batch of them, as an OTLP message.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use gristmill_core::trace::{AttributeValue, Span, SpanKind};
use prost::Message as _;

use crate::messages::{
    AnyValue, EncodedResourceSpans, EncodedScopeSpans, KeyValue, OneSpan, Resource, ResourceSpans,
    Scope, ScopeSpans, SpanMessage, Status, Value,
};

const STATUS_ERROR: i32 = 2;
/// The flag of the header `traceparent`.
const SAMPLED: u32 = 1;

/// The bytes of a span. Those of several spans are concatenated.
pub(crate) fn encode_span(span: Span) -> Vec<u8> {
    OneSpan { span: Some(message(span)) }.encode_to_vec()
}

/// The bytes of a batch with these spans.
pub(crate) fn encode(resource: &[(String, String)], spans: &[u8]) -> Vec<u8> {
    let attributes = resource
        .iter()
        .map(|(key, value)| attribute(key.clone(), Value::Text(value.clone())))
        .collect();
    let scope =
        Scope { name: "gristmill".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    // Encoded fields of a message that follow others belong to it as well.
    let mut scope_spans = ScopeSpans { scope: Some(scope), spans: Vec::new() }.encode_to_vec();
    scope_spans.extend_from_slice(spans);
    let resource = Some(Resource { attributes });
    let mut resource_spans = ResourceSpans { resource, scope_spans: Vec::new() }.encode_to_vec();
    resource_spans.extend(EncodedScopeSpans { scope_spans }.encode_to_vec());
    EncodedResourceSpans { resource_spans }.encode_to_vec()
}

/// The bytes as gzip, at its fastest level: a batch must not cost the host more than the spans in
/// it.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("a vector takes all bytes")
}

fn attribute(key: String, value: Value) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { value: Some(value) }) }
}

fn message(span: Span) -> SpanMessage {
    let parent = span.parent.map(|parent| parent.number().to_be_bytes().to_vec());
    let end_us = span.started_us.saturating_add(span.duration_us);
    let attributes = span.attributes.into_iter().map(|(key, value)| {
        let value = match value {
            AttributeValue::Text(text) => Value::Text(text),
            AttributeValue::Number(number) => Value::Number(number),
            AttributeValue::Flag(flag) => Value::Flag(flag),
        };
        attribute(key.to_owned(), value)
    });
    SpanMessage {
        trace_id: span.context.trace.number().to_be_bytes().to_vec(),
        trace_state: span.context.state.as_str().unwrap_or_default().to_owned(),
        span_id: span.context.span.number().to_be_bytes().to_vec(),
        parent_span_id: parent.unwrap_or_default(),
        name: span.name,
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
            SpanKind::Consumer => 5,
        },
        start_ns: span.started_us.saturating_mul(1_000),
        end_ns: end_us.saturating_mul(1_000),
        attributes: attributes.collect(),
        status: span.error.map(|message| Status { message, code: STATUS_ERROR }),
        flags: if span.context.is_sampled { SAMPLED } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::trace::{SpanId, TraceContext, TraceId, TraceState};
    use proptest::prelude::*;

    use super::*;
    use crate::messages::ExportRequest;

    proptest! {
        #[test]
        fn a_span_survives_its_encoding(
            trace in 1_u128.., span in 1_u64.., parent: u64, name: String,
            started_us in 0..(1_u64 << 50), duration_us in 0..(1_u64 << 50),
            text: String, number: i64, flag: bool, error: Option<String>,
            state in prop::option::of("[a-z]{1,20}=[a-z]{1,20}"),
        ) {
            let context = TraceContext {
                trace: TraceId::new(trace).unwrap(),
                span: SpanId::new(span).unwrap(),
                is_sampled: true,
                state: TraceState::from_headers(state.as_deref()),
            };
            let sent = Span {
                context, parent: SpanId::new(parent), name: name.clone(), kind: SpanKind::Consumer,
                started_us, duration_us, error: error.clone(),
                attributes: vec![
                    ("text", AttributeValue::Text(text.clone())),
                    ("number", AttributeValue::Number(number)),
                    ("flag", AttributeValue::Flag(flag)),
                ],
            };
            let spans = [encode_span(sent.clone()), encode_span(sent)].concat();
            let bytes = encode(&[("service.name".to_owned(), "mill".to_owned())], &spans);
            let decoded = ExportRequest::decode(&bytes[..]).unwrap();
            prop_assert_eq!(decoded.resource_spans.len(), 1);
            let batch = &decoded.resource_spans[0];
            prop_assert_eq!(batch.scope_spans.len(), 1);
            prop_assert_eq!(&batch.scope_spans[0].scope.as_ref().unwrap().name, "gristmill");
            prop_assert_eq!(batch.scope_spans[0].spans.len(), 2);
            prop_assert_eq!(&batch.scope_spans[0].spans[0], &batch.scope_spans[0].spans[1]);
            let service = attribute("service.name".to_owned(), Value::Text("mill".to_owned()));
            prop_assert_eq!(&batch.resource.as_ref().unwrap().attributes, &vec![service]);
            let read = &batch.scope_spans[0].spans[0];
            prop_assert_eq!(&read.trace_id, &trace.to_be_bytes());
            prop_assert_eq!(&read.trace_state, &state.unwrap_or_default());
            prop_assert_eq!(&read.span_id, &span.to_be_bytes());
            let parent_bytes = if parent == 0 { vec![] } else { parent.to_be_bytes().to_vec() };
            prop_assert_eq!(&read.parent_span_id, &parent_bytes);
            prop_assert_eq!((&read.name, read.kind, read.flags), (&name, 5, 1));
            let times = (started_us * 1_000, (started_us + duration_us) * 1_000);
            prop_assert_eq!((read.start_ns, read.end_ns), times);
            let attributes = vec![
                attribute("text".to_owned(), Value::Text(text)),
                attribute("number".to_owned(), Value::Number(number)),
                attribute("flag".to_owned(), Value::Flag(flag)),
            ];
            prop_assert_eq!(&read.attributes, &attributes);
            let status = error.map(|message| Status { message, code: 2 });
            prop_assert_eq!(&read.status, &status);
        }
    }
}
