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
#[path = "cpu_priority_tests.rs"]
mod tests;
