//! Checks of large bodies, apart from the threads that serve calls: 20 MB of JSON take about 100 ms when
//! its values are small, in which nobody else would be answered.
//!
//! **Bounds.** Half of the cores check at one time; further bodies wait for their turn, in their order. The
//! memory of all bodies has [a bound](crate::in_flight) of its own, and a share for each key.
//! **Cost.** Nothing for a body of at most [`HERE_BYTES_MAX`]; for a larger one a change of threads.

use std::sync::Arc;
use std::thread::available_parallelism;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::error::{ApiError, ErrorCode};

/// Bodies of at most so many bytes are checked by the task of their call: in half a millisecond.
const HERE_BYTES_MAX: usize = 128 << 10;

/// The turns of checks. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Checks(Arc<Semaphore>);

impl Default for Checks {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((cores / 2).max(1))))
    }
}

impl Checks {
    /// What `check` makes of the body.
    ///
    /// # Errors
    /// Those of `check`; 500 when it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        body: &Bytes,
        check: impl FnOnce(&Bytes) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if body.len() <= HERE_BYTES_MAX {
            return check(body);
        }
        let turn = self.0.clone().acquire_owned().await;
        let body = body.clone();
        let checking = tokio::task::spawn_blocking(move || {
            // Held until the check is over, though the call may end before.
            let _turn = turn;
            check(&body)
        });
        checking.await.unwrap_or_else(|error| {
            Err(ApiError::new(ErrorCode::Internal, format!("the body was not checked: {error}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn large_bodies_are_checked_apart_and_no_more_at_one_time_than_there_are_turns() {
        let checks = Checks(Arc::new(Semaphore::new(1)));
        let small = Bytes::from(vec![b' '; HERE_BYTES_MAX]);
        let large = Bytes::from(vec![b' '; HERE_BYTES_MAX + 1]);
        let here = std::thread::current().id();
        let thread = |_: &Bytes| Ok(std::thread::current().id());
        assert_eq!(checks.run(&small, thread).await.unwrap(), here);
        assert_ne!(checks.run(&large, thread).await.unwrap(), here);

        let (release, held) = mpsc::channel::<()>();
        let mut first = Box::pin(checks.run(&large, move |_| {
            // Until the sender is dropped.
            let _ = held.recv();
            Ok(1)
        }));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(checks.run(&large, |_| Ok(2)));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(checks.run(&small, |_| Ok(3)).await.unwrap(), 3, "small bodies do not wait");
        // A call that ends gives its turn back no earlier than its check is over.
        drop(first);
        tokio::task::yield_now().await;
        assert_eq!(checks.0.available_permits(), 0);
        drop(release);
        assert_eq!(second.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_check_that_fails_is_the_answer() {
        let large = Bytes::from(vec![b' '; HERE_BYTES_MAX + 1]);
        let checks = Checks::default();
        let refused = checks.run::<()>(&large, |_| Err(ApiError::bad_request("no"))).await;
        assert_eq!(refused.unwrap_err().code(), ErrorCode::BadRequest);
    }
}
