//! Futures that compute, wait or are dropped, and the threads on which they are polled.

use std::future::{pending, poll_fn};
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use futures::FutureExt as _;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::attempt::compute_line::tests::endpoint;

const HOUR: Duration = Duration::from_secs(3_600);

/// Counts its polls on the threads for lengthy futures.
struct LowPriorityThreads(Option<Runtime>);

impl LowPriorityThreads {
    fn start() -> Self {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        Self(Some(threads.worker_threads(1).thread_name("slow").build().unwrap()))
    }

    async fn run<F: Future<Output: Send> + Send + 'static>(&self, future: F) -> F::Output {
        run(&ComputeThreads::new(self.0.as_ref().map(|threads| threads.handle().clone())), future)
            .await
    }
}

impl Drop for LowPriorityThreads {
    fn drop(&mut self) {
        // Dropping it here would wait for its threads, which async code may not do.
        self.0.take().unwrap().shutdown_background();
    }
}

async fn run<F: Future<Output: Send> + Send + 'static>(
    threads: &ComputeThreads,
    future: F,
) -> F::Output {
    run_of(threads, "o", future).await
}

async fn run_of<F: Future<Output: Send> + Send + 'static>(
    threads: &ComputeThreads,
    owner: &str,
    future: F,
) -> F::Output {
    let watch = Arc::new(Watch::new(Instant::now() + HOUR, CancellationToken::new()));
    let (mut future, counting) = (Box::pin(future), watch.clone());
    let counted = poll_fn(move |context| {
        let started = Instant::now();
        let polled = future.as_mut().poll(context);
        counting.add_computed(started.elapsed());
        polled
    });
    threads.run(endpoint(owner, "e"), watch, counted).await.unwrap()
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

#[tokio::test]
async fn other_tasks_and_timers_run_between_the_slices_of_attempts() {
    let threads = Arc::new(ComputeThreads::new(None));
    let is_over = Arc::new(AtomicBool::new(false));
    let attempts = (0..10).map(|_| {
        let (threads, is_over) = (threads.clone(), is_over.clone());
        tokio::spawn(async move {
            let computing = async move {
                while !is_over.load(Ordering::Relaxed) {
                    compute(1).await;
                }
            };
            run(&threads, computing).await;
        })
    });
    let attempts: Vec<_> = attempts.collect();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for attempt in attempts {
        attempt.await.unwrap();
    }
}

#[tokio::test]
async fn an_attempt_waits_for_few_polls_of_another_owner() {
    let threads = Arc::new(ComputeThreads::new(None));
    let polls = Arc::new(AtomicU64::new(0));
    // Ends with the number of all polls from its first to its last one.
    let attempt = |owner: &'static str, slices: u32| {
        let (threads, polls) = (threads.clone(), polls.clone());
        tokio::spawn(async move {
            let (mut first, mut left) = (None, slices);
            let computing = poll_fn(move |context| {
                let polls = polls.fetch_add(1, Ordering::Relaxed);
                let first = *first.get_or_insert(polls);
                left -= 1;
                context.waker().wake_by_ref();
                if left == 0 { Poll::Ready(polls - first) } else { Poll::Pending }
            });
            run_of(&threads, owner, computing).await
        })
    };
    let busy: Vec<_> = (0..1_000).map(|_| attempt("busy", 100)).collect();
    while polls.load(Ordering::Relaxed) < 1_000 {
        yield_now().await;
    }
    let waited = attempt("innocent", 10).await.unwrap();
    assert!((9..=2 * 9).contains(&waited), "{waited} polls, ten of them its own");
    for attempt in busy {
        attempt.await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_is_that_of_the_caller() {
    let threads = ComputeThreads::new(None);
    let panics = run(&threads, async { panic!("on purpose") });
    let caught = std::panic::AssertUnwindSafe(panics).catch_unwind().await;
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert_eq!(run(&threads, async { 1 }).await, 1, "the threads go on");
}

#[tokio::test]
async fn attempts_are_dropped_with_the_threads() {
    let alive = Arc::new(());
    {
        let threads = ComputeThreads::new(None);
        let held = alive.clone();
        let mut waits = std::pin::pin!(run(&threads, async move {
            let _held = held;
            pending::<()>().await;
        }));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 2);
    }
    while Arc::strong_count(&alive) > 1 {
        yield_now().await;
    }
}

#[test]
fn first_polls_that_are_not_brief_have_a_part_of_the_time() {
    let polls = FirstPolls::default();
    let at = |micros| polls.started + Duration::from_micros(micros);
    let mut now = 0;
    let mut next = |took: u64| {
        let begins = polls.may_begin(at(now));
        if begins {
            polls.end(at(now), at(now + took));
        }
        now += took;
        begins
    };
    assert!((0..1_000_000).all(|_| next(20)), "brief ones have no bound");
    let begun = (0..3_000).filter(|_| next(2_000)).count();
    assert!((1_000..1_010).contains(&begun), "{begun} of 3,000");
    assert!(!next(2_000) || !next(2_000), "they are ahead of their part");
}
