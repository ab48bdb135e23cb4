//! The position of a job in a distributed trace: the bytes of its context, and the text of the
//! `tracestate` beside it.
//!
//! Frames have a field for each. The tables have both in one column, the text behind the context.

use gristmill_core::trace::{CONTEXT_BYTES, TraceContext, TraceState};

/// The stored bytes of a context.
pub(crate) type ContextBytes = [u8; CONTEXT_BYTES];

/// The context of these parts. A damaged one is of no use, and its job is as good without it; a
/// damaged `tracestate` is left out.
pub(crate) fn context(bytes: Option<ContextBytes>, state: Option<&str>) -> Option<TraceContext> {
    let context = TraceContext::from_bytes(&bytes?)?;
    Some(TraceContext { state: TraceState::from_headers(state), ..context })
}

/// The column of these parts.
pub(crate) fn column(bytes: Option<ContextBytes>, state: Option<&str>) -> Option<Vec<u8>> {
    Some([&bytes?[..], state.unwrap_or_default().as_bytes()].concat())
}

/// The parts of a column; none of one that is too short.
pub(crate) fn parts(column: Option<&[u8]>) -> (Option<ContextBytes>, Option<&str>) {
    let Some((bytes, state)) = column.and_then(<[u8]>::split_first_chunk) else {
        return (None, None);
    };
    (Some(*bytes), str::from_utf8(state).ok().filter(|state| !state.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_context_and_the_state() {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let without = TraceContext::from_header(header).unwrap();
        let state = TraceState::from_headers(["congo=t61rcWkgMzE,rojo=1"]);
        for written in [TraceContext { state, ..without.clone() }, without] {
            let column = column(Some(written.to_bytes()), written.state.as_str());
            let (bytes, state) = parts(column.as_deref());
            assert_eq!(context(bytes, state), Some(written));
        }
        assert_eq!(column(None, None), None);
    }

    #[test]
    fn a_damaged_column_is_read_as_far_as_it_is_of_use() {
        assert_eq!(parts(None), (None, None));
        assert_eq!(parts(Some(&[1; 24])), (None, None));
        let not_text = [&[1; 25][..], &[0xff]].concat();
        assert_eq!(parts(Some(&not_text)), (Some([1; 25]), None));
        let not_a_list = [&[1; 25][..], b"no list"].concat();
        let (bytes, state) = parts(Some(&not_a_list));
        let read = context(bytes, state).unwrap();
        assert_eq!((read.is_sampled, read.state), (true, TraceState::default()));
    }
}
