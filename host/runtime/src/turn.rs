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
pub(crate) async fn next_turn() {
    let turn = Arc::new(Turn::default());
    let mut is_asked = false;
    poll_fn(|context| {
        turn.task.register(context.waker());
        if turn.has_come.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !is_asked {
            is_asked = true;
            turn.ask();
        }
        Poll::Pending
    })
    .await;
}

#[derive(Default)]
struct Turn {
    has_come: AtomicBool,
    task: AtomicWaker,
}

impl Turn {
    /// tokio wakes a yielding task after its timers and its other tasks; on a thread that is not
    /// one of its workers, it wakes it at once.
    fn ask(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let is_over = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        debug_assert!(is_over.is_pending(), "the first poll of a yield is never the last");
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_comes_after_the_other_tasks_however_often_it_is_asked_for() {
        let has_run = Arc::new(AtomicBool::new(false));
        tokio::spawn({
            let has_run = has_run.clone();
            async move { has_run.store(true, Ordering::Relaxed) }
        });
        let mut turn = pin!(next_turn());
        for _ in 0..1_000 {
            assert!(futures::poll!(turn.as_mut()).is_pending());
        }
        assert!(!has_run.load(Ordering::Relaxed), "this task has not given its thread away");
        turn.await;
        assert!(has_run.load(Ordering::Relaxed));
    }
}
