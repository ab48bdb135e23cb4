//! One attempt: the call of an instance's handler, and its usage.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use gristmill_core::runtime::{AttemptReport, Usage};

use crate::attempt::instance::Instance;
use crate::attempt::outcome::{CallEnd, attempt_end};
use crate::attempt::stack::stack;
use crate::attempt::work::Work;
use crate::sandbox::charge::SETTLES_AFTER;
use crate::sandbox::deadline::{Halt, Watch};

/// Runs the attempt of an instance to its end. Dropping the future stops the handler and frees its
/// state.
pub(crate) async fn run<W: Work>(instance: &mut Instance, work: W) -> AttemptReport<W::Output> {
    let started = Instant::now();
    let state = instance.state();
    let (watch, log) = (state.watch.clone(), state.log.clone());
    let (charge, account) = (state.charge.clone(), state.account.clone());
    let deployment = state.attempt.deployment.clone();
    let settles = async {
        tokio::time::sleep(SETTLES_AFTER).await;
        account.seen(&deployment, charge.peak());
        charge.settle();
        std::future::pending::<Infallible>().await
    };
    let mut ready = None;
    let call = Box::pin(work.call(instance, &mut ready));
    let call = Timed { watch: &watch, call, is_polled: false };
    let ended = tokio::select! {
        biased;
        ended = call => match ended {
            Ok(result) => result.map_or_else(CallEnd::Trapped, CallEnd::Returned),
            Err(halt) => CallEnd::Halted(halt),
        },
        // The second line of defence: it stops a handler that waits in a host function. The call,
        // and the handler's stack with it, is dropped here.
        halt = watch.ended() => CallEnd::Halted(halt),
        never = settles => match never {},
    };
    let ran = started.elapsed();
    if let CallEnd::Trapped(error) = &ended
        && instance.explains_traps()
    {
        instance.state().sink.trapped(stack(error));
    }
    let egress = instance.state().used_egress().cloned();
    if let Some(egress) = &egress {
        egress.report_end().await;
    }
    let log_lines_dropped = log.finish();
    let instantiate = ready.map_or(ran, |at| at - started);
    let state = instance.state();
    let (sent_bytes, received_bytes) = egress.map_or((0, 0), |egress| egress.traffic());
    let usage = Usage {
        instantiate_us: micros(instantiate),
        run_us: micros(ran.saturating_sub(instantiate)),
        cpu_us: micros(watch.computed()),
        fuel: instance.fuel(),
        memory_bytes_peak: state.limiter.memory_bytes_peak(),
        sent_bytes,
        received_bytes,
        chunks: state.chunks,
        log_lines_dropped,
    };
    let wish = state.wish;
    let end = attempt_end::<W>(ended, state);
    account.ended(&deployment, &end, charge.peak());
    AttemptReport { end, usage, wish }
}

/// Counts the time in which a call is polled. A call that must end has no further poll, which would
/// let it compute until the next tick.
struct Timed<'a, F> {
    watch: &'a Watch,
    call: Pin<Box<F>>,
    is_polled: bool,
}

impl<F: Future> Future for Timed<'_, F> {
    type Output = Result<F::Output, Halt>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if mem::replace(&mut self.is_polled, true)
            && let Some(halt) = self.watch.halt()
        {
            return Poll::Ready(Err(halt));
        }
        let started = Instant::now();
        let polled = self.call.as_mut().poll(context);
        self.watch.add_computed(started.elapsed());
        polled.map(Ok)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
