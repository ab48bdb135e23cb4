//! Deadlines of a connection on a paused clock, the preface of HTTP/2, and bodies that are awaited.

use super::*;
use crate::addresses::{AddressBound, Addresses, AllBound};
use crate::call_origin::PeerAddress;

const IDLE: Duration = Duration::from_secs(75);

#[tokio::test(start_paused = true)]
async fn a_connection_is_bounded_only_while_there_is_no_call() {
    let activity = Arc::new(Mutex::new(Activity::new()));
    let started = Instant::now();
    let deadline = || activity.lock().deadline(IDLE).map(|at| at - started);
    assert_eq!(deadline(), Some(IDLE));
    tokio::time::advance(Duration::from_secs(1)).await;
    activity.lock().came(b"G");
    tokio::time::advance(Duration::from_secs(1)).await;
    activity.lock().came(b"G");
    assert_eq!(deadline(), Some(Duration::from_secs(1) + HEAD_WAIT), "from the first byte");
    let call = Call::begin(&activity, Version::HTTP_11);
    activity.lock().came(b"G");
    assert_eq!(deadline(), None);
    tokio::time::advance(IDLE * 2).await;
    drop(call);
    assert_eq!(deadline(), Some(Duration::from_secs(2) + IDLE * 3), "from the call's end");
    // On HTTP/2 a client may send a ping.
    drop(Call::begin(&activity, Version::HTTP_2));
    activity.lock().came(b"G");
    assert_eq!(deadline(), Some(Duration::from_secs(2) + IDLE * 3));
    activity.lock().ends_since = Some(started);
    assert_eq!(deadline(), Some(Duration::from_secs(2) + IDLE * 2 + END_WAIT));
}

#[tokio::test(start_paused = true)]
async fn a_whole_preface_of_http_2_is_not_the_begin_of_a_head() {
    let settings = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let byte_by_byte: Vec<&[u8]> = PREFACE.chunks(1).collect();
    let cases: [(&[&[u8]], bool); 8] = [
        (&[PREFACE], true),
        (&[&settings], true),
        (&byte_by_byte, true),
        (&[&PREFACE[..23], &settings[23..], b"x"], true),
        (&[&PREFACE[..23]], false),
        (&[&PREFACE[..23], b"x", &PREFACE[23..]], false),
        (&[b"P", PREFACE], false),
        (&[b"GET / HTTP/1.1\r\n", PREFACE], false),
    ];
    for (pieces, is_preface) in cases {
        let mut activity = Activity::new();
        for piece in pieces {
            activity.came(piece);
        }
        let expected = if is_preface { IDLE } else { HEAD_WAIT };
        let left = activity.deadline(IDLE).map(|at| at - Instant::now());
        assert_eq!(left, Some(expected), "{pieces:?}");
    }
}

#[tokio::test]
async fn few_answers_to_calls_without_a_key_wait_for_bodies() {
    let bound = AddressBound { connections_max: 9, is_for_loopback: true };
    let all = AllBound { connections_max: 16, bytes_max: 1 << 20 };
    let account = Addresses::new(bound, all).admit(PeerAddress([192, 0, 2, 1].into()));
    let activity = Arc::new(Mutex::new(Activity::new()));
    let charged = || {
        let mut call = Call::begin(&activity, Version::HTTP_2);
        call.charge = Some(account.charge(1).unwrap());
        call
    };
    let mut calls: Vec<_> = (0..=RESTS_MAX).map(|_| charged()).collect();
    let waiting = calls.iter_mut().filter_map(|call| call.begin_rest().then_some(()));
    assert_eq!(waiting.count(), RESTS_MAX);
    assert!(Call::begin(&activity, Version::HTTP_2).begin_rest(), "it has a key");
    calls[0].end_rest();
    assert!(calls[RESTS_MAX].begin_rest());
    drop(calls);
    assert_eq!(activity.lock().rests, 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_to_be_taken_in_time() {
    let activity = Arc::new(Mutex::new(Activity::new()));
    let left = || activity.lock().deadline(IDLE).map(|at| at - Instant::now());
    let mut call = Call::begin(&activity, Version::HTTP_11);
    call.hand_over(BYTES_PER_SECOND_MIN as usize);
    assert_eq!(left(), Some(TAKE_WAIT));
    tokio::time::advance(Duration::from_secs(29)).await;
    call.taken();
    assert_eq!(left(), None, "the handler may take its time");
    tokio::time::advance(IDLE).await;
    call.hand_over(BYTES_PER_SECOND_MIN as usize);
    assert_eq!(left(), Some(Duration::from_secs(3)), "of 30 s, and one for each 16 KiB");
    drop(call);
    assert_eq!(left(), Some(IDLE));
}
