//! One attempt: the call of an instance's handler, and its usage.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use gristmill_core::runtime::{AttemptReport, Usage};

use crate::attempt::instance::Instance;
use crate::attempt::outcome::{CallEnd, attempt_end};
use crate::attempt::stack::stack;
use crate::sandbox::charge::SETTLES_AFTER;

/// Runs the attempt of an instance to its end. Dropping the future stops the handler and frees its
/// state.
pub(crate) async fn run(instance: &mut Instance) -> AttemptReport {
    let started = Instant::now();
    let state = instance.state();
    let (watch, log) = (state.watch.clone(), state.log.clone());
    let (charge, account) = (state.charge.clone(), state.account.clone());
    let deployment = state.attempt.deployment.clone();
    let settles = async {
        tokio::time::sleep(SETTLES_AFTER).await;
        account.seen(&deployment, charge.peak(), None);
        charge.settle();
        std::future::pending::<Infallible>().await
    };
    let mut ready = None;
    let mut cpu = Duration::ZERO;
    let call = Timed { cpu: &mut cpu, call: Box::pin(instance.handle(&mut ready)) };
    let ended = tokio::select! {
        biased;
        result = call => result.map_or_else(CallEnd::Trapped, CallEnd::Returned),
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
        cpu_us: micros(cpu),
        fuel: instance.fuel(),
        memory_bytes_peak: state.limiter.memory_bytes_peak(),
        sent_bytes,
        received_bytes,
        chunks: state.chunks,
        log_lines_dropped,
    };
    let end = attempt_end(ended, state);
    account.seen(&deployment, charge.peak(), Some(&end));
    AttemptReport { end, usage }
}

/// Sums the time in which a future is polled: the processor time of the handler and of the host
/// functions that it calls.
struct Timed<'a, F> {
    cpu: &'a mut Duration,
    call: Pin<Box<F>>,
}

impl<F: Future> Future for Timed<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let started = Instant::now();
        let polled = self.call.as_mut().poll(context);
        *self.cpu += started.elapsed();
        polled
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
