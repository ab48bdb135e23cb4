//! Futures that compute, wait or are dropped, and the threads on which they are polled.

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
