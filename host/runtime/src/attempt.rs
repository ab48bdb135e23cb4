//! One attempt: a fresh store and instance, the call, and what it used.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use gristmill_core::endpoint::Metering;
use gristmill_core::runtime::{AttemptReport, Usage};
use wasmtime::{Result, Store};

use crate::artifacts::Loaded;
use crate::bindings::exports::gristmill::handler::run::{Error, Job};
use crate::end::{CallEnd, ReportExt as _, attempt_end};
use crate::stack::stack;
use crate::state::{State, store};

/// Runs an attempt to its end. When this returns, or is dropped, nothing of it is left.
pub(crate) async fn run(loaded: Arc<Loaded>, state: State) -> AttemptReport {
    let started = Instant::now();
    let counts_fuel = loaded.metering == Metering::Fuel;
    let (watch, log) = (state.watch.clone(), state.log.clone());
    let fuel_max = state.fuel_max();
    let mut store = match store(&loaded.engine.engine, state, counts_fuel) {
        Ok(store) => store,
        Err(error) => return AttemptReport::failed(crate::component::causes(&error)),
    };
    let mut times = Times::default();
    let mut cpu = Duration::ZERO;
    let call = Box::pin(call(&loaded, &mut store, &mut times));
    let call = Timed { cpu: &mut cpu, call };
    let ended = tokio::select! {
        biased;
        result = call => result.map_or_else(CallEnd::Trapped, CallEnd::Returned),
        // The second line of defence: it reaches a handler that waits in a host function. The
        // call is dropped here, and with it the handler's stack.
        halt = watch.ended() => CallEnd::Halted(halt),
    };
    let ran = started.elapsed();
    if let CallEnd::Trapped(error) = &ended
        && loaded.engine.kind.explains_traps
    {
        store.data().sink.trapped(stack(error));
    }
    let log_lines_dropped = log.finish();
    let instantiate = times.instantiated.map_or(ran, |at| at - started);
    let usage = Usage {
        instantiate_us: micros(instantiate),
        run_us: micros(ran.saturating_sub(instantiate)),
        cpu_us: micros(cpu),
        fuel: counts_fuel.then(|| fuel_max.saturating_sub(store.get_fuel().unwrap_or(0))),
        memory_bytes_peak: store.data().limiter.memory_bytes_peak(),
        chunks: store.data().chunks,
        log_lines_dropped,
    };
    AttemptReport { end: attempt_end(ended, store.data()), usage }
}

/// When what began.
#[derive(Debug, Default)]
struct Times {
    instantiated: Option<Instant>,
}

async fn call(
    loaded: &Loaded,
    store: &mut Store<State>,
    times: &mut Times,
) -> Result<Result<String, Error>> {
    let attempt = &store.data().attempt;
    let job = Job { id: attempt.job.to_string(), input: attempt.input.as_str().to_owned() };
    let handler = loaded.pre.instantiate_async(&mut *store).await?;
    times.instantiated = Some(Instant::now());
    handler.gristmill_handler_run().call_handle(&mut *store, &job).await
}

/// Sums the time that a future spends being polled: the handler's processor time, with that of
/// the host functions that it calls.
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
