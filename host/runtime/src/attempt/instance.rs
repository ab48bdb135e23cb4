//! One instance of a component, with its store. It runs one job, or several jobs of one endpoint
//! and version if the endpoint reuses instances; between them it is in `idle`.
//!
//! A fault of a handler ends with its instance: an instance that trapped, reached a limit or was
//! stopped runs no further job.

use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::endpoint::{Deployment, Metering};
use gristmill_core::http_call::InstanceName;
use gristmill_core::runtime::{Attempt, AttemptSink};
use wasmtime::component::Instance as Started;
use wasmtime::{Result, Store};

use crate::attempt::names::Name;
use crate::bindings::gristmill::handler::types::Failure;
use crate::compile::component::Prepared;
use crate::components::artifacts::Loaded;
use crate::sandbox::charge::Charge;
use crate::sandbox::deadline::Watch;
use crate::sandbox::state::{State, store};

/// Divisor of the memory limit: an instance that holds more than this part runs no further job, so
/// that a handler with a leak does not fail an innocent job.
const KEPT_MEMORY_PART: u64 = 2;

/// The precision of the fuel of a job that is ended while it computes. The engine counts in a
/// register, and stores the count at each call and return; a loop without either is interrupted
/// each time it has burned this much. The bill of a job that is ended in such a loop, by its
/// deadline, a stop or a trap, lacks at most this amount. Handlers burn it in 0.7 to 5 ms, so the
/// interruption (about 1 µs) costs less than 0.1 %, and most jobs end before the first.
const FUEL_COUNTED_EACH: u64 = 20_000_000;

/// The bytes of a new instance's environment: a copy for WASI, and one for the list that the
/// handler asks for.
fn environment_bytes(deployment: &Deployment) -> u64 {
    let bytes = deployment.environment().map(|(name, value)| name.len() + value.len());
    2 * bytes.sum::<usize>() as u64
}

/// An instance: it exists from before its handler is instantiated until after its last job.
pub(crate) struct Instance {
    store: Store<State>,
    loaded: Arc<Loaded>,
    /// Empty before its first call, during each call, and after a call that did not return.
    started: Option<Started>,
    calls: u32,
    name: Option<Name>,
    /// Dropped after the store, so that its memory and its slot of the pool are free by then.
    charge: Arc<Charge>,
}

impl Instance {
    /// An instance whose handler is still to be instantiated.
    ///
    /// # Errors
    /// When its store cannot be allocated.
    pub(crate) fn new(loaded: Arc<Loaded>, state: State, name: Option<Name>) -> Result<Self> {
        let charge = state.charge.clone();
        let store = store(&loaded.engine.engine, state)?;
        let mut instance = Self { store, loaded, started: None, calls: 0, name, charge };
        if instance.counts_fuel() {
            instance.store.fuel_async_yield_interval(Some(FUEL_COUNTED_EACH))?;
        }
        instance.refuel()?;
        Ok(instance)
    }

    /// Prepares the next attempt.
    ///
    /// # Errors
    /// An error of the engine if it does not count fuel, which no known case causes.
    pub(crate) fn begin(
        &mut self,
        attempt: Attempt<()>,
        sink: Arc<dyn AttemptSink>,
        watch: Arc<Watch>,
    ) -> Result<()> {
        self.store.data_mut().begin(attempt, sink, watch);
        self.refuel()
    }

    /// Gives the attempt its fuel, if the engine counts it.
    fn refuel(&mut self) -> Result<()> {
        if self.counts_fuel() {
            let fuel = self.store.data().fuel_max();
            self.store.set_fuel(fuel)?;
        }
        Ok(())
    }

    fn counts_fuel(&self) -> bool {
        self.loaded.engine.kind.metering == Metering::Fuel
    }

    /// Begins a call with an input of so many bytes: charges it, and the environment of a new
    /// instance.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) async fn charge_start(&mut self, input_bytes: u64) -> Result<()> {
        self.calls += 1;
        let state = self.store.data_mut();
        let environment_bytes = match self.started {
            Some(_) => 0,
            None => environment_bytes(&state.attempt.deployment),
        };
        state.charge_more(input_bytes + environment_bytes).await
    }

    /// The instance, which is made and initialised for the first call. Each call
    /// [returns](Self::returned) it.
    ///
    /// # Errors
    /// A trap, a limit or an exit.
    pub(crate) async fn start(&mut self) -> Result<std::result::Result<Started, Failure>> {
        if let Some(started) = self.started.take() {
            return Ok(Ok(started));
        }
        Ok(self.loaded.component.start(&mut self.store).await?.map_err(|reason| Failure {
            message: format!("the handler could not be initialized: {reason}"),
            details: None,
        }))
    }

    /// Ends a call whose handler has returned. The instance of any other is not called again.
    pub(crate) fn returned(&mut self, started: Started, input_bytes: u64) {
        self.charge.subtract(input_bytes);
        self.started = Some(started);
    }

    /// Its store, and its component with the indices of the exports.
    pub(crate) fn parts(&mut self) -> (&mut Store<State>, &Prepared) {
        (&mut self.store, &self.loaded.component)
    }

    /// How long it waits for another job after this one; `None`: it ends.
    pub(crate) fn waits(&self) -> Option<Duration> {
        let state = self.store.data();
        let kept_max = state.limiter.memory_bytes_max() / KEPT_MEMORY_PART;
        let is_fit =
            self.started.is_some() && !state.retired && state.limiter.memory_bytes() <= kept_max;
        let endpoint = &state.attempt.deployment.endpoint;
        is_fit.then(|| endpoint.reuse_wait(self.calls)).flatten()
    }

    /// The name by which a client may ask for it.
    pub(crate) fn name(&self) -> Option<InstanceName> {
        self.name.as_ref().map(Name::get)
    }

    /// Drops the state of the ended attempt, and what it was charged beyond what the instance has.
    pub(crate) fn end(&mut self) {
        self.store.data_mut().end();
        self.charge.settle();
    }

    /// What it is charged.
    pub(crate) fn charge(&self) -> &Charge {
        &self.charge
    }

    /// The host's state.
    pub(crate) fn state(&self) -> &State {
        self.store.data()
    }

    /// Whether traps include its stack.
    pub(crate) fn explains_traps(&self) -> bool {
        self.loaded.engine.kind.explains_traps
    }

    /// The fuel that its attempt has burned, up to [`FUEL_COUNTED_EACH`] too little if it was ended
    /// in a loop; `None` when the engine does not count.
    pub(crate) fn fuel(&self) -> Option<u64> {
        let left = || self.store.get_fuel().unwrap_or(0);
        self.counts_fuel().then(|| self.store.data().fuel_max().saturating_sub(left()))
    }
}
