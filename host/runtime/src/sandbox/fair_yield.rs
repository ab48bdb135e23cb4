//! Lets other tasks run. A handler that computes yields its thread on every epoch tick, and gets it
//! back when the executor has run its other tasks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Waits until the executor wakes this task again. tokio's `yield_now` ends when it is polled a
/// second time, which can happen at once in a task that also waits for something else: a handler
/// that floods its attempt with progress would keep its thread for ever.
pub(crate) async fn yield_to_all() {
    let yielding = Arc::new(Yield::default());
    let mut is_requested = false;
    poll_fn(|context| {
        yielding.task.register(context.waker());
        if yielding.is_over.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !is_requested {
            is_requested = true;
            yielding.request();
        }
        Poll::Pending
    })
    .await;
}

#[derive(Default)]
struct Yield {
    is_over: AtomicBool,
    task: AtomicWaker,
}

impl Yield {
    /// tokio wakes a yielding task after its timers and its other tasks; on a thread that is not
    /// one of its workers, it wakes it at once.
    fn request(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let polled = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        debug_assert!(polled.is_pending(), "the first poll of a yield is never the last");
    }
}

impl Wake for Yield {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_yield_ends_after_the_other_tasks_however_often_it_is_polled() {
        let has_run = Arc::new(AtomicBool::new(false));
        tokio::spawn({
            let has_run = has_run.clone();
            async move { has_run.store(true, Ordering::Relaxed) }
        });
        let mut yielding = pin!(yield_to_all());
        for _ in 0..1_000 {
            assert!(futures::poll!(yielding.as_mut()).is_pending());
        }
        assert!(!has_run.load(Ordering::Relaxed), "this task has not given its thread away");
        yielding.await;
        assert!(has_run.load(Ordering::Relaxed));
    }
}
