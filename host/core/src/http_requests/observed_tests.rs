//! The stories of a request, and what is counted and kept of each.

use super::*;

fn begun(newest: &Arc<NewestRequests>, endpoint: &EndpointIncarnation) -> Arc<ObservedRequest> {
    let at = Timestamp::from_millis(7);
    ObservedRequest::begin(newest.clone(), endpoint.clone(), at, "PUT", "/a")
}

fn started(request: &ObservedRequest) {
    request.started(WorkerId::new("w1-v3").unwrap(), 3);
}

#[test]
fn a_request_ends_with_its_last_part_and_is_counted_by_its_end() {
    type Story = fn(&ObservedRequest);
    let stories: [(Story, u16, Option<&str>, [u64; AnswerClass::ALL.len()]); 6] = [
        (|it| it.answered(StatusCode::NOT_FOUND, None), 404, None, [0, 0, 1, 0, 0]),
        (
            |it| {
                started(it);
                it.answered(StatusCode::OK, None);
                it.client_left();
            },
            200,
            Some("client_left"),
            [1, 0, 0, 0, 0],
        ),
        (
            |it| {
                started(it);
                it.answered(StatusCode::OK, None);
                it.broke_off("invalid_answer");
                it.ended(Duration::from_millis(20), Some("handler_failed"));
            },
            200,
            Some("handler_failed"),
            [1, 0, 0, 0, 0],
        ),
        (
            |it| it.answered(StatusCode::TOO_MANY_REQUESTS, Some("rate_limited")),
            429,
            Some("rate_limited"),
            [0, 0, 1, 0, 0],
        ),
        (|it| started(it), 499, Some("client_left"), [0, 0, 0, 0, 1]),
        (|_| {}, 499, Some("client_left"), [0, 0, 0, 0, 1]),
    ];
    for (number, (story, status, code, classes)) in stories.into_iter().enumerate() {
        let (newest, endpoint) = (Arc::default(), EndpointIncarnation::default());
        let request = begun(&newest, &endpoint);
        request.took(3);
        request.gave(4);
        story(&request);
        let other_part = request.clone();
        drop(request);
        assert_eq!(newest.read(&endpoint, 9, |_| true).len(), 0, "{number}: a part has it");
        drop(other_part);
        let kept = newest.read(&endpoint, 9, |_| true);
        let [kept] = &kept[..] else { panic!("{number}: {kept:?}") };
        assert_eq!((kept.status, kept.code), (status, code), "{number}");
        assert_eq!((kept.method(), kept.path()), ("PUT", "/a"), "{number}");
        assert_eq!((kept.bytes_in, kept.bytes_out), (3, 4), "{number}");
        let totals = endpoint.metrics().http().totals();
        assert_eq!(totals.answers, classes, "{number}");
        assert_eq!(totals.whole.count(), 1, "{number}");
        assert_eq!(totals.head.count(), u64::from(status != 499), "{number}");
    }
}

#[test]
fn bytes_of_an_answer_are_billed_once() {
    let (newest, endpoint) = (Arc::default(), EndpointIncarnation::default());
    let request = begun(&newest, &endpoint);
    request.gave(4);
    request.gave(5);
    assert_eq!((request.take_unbilled_out(), request.take_unbilled_out()), (9, 0));
    request.gave(1);
    assert_eq!(request.take_unbilled_out(), 1);
}
