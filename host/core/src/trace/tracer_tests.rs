//! Decisions of samplers with and without a caller's context, and the spans that they record.

use parking_lot::Mutex;

use super::*;

const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Debug, Default)]
struct Recorded(Mutex<Vec<Span>>);

impl SpanSink for Recorded {
    fn record(&self, span: Span) {
        self.0.lock().push(span);
    }

    fn counts(&self) -> SpanCounts {
        SpanCounts::default()
    }
}

fn tracer(follows_parent: bool, ratio: f64) -> (Tracer, Arc<Recorded>) {
    let sink = Arc::new(Recorded::default());
    (Tracer::new(Sampler { follows_parent, ratio }, sink.clone()), sink)
}

#[test]
fn without_recording_the_callers_context_is_kept() {
    let caller = TraceContext::from_header(HEADER);
    let (kept, span) = Tracer::default().receive(caller.clone());
    assert_eq!(kept, caller);
    assert!(span.is_none());
    assert!(Tracer::default().child(caller.as_ref(), SpanKind::Client).is_none());
}

#[test]
fn the_sampled_flag_of_the_caller_counts() {
    let (tracer, sink) = tracer(true, 0.0);
    let state = TraceState::from_headers(["congo=t61rcWkgMzE"]);
    let caller = TraceContext { state, ..TraceContext::from_header(HEADER).unwrap() };
    let (kept, span) = tracer.receive(Some(caller.clone()));
    let kept = kept.unwrap();
    assert_eq!((kept.trace, &kept.state), (caller.trace, &caller.state));
    assert_ne!(kept.span, caller.span, "the job is a child of the host's span");
    let child = tracer.child(Some(&kept), SpanKind::Consumer).unwrap();
    assert_eq!(child.context().state, caller.state);
    child.end_after(5_000_000, "attempt".to_owned(), vec![("n", 1_u64.into())], None);
    span.unwrap().end("POST".to_owned(), Vec::new(), Some("500".to_owned()));
    let spans = sink.0.lock();
    let [attempt, server] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(attempt.parent, Some(kept.span));
    assert!(attempt.duration_us >= 5_000_000);
    assert!(attempt.started_us + 4_000_000 < server.started_us);
    assert_eq!((server.parent, &server.context), (Some(caller.span), &kept));

    let unsampled = Some(TraceContext { is_sampled: false, ..caller });
    let (kept, span) = tracer.receive(unsampled.clone());
    assert_eq!(kept, unsampled);
    assert!(span.is_none());
    let (kept, span) = tracer.receive(None);
    assert!(kept.is_none() && span.is_none(), "a ratio of 0 records no further trace");
}

#[test]
fn the_ratio_decides_about_the_share_of_traces() {
    let sampled = |ratio: f64| {
        let (tracer, _) = tracer(false, ratio);
        (0..2_000).filter(|_| tracer.receive(None).1.is_some()).count()
    };
    assert_eq!(sampled(0.0), 0);
    assert_eq!(sampled(1.0), 2_000);
    // Some 13 standard deviations around 500.
    assert!((250..750).contains(&sampled(0.25)));
}

#[test]
fn a_sampler_that_does_not_follow_decides_against_the_caller() {
    let (tracer, _) = tracer(false, 0.0);
    let (kept, span) = tracer.receive(TraceContext::from_header(HEADER));
    assert!(span.is_none());
    assert!(!kept.unwrap().is_sampled, "the next hosts must not record it alone");
}
