//! Pieces of answers on HTTP/1 and HTTP/2: sizes, small answers, and an owner's streams.

use hyper::Version;
use parking_lot::Mutex;

use super::*;
use crate::activity::Activity;

#[tokio::test]
async fn a_large_answer_is_handed_over_in_pieces() {
    use http_body_util::{BodyExt as _, Full};

    // HTTP/2 holds the last piece until the client has room for it.
    let sizes = [
        (
            Version::HTTP_11,
            [PIECE_BYTES, PIECE_BYTES + 1 - SMALL_ANSWER_BYTES, SMALL_ANSWER_BYTES],
            0,
        ),
        (Version::HTTP_2, [PIECE_BYTES, PIECE_BYTES + 1 - END_BYTES, END_BYTES], 1),
    ];
    for (version, sizes, last_unread) in sizes {
        let activity = Arc::new(Mutex::new(Activity::new()));
        let whole = Bytes::from(vec![7; 2 * PIECE_BYTES + 1]);
        let call = Call::begin(&activity, version);
        let mut body = CountedBody::new(Full::new(whole), call, Holding::Whole(None));
        let mut left = 2 * PIECE_BYTES + 1;
        for (bytes, unread) in sizes.into_iter().zip([1, 1, last_unread]) {
            left -= bytes;
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece.len(), bytes);
            assert_eq!(body.size_hint().exact(), Some(left as u64));
            assert_eq!(activity.lock().unread_answers.len(), unread);
        }
        assert!(body.is_end_stream());
        drop(body);
        let activity = activity.lock();
        assert_eq!((activity.calls, activity.unread_answers.len()), (0, 0));
    }
}

#[tokio::test]
async fn small_answers_count_beside_others_of_their_connection() {
    use http_body_util::{BodyExt as _, Full};

    let response_budget = Arc::new(ResponseBudget::default());
    let given_up = CancellationToken::new();
    let begin = |activity, version, bytes: usize| {
        let holding = Holding::Pieces {
            response_budget: response_budget.clone(),
            owner: None,
            given_up: given_up.clone(),
            held: None,
        };
        let answer = Full::new(Bytes::from(vec![7; bytes]));
        CountedBody::new(answer, Call::begin(activity, version), holding)
    };
    let counts = |body: &CountedBody<_>| matches!(&body.holding, Holding::Pieces { held, .. } if held.is_some());
    let activity = Arc::new(Mutex::new(Activity::new()));
    let mut bodies: Vec<_> =
        [60 << 10, 5 << 10, 4 << 10].map(|bytes| begin(&activity, Version::HTTP_2, bytes)).into();
    for (body, expected) in bodies.iter_mut().zip([false, true, false]) {
        body.frame().await.unwrap().unwrap();
        assert_eq!(counts(body), expected);
    }
    assert_eq!(activity.lock().uncounted_bytes, 64 << 10);
    drop(bodies.remove(0));
    let mut next = begin(&activity, Version::HTTP_2, 60 << 10);
    next.frame().await.unwrap().unwrap();
    assert!(!counts(&next), "the first one has been read");
    let mut other = begin(&Arc::new(Mutex::new(Activity::new())), Version::HTTP_11, 64 << 10);
    other.frame().await.unwrap().unwrap();
    assert!(!counts(&other), "an HTTP/1 connection has one answer");
    drop((bodies, next));
    assert_eq!(activity.lock().uncounted_bytes, 0);
}

#[tokio::test]
async fn the_pieces_of_a_stream_count_for_the_owner_who_reads_it() {
    use gristmill_core::sharing::tenancy::Tenancy;
    use http_body_util::{BodyExt as _, Full};

    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    let response_budget = Arc::new(ResponseBudget::new(tenancy));
    let owner = OwnerId::new("a").unwrap();
    let [slower, given_up] = std::array::from_fn(|_| CancellationToken::new());
    let _share = response_budget.reserve_piece(192 << 20, Some(&owner), &slower);
    let holding = Holding::Pieces {
        response_budget,
        owner: Some(owner),
        given_up: given_up.clone(),
        held: None,
    };
    let call = Call::begin(&Arc::new(Mutex::new(Activity::new())), Version::HTTP_11);
    let piece = Bytes::from(vec![7; PIECE_BYTES]);
    let mut body = CountedBody::new(Full::new(piece), call, holding);
    body.frame().await.unwrap().unwrap();
    assert!(slower.is_cancelled(), "the owner's share was taken");
    assert!(!given_up.is_cancelled());
}
