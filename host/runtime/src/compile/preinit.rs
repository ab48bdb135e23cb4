//! Initialises a component when it is built: its `init` is called here, and its memory afterwards
//! becomes the initial memory of every instance. For languages whose toolchain does not do this
//! already, as those for Python and JavaScript do.
//!
//! `init` has the surroundings of a job (environment, log, outgoing HTTP), but runs in an engine
//! without a pool, and for [`TIME_MAX`] at most. Values that it reads are frozen: environment,
//! times, random numbers. Handles of the host cannot be frozen, so an `init` that keeps one, such
//! as standard output, is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::Metering;
use gristmill_core::runtime::{Attempt, AttemptSink};
use tokio_util::sync::CancellationToken;
use wasmtime::Store;
use wasmtime::component::{Component, ComponentType, Instance, Lift, TypedFunc, WasmList};
use wasmtime_wizer::{ComponentInstanceState, Wizer};

use crate::compile::component::{RejectedComponent, causes, inspect, prepare};
use crate::egress::Egress;
use crate::engine::{Engines, Kind, Pool, compile_engine};
use crate::sandbox::deadline::Watch;
use crate::sandbox::state::{State, Surroundings, store};
use crate::swap::SwapWatch;

/// How long `init` may run.
pub const TIME_MAX: Duration = Duration::from_mins(1);

/// Why a component cannot be initialized.
#[derive(Debug, thiserror::Error)]
pub enum PreinitError {
    /// It cannot run here at all.
    #[error("{0}")]
    Rejected(String),
    /// It has no `init`.
    #[error(
        "the handler has no `init`: it does not export `gristmill:handler/lifecycle`; in Rust write \
         `handler!(function, init = function)`"
    )]
    NoInit,
    /// `init` returned an error, trapped, or took too long.
    #[error("the handler's `init` failed: {0}")]
    Failed(String),
    /// The snapshot would refer to a handle that does not exist later.
    #[error(
        "the handler's `init` keeps something of the host open, such as standard output, a file or a \
         request; a snapshot cannot hold it: log with the SDK, and close everything that was opened"
    )]
    KeepsHandles,
    /// The component has a structure that cannot be rewritten.
    #[error("the component cannot be rewritten: {0}")]
    Rewrite(String),
}

/// The component with the results of its `init`. The attempt determines the surroundings of `init`.
///
/// # Errors
/// [`PreinitError`].
pub async fn preinit(
    component: &[u8],
    attempt: Attempt<()>,
    sink: Arc<dyn AttemptSink>,
) -> Result<Vec<u8>, PreinitError> {
    // For its error messages, which the rewriter does not have.
    inspect(&engine()?, component)?;
    let rewrite = |error: wasmtime::Error| PreinitError::Rewrite(causes(&error));
    let failed = |error: wasmtime::Error| PreinitError::Failed(causes(&error));
    let mut wizer = Wizer::new();
    wizer.keep_init_func(true);
    let (context, instrumented) = wizer.instrument_component(component).map_err(rewrite)?;
    // With an epoch that advances, so that an endless `init` is stopped.
    let engines =
        Engines::new(1, Pool::OnDemand, false, SwapWatch::of_this_machine()).map_err(failed)?;
    let engine = engines.get(Metering::Epoch).map_err(failed)?;
    let instrumented = Component::new(&engine.engine, &instrumented).map_err(rewrite)?;
    let info = crate::compile::component::names(&engine.engine, &instrumented);
    let prepared = prepare(&engine.linker, &instrumented, &info)?;
    if prepared.init.is_none() {
        return Err(PreinitError::NoInit);
    }
    let watch = Arc::new(Watch::new(Instant::now() + TIME_MAX, CancellationToken::new()));
    let state = State::new(attempt, sink, watch.clone(), Surroundings::alone(Egress::plain()));
    let mut store = store(&engine.engine, state).map_err(failed)?;
    let _ticking = engines.ticking();
    let instance = tokio::select! {
        biased;
        started = prepared.start(&mut store) => started.map_err(failed)?.map_err(PreinitError::Failed)?,
        _ = watch.ended() => {
            return Err(PreinitError::Failed(format!("it took more than {} s", TIME_MAX.as_secs())));
        }
    };
    if !store.data().table.is_empty() {
        return Err(PreinitError::KeepsHandles);
    }
    // The content of a memory is passed in one call.
    store.set_hostcall_fuel(usize::MAX);
    let mut access = Access { store: &mut store, instance };
    wizer.snapshot_component(&context, &mut access).await.map_err(rewrite)
}

fn engine() -> Result<wasmtime::Engine, PreinitError> {
    let kind = Kind { metering: Metering::Epoch, explains_traps: false };
    compile_engine(kind).map_err(|error| PreinitError::Rewrite(causes(&error)))
}

impl From<RejectedComponent> for PreinitError {
    fn from(error: RejectedComponent) -> Self {
        Self::Rejected(error.to_string())
    }
}

/// Reads the memories and globals of an instrumented component, by the exports that it was given.
struct Access<'a> {
    store: &'a mut Store<State>,
    instance: Instance,
}

impl Access<'_> {
    async fn call<R: Lift + ComponentType + Send + Sync + 'static>(
        &mut self,
        instance: &str,
        function: &str,
    ) -> R {
        const MADE: &str = "the instrumented component has the exports that it was given";
        let store = &mut *self.store;
        let (_, exports) = self.instance.get_export(&mut *store, None, instance).expect(MADE);
        let (_, export) =
            self.instance.get_export(&mut *store, Some(&exports), function).expect(MADE);
        let function: TypedFunc<(), (R,)> =
            self.instance.get_typed_func(&mut *store, export).expect(MADE);
        function.call_async(&mut *store, ()).await.expect("a getter does not trap").0
    }
}

impl ComponentInstanceState for Access<'_> {
    async fn call_func_ret_list_u8(
        &mut self,
        instance: &str,
        func: &str,
        contents: impl FnOnce(&[u8]) + Send,
    ) {
        let bytes: WasmList<u8> = self.call(instance, func).await;
        contents(bytes.as_le_slice(&*self.store));
    }

    async fn call_func_ret_s32(&mut self, instance: &str, func: &str) -> i32 {
        self.call(instance, func).await
    }

    async fn call_func_ret_s64(&mut self, instance: &str, func: &str) -> i64 {
        self.call(instance, func).await
    }

    async fn call_func_ret_f32(&mut self, instance: &str, func: &str) -> u32 {
        self.call::<f32>(instance, func).await.to_bits()
    }

    async fn call_func_ret_f64(&mut self, instance: &str, func: &str) -> u64 {
        self.call::<f64>(instance, func).await.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RecordingSink, Run, TestRuntime, guest, guest_with_init};

    /// Returns a byte of its memory as a digit.
    const SHOW: &str = "(i32.store8 (i32.const 2001) (i32.add (i32.load8_u (i32.const 2000)) \
         (i32.const 48)))
         (call $ok (i32.const 2001) (i32.const 1))";

    async fn preinit_of(component: &[u8]) -> Result<Vec<u8>, PreinitError> {
        let runtime = TestRuntime::open();
        let (_, any) = Run::of(&runtime.add(guest(SHOW)).await).attempt().split();
        preinit(component, any, Arc::new(RecordingSink::default())).await
    }

    #[tokio::test]
    async fn every_instance_starts_with_the_state_of_init() {
        // Adds 3, so that a second call would show.
        let init = "(i32.store8 (i32.const 2000) (i32.add (i32.load8_u (i32.const 2000)) \
             (i32.const 3)))
             (i32.store8 (i32.const 3000) (i32.const 0)) (i32.const 3000)";
        let component = guest_with_init(init, SHOW);
        let initialized = preinit_of(&component).await.unwrap();
        let runtime = TestRuntime::open();
        for (component, expected) in [(component, "3"), (initialized, "6")] {
            let run = Run::of(&runtime.add(component).await);
            let report = runtime.perform(&run).await;
            let gristmill_core::runtime::AttemptEnd::Returned(output) = report.end else {
                panic!("{report:?}");
            };
            assert_eq!(output.as_str(), expected);
        }
    }

    #[tokio::test]
    async fn a_failed_initialization_is_reported() {
        assert!(matches!(preinit_of(&guest(SHOW)).await, Err(PreinitError::NoInit)));
        let trap = preinit_of(&guest_with_init("unreachable", SHOW)).await;
        assert!(matches!(trap, Err(PreinitError::Failed(_))), "{trap:?}");
        let wrong = preinit_of(b"\0asm\x01\0\0\0").await;
        assert!(matches!(wrong, Err(PreinitError::Rejected(_))), "{wrong:?}");
    }
}
