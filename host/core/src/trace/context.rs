//! The position of a call in a trace, in the header and on disk.

use std::fmt;

use super::state::TraceState;

/// Bytes of a stored context, without its `tracestate`.
pub const CONTEXT_BYTES: usize = 25;

/// The only flag of the header that the host knows.
const SAMPLED: u8 = 1;

/// The number of a trace; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The number of a span; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

/// The position of a call in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that the next ones are children of.
    pub span: SpanId,
    /// Whether the spans of the trace are recorded.
    pub is_sampled: bool,
    /// The caller's `tracestate`.
    pub state: TraceState,
}

impl TraceId {
    /// A number, unless it is zero.
    pub fn new(number: u128) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// A new trace.
    pub fn random() -> Self {
        Self(rand::random::<u128>().max(1))
    }

    /// Its number.
    pub fn number(self) -> u128 {
        self.0
    }
}

impl SpanId {
    /// A number, unless it is zero.
    pub fn new(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// A new span.
    pub fn random() -> Self {
        Self(rand::random::<u64>().max(1))
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TraceContext {
    /// The context of a `traceparent` header, without a `tracestate`. `None` for a text that is
    /// none: such a header is ignored, as the standard wants. A version after 00 may have further
    /// fields.
    pub fn from_header(text: &str) -> Option<Self> {
        let mut fields = text.trim().split('-');
        let (version, trace, span, flags) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let version = u8::try_from(hex(version, 2)?).ok().filter(|version| *version != 0xff)?;
        if version == 0 && fields.next().is_some() {
            return None;
        }
        Some(Self {
            trace: TraceId::new(hex(trace, 32)?)?,
            span: SpanId::new(u64::try_from(hex(span, 16)?).ok()?)?,
            is_sampled: u8::try_from(hex(flags, 2)?).ok()? & SAMPLED != 0,
            state: TraceState::default(),
        })
    }

    /// The bytes that are stored: the trace, the span, and the flags. The `tracestate` is stored
    /// beside them.
    pub fn to_bytes(&self) -> [u8; CONTEXT_BYTES] {
        let mut bytes = [0; CONTEXT_BYTES];
        bytes[..16].copy_from_slice(&self.trace.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.span.0.to_be_bytes());
        bytes[24] = if self.is_sampled { SAMPLED } else { 0 };
        bytes
    }

    /// The context of stored bytes, without a `tracestate`; `None` when they are no context.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace, rest) = bytes.split_first_chunk::<16>()?;
        let (span, flags) = rest.split_first_chunk::<8>()?;
        let is_sampled = match flags {
            [0] => false,
            [SAMPLED] => true,
            _ => return None,
        };
        let trace = TraceId::new(u128::from_be_bytes(*trace))?;
        let span = SpanId::new(u64::from_be_bytes(*span))?;
        Some(Self { trace, span, is_sampled, state: TraceState::default() })
    }
}

/// The `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        write!(f, "00-{}-{}-{flags:02x}", self.trace, self.span)
    }
}

/// The number of `digits` hexadecimal digits in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != digits || !is_hex {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_is_read_and_written() {
        let context = TraceContext::from_header(HEADER).unwrap();
        assert_eq!(context.to_string(), HEADER);
        assert!(context.is_sampled);
        let not_sampled = HEADER.replace("-01", "-00");
        assert!(!TraceContext::from_header(&not_sampled).unwrap().is_sampled);
        assert_eq!(TraceContext::from_header(&format!(" {HEADER} ")), Some(context.clone()));
        let later = format!("{}-more", HEADER.replacen("00", "cc", 1));
        assert_eq!(TraceContext::from_header(&later), Some(context.clone()), "a later version");
        let flags = HEADER.replace("-01", "-ff");
        assert_eq!(TraceContext::from_header(&flags), Some(context), "flags of a later version");
    }

    #[test]
    fn other_headers_are_ignored() {
        let wrong = [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ];
        for header in wrong {
            assert_eq!(TraceContext::from_header(header), None, "{header}");
        }
    }

    proptest! {
        #[test]
        fn a_context_survives_its_bytes_and_its_header(
            trace in 1_u128.., span in 1_u64.., is_sampled: bool,
        ) {
            let (trace, span) = (TraceId::new(trace).unwrap(), SpanId::new(span).unwrap());
            let context = TraceContext { trace, span, is_sampled, state: TraceState::default() };
            prop_assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context.clone()));
            prop_assert_eq!(TraceContext::from_header(&context.to_string()), Some(context));
        }

        #[test]
        fn any_bytes_and_texts_are_read_without_a_panic(bytes: Vec<u8>, text: String) {
            let _ = TraceContext::from_bytes(&bytes);
            let _ = TraceContext::from_header(&text);
        }
    }
}
