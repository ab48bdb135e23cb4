//! Long computations on other threads than those that serve calls: checks of large bodies, pages of
//! lists, and metrics. 20 MB of JSON take about 100 ms when its values are small, during which
//! other calls would not be answered.
//!
//! **Bounds.** Half of the cores check bodies at one time, and half of them write pages. Owners
//! take turns for each of the two, and so do the keys of an owner: a check waits for at most one of
//! each other owner, and not for all the bodies that one key sends. A page takes some milliseconds;
//! a search among the 10,000 images that an owner may have is a page, too, and takes some hundred.
//! The memory of all bodies has [a bound](crate::limits::in_flight) of its own, and a share for
//! each key. **Cost.** Nothing for a body of at most [`INLINE_BYTES_MAX`]; a lock and a change of
//! threads for a larger one, and a change of threads for a page.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use gristmill_core::access::key::ApiKey;
use gristmill_core::sharing::fair_permits::FairPermits;

use crate::answer::error::{ApiError, ErrorCode};

/// Bodies of at most this size are checked, and pages of it written, by the task of their call,
/// within half a millisecond.
const INLINE_BYTES_MAX: usize = 128 << 10;

/// The turns of checks. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Checks(Arc<FairPermits>);

impl Default for Checks {
    fn default() -> Self {
        Self(Arc::new(FairPermits::half_of_cores()))
    }
}

impl Checks {
    /// The findings of `check` on the body of a caller.
    ///
    /// # Errors
    /// Those of `check`; 500 when it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        caller: &ApiKey,
        body: &Bytes,
        check: impl FnOnce(&Bytes) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if body.len() <= INLINE_BYTES_MAX {
            return check(body);
        }
        let (share, body) = (self.0.share_of_key(&caller.owner, &caller.id), body.clone());
        let checked = async move {
            let turn = share.acquire().await;
            apart(turn, move || check(&body)).await
        };
        checked.boxed().await
    }
}

/// The turns of pages, and of searches. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Pages(Arc<FairPermits>);

impl Default for Pages {
    fn default() -> Self {
        Self(Arc::new(FairPermits::half_of_cores()))
    }
}

/// The pages of one caller.
#[derive(Debug, Clone)]
pub(crate) struct CallerPages {
    pages: Pages,
    caller: Arc<ApiKey>,
}

impl CallerPages {
    /// Runs `write` for a page that is made from so many bytes: a small one is written by the task
    /// of its call, and a larger one as by [`Pages::write`].
    ///
    /// # Errors
    /// 500 when `write` panics.
    pub(crate) async fn write_sized<T: Send + 'static>(
        &self,
        bytes: usize,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        if bytes <= INLINE_BYTES_MAX {
            return Ok(write());
        }
        self.pages.write(&self.caller, || Ok(write())).await
    }
}

impl Pages {
    /// Those of one caller.
    pub(crate) fn of(&self, caller: Arc<ApiKey>) -> CallerPages {
        CallerPages { pages: self.clone(), caller }
    }

    /// Runs `write`, and returns its page for a caller.
    ///
    /// # Errors
    /// Those of `write`; 500 when it panics.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        caller: &ApiKey,
        write: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.0.share_of_key(&caller.owner, &caller.id).acquire().await;
        apart(turn, write).await
    }
}

/// Runs `work` on another thread; `turn` is dropped at its end.
///
/// # Errors
/// Those of `work`; 500 when it panics.
pub(crate) async fn apart<T: Send + 'static>(
    turn: impl Send + 'static,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let working = tokio::task::spawn_blocking(move || {
        // Held until the work is done, even if the call ends before.
        let _turn = turn;
        work()
    });
    working.await.unwrap_or_else(|error| {
        Err(ApiError::new(ErrorCode::Internal, format!("a part of the call failed: {error}")))
    })
}

#[cfg(test)]
mod tests {
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
        let checks = Checks(Arc::new(FairPermits::few(1)));
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
        let checks = Checks(Arc::new(FairPermits::few(1)));
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
        let pages = Pages(Arc::new(FairPermits::few(1)));
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
}
