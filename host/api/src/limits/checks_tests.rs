//! Threads of large bodies and pages, and the turns of keys and owners that have several.

use std::sync::mpsc;

use futures::FutureExt as _;
use gristmill_core::access::key::{NewKey, Scope};
use gristmill_core::id::OwnerId;
use gristmill_core::time::Timestamp;

use super::*;

fn key(owner: &str) -> ApiKey {
    let (name, owner) = (owner.to_owned(), OwnerId::new(owner).unwrap());
    let new =
        NewKey { name, owner, scopes: vec![Scope::Submit], endpoints: None, expires_at: None };
    ApiKey::generate(new, Timestamp::from_millis(0)).0
}

fn body(bytes: usize) -> Bytes {
    Bytes::from(vec![b' '; bytes])
}

#[tokio::test]
async fn large_bodies_are_checked_apart_and_no_more_at_one_time_than_there_are_turns() {
    let checks = Checks(Pages(Permits::for_work(1)));
    let (small, large) = (body(INLINE_BYTES_MAX), body(INLINE_BYTES_MAX + 1));
    let key = key("a");
    let here = std::thread::current().id();
    let thread = |_: &Bytes| Ok(std::thread::current().id());
    assert_eq!(checks.run(&key, &small, thread).await.unwrap(), here);
    assert_ne!(checks.run(&key, &large, thread).await.unwrap(), here);

    let (release, held) = mpsc::channel::<()>();
    let mut first = Box::pin(checks.run(&key, &large, move |_| {
        // Until the sender is dropped.
        let _ = held.recv();
        Ok(1)
    }));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(checks.run(&key, &large, |_| Ok(2)));
    assert!(second.as_mut().now_or_never().is_none());
    let third = checks.run(&key, &small, |_| Ok(3)).await;
    assert_eq!(third.unwrap(), 3, "small bodies do not wait");
    // A call that ends keeps its turn until its check is done.
    drop(first);
    tokio::task::yield_now().await;
    assert!(second.as_mut().now_or_never().is_none());
    drop(release);
    assert_eq!(second.await.unwrap(), 2);
}

#[tokio::test]
async fn a_check_does_not_wait_for_all_bodies_of_another_key() {
    let checks = Checks(Pages(Permits::for_work(1)));
    let large = body(INLINE_BYTES_MAX + 1);
    let (greedy, other) = (key("a"), key("b"));
    let (release, held) = mpsc::channel::<()>();
    let (done, order) = mpsc::channel();
    let mut held = Some(held);
    let mut calls = vec![];
    for (key, number) in [(&greedy, 0), (&greedy, 1), (&greedy, 2), (&other, 3)] {
        let (done, held) = (done.clone(), held.take());
        let mut call = Box::pin(checks.run(key, &large, move |_| {
            let _ = held.map(|held| held.recv());
            done.send(number).map_err(|_| ApiError::bad_request("nobody listens"))
        }));
        assert!(call.as_mut().now_or_never().is_none());
        calls.push(call);
    }
    drop(release);
    for call in futures::future::join_all(calls).await {
        call.unwrap();
    }
    drop(done);
    assert_eq!(order.iter().collect::<Vec<_>>(), [0, 3, 1, 2]);
}

#[tokio::test]
async fn pages_of_owners_and_their_keys_are_written_in_turn() {
    let pages = Pages(Permits::for_work(1));
    let keys = ["a", "a", "b"].map(key);
    let [greedy, second, other] = &keys;
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (release, held) = mpsc::channel::<()>();
    let mut held = Some(held);
    let mut calls = vec![];
    for (number, caller) in [greedy, greedy, greedy, second, other].into_iter().enumerate() {
        let (order, held) = (order.clone(), held.take());
        let mut call = Box::pin(pages.write(caller, move || {
            let _ = held.map(|held| held.recv());
            order.lock().push(number);
            Ok(())
        }));
        assert!(call.as_mut().now_or_never().is_none());
        calls.push(call);
    }
    drop(release);
    for call in futures::future::join_all(calls).await {
        call.unwrap();
    }
    assert_eq!(*order.lock(), [0, 4, 3, 1, 2]);
}

#[tokio::test]
async fn large_pages_are_written_apart() {
    let pages = Pages::default().of(Arc::new(key("a")));
    let here = std::thread::current().id();
    let thread = || std::thread::current().id();
    let small = pages.write_sized(INLINE_BYTES_MAX, thread).await.unwrap();
    let large = pages.write_sized(INLINE_BYTES_MAX + 1, thread).await.unwrap();
    assert_eq!((small == here, large == here), (true, false));
}

#[tokio::test]
async fn a_check_that_fails_is_the_answer() {
    let checks = Checks::default();
    let (key, large) = (key("a"), body(INLINE_BYTES_MAX + 1));
    let refused = checks.run::<()>(&key, &large, |_| Err(ApiError::bad_request("no"))).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::BadRequest);
}
