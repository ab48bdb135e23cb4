//! Selects the threads that an attempt computes on. An attempt that has computed for longer than
//! [`SHORT_COMPUTE_MAX`] moves to threads of a lower priority, if there are any. The operating
//! system preempts these as soon as a brief job can run, even inside the handler or a host
//! function. The cost for brief jobs is two readings of the clock in each poll.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Most handlers compute for less than this in total. A handler that never ends reaches it after
/// five ticks.
const SHORT_COMPUTE_MAX: Duration = Duration::from_millis(10);

/// Runs a future here while it is brief, and then on the threads for lengthy ones. `None` when
/// those threads have ended.
pub(crate) async fn run<F>(future: F, low_priority_threads: Option<&Handle>) -> Option<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let Some(low_priority_threads) = low_priority_threads else { return Some(future.await) };
    let future = Some(Box::pin(future));
    match (Measured { future, computed: Duration::ZERO }).await {
        Ok(output) => Some(output),
        Err(future) => AbortOnDropHandle::new(low_priority_threads.spawn(future)).await.ok(),
    }
}

/// A future that returns itself when it has computed for too long.
struct Measured<F> {
    future: Option<Pin<Box<F>>>,
    computed: Duration,
}

impl<F: Future> Future for Measured<F> {
    type Output = Result<F::Output, Pin<Box<F>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut future = self.future.take().expect("not polled after its end");
        let started = Instant::now();
        let polled = future.as_mut().poll(context);
        self.computed += started.elapsed();
        match polled {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if self.computed > SHORT_COMPUTE_MAX => Poll::Ready(Err(future)),
            Poll::Pending => {
                self.future = Some(future);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    use super::*;

    /// Counts its polls on the threads for lengthy futures.
    struct LowPriorityThreads(Option<Runtime>);

    impl LowPriorityThreads {
        fn start() -> Self {
            let mut threads = Builder::new_multi_thread();
            Self(Some(threads.worker_threads(1).thread_name("slow").build().unwrap()))
        }

        async fn run<F: Future<Output: Send> + Send + 'static>(&self, future: F) -> F::Output {
            run(future, self.0.as_ref().map(Runtime::handle)).await.unwrap()
        }
    }

    impl Drop for LowPriorityThreads {
        fn drop(&mut self) {
            // Dropping it here would wait for its threads, which async code may not do.
            self.0.take().unwrap().shutdown_background();
        }
    }

    fn is_slow() -> bool {
        std::thread::current().name() == Some("slow")
    }

    async fn compute(ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
        yield_now().await;
    }

    #[tokio::test]
    async fn a_future_that_computes_for_long_moves_to_other_threads() {
        let threads = LowPriorityThreads::start();
        let seen = threads.run(async {
            let mut seen = vec![];
            for _ in 0..3 {
                seen.push(is_slow());
                compute(6).await;
            }
            seen
        });
        // A thread that sleeps for too long may make the second turn slow already.
        let seen = seen.await;
        assert_eq!((seen.first(), seen.last()), (Some(&false), Some(&true)), "{seen:?}");
        assert!(seen.is_sorted(), "{seen:?}");
    }

    #[tokio::test]
    async fn a_future_that_only_waits_keeps_its_priority() {
        let threads = LowPriorityThreads::start();
        let waits = threads.run(async {
            tokio::time::sleep(SHORT_COMPUTE_MAX * 3).await;
            is_slow()
        });
        assert!(!waits.await);
    }

    #[tokio::test]
    async fn a_dropped_future_runs_nowhere() {
        let threads = LowPriorityThreads::start();
        let alive = Arc::new(());
        let computing = threads.run({
            let alive = alive.clone();
            async move {
                let _held = alive;
                loop {
                    compute(1).await;
                }
            }
        });
        let given_up = tokio::time::timeout(SHORT_COMPUTE_MAX * 10, computing).await;
        assert!(given_up.is_err());
        while Arc::strong_count(&alive) > 1 {
            yield_now().await;
        }
    }
}
