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
use gristmill_core::sharing::permits::Permits;

use crate::answer::error::{ApiError, ErrorCode};

/// Bodies of at most this size are checked, and pages of it written, by the task of their call,
/// within half a millisecond.
const INLINE_BYTES_MAX: usize = 128 << 10;

/// The turns of checks, which are other ones than those of pages. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checks(Pages);

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
        let body = body.clone();
        self.0.write(caller, move || check(&body)).boxed().await
    }
}

/// The turns of pages, and of searches. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Pages(Permits);

impl Default for Pages {
    fn default() -> Self {
        Self(Permits::half_of_cores())
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
#[path = "checks_tests.rs"]
mod tests;
