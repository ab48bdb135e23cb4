//! The reasons for interrupting a connection, polled only when one of them has fired.
//!
//! A connection is polled for each packet, and its timer and its two signals fire once in its life.
//! Polling them each time, or asking a `FuturesUnordered` for news, took 1 % of the processor time
//! of a call. **Cost.** One atomic load and a comparison of two pointers for a poll without news.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A future that is polled only after it has woken its task.
pub(super) struct Rarely<F> {
    future: F,
    news: Arc<News>,
    /// Wakes `future`'s own flag.
    waker: Waker,
    /// The waker of the task, as `news` has it.
    task: Option<Waker>,
}

/// Whether the future has something new, and the task that waits for it.
struct News {
    is_new: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_new.store(true, Ordering::Release);
        if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }
}

impl<F: Future + Unpin> Rarely<F> {
    pub(super) fn new(future: F) -> Self {
        let news = Arc::new(News { is_new: AtomicBool::new(true), task: Mutex::new(None) });
        let waker = Waker::from(news.clone());
        Self { future, news, waker, task: None }
    }
}

impl<F: Future + Unpin> Future for Rarely<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, news, waker, task } = &mut *self;
        // Before the flag is read: a wake-up after that must reach this task.
        if !task.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *task = Some(context.waker().clone());
            news.task.lock().clone_from(task);
        }
        if !news.is_new.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        news.is_new.store(false, Ordering::Release);
        Pin::new(future).poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_once_and_then_only_after_a_wake_up() {
        let (send, mut receive) = oneshot::channel::<u8>();
        let mut polls = 0;
        let future = poll_fn(|context| {
            polls += 1;
            Pin::new(&mut receive).poll(context)
        });
        let mut rarely = Rarely::new(future);
        for _ in 0..5 {
            assert!((&mut rarely).now_or_never().is_none());
        }
        send.send(7).unwrap();
        assert_eq!((&mut rarely).now_or_never(), Some(Ok(7)));
        drop(rarely);
        assert_eq!(polls, 2);
    }

    /// The wake-up comes from another thread, while the task moves between others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_up_is_lost() {
        for _ in 0..500 {
            let token = CancellationToken::new();
            let fired = token.clone();
            let wait =
                tokio::spawn(async move { Rarely::new(fired.cancelled_owned().boxed()).await });
            tokio::task::yield_now().await;
            token.cancel();
            tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap().unwrap();
        }
    }
}
