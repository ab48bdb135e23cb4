//! The two engines, *metered* (epoch and fuel) and *plain* (epoch), and the thread that advances
//! their epochs. Metering changes the generated code, so each engine has separate compiled files
//! and a separate pool.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gristmill_core::deploy::endpoint::Metering;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tracing::warn;
use wasmtime::component::Linker;
use wasmtime::error::Context as _;
use wasmtime::{
    Config, Enabled, Engine, EngineWeak, InstanceAllocationStrategy, OptLevel,
    PoolingAllocationConfig, WasmBacktraceDetails,
};

use crate::host_fns::linker::linker;
use crate::sandbox::limiter;
use crate::sandbox::state::State;
use crate::swap::SwapWatch;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Interval at which a running handler checks its deadline and lets others run. When handlers
/// compute on every core, each step of another job waits up to this long.
pub(crate) const EPOCH_TICK: Duration = Duration::from_millis(2);

/// Stack of a handler, in bytes (1 MiB). Beyond it the handler fails with a stack overflow.
pub(crate) const STACK_BYTES_MAX: usize = MIB;

/// Globals, functions and other state of a job's instances together, in bytes, without their
/// memories and tables. The largest instance of Python has 21 KiB, and JavaScript fits too.
const INSTANCE_BYTES_MAX: usize = MIB;

/// Stack that a handler and the host functions under it share. The part beyond the handler's limit
/// is for the host's frames.
const STACK_AND_HOST_BYTES: usize = 2 * MIB;

/// Address space per memory: a 32-bit memory can never exceed it, so compiled code needs no bounds
/// checks (1.2 to 1.8 times faster).
const MEMORY_RESERVATION_BYTES: u64 = 4 << 30;

/// Memories of a pool for which most machines have addresses: 39 TiB for each engine. With more
/// jobs than a quarter of this, a job has fewer than it may have, on average.
const POOLED_MEMORIES_MAX: u32 = 10_000;

/// Memories of a pool for each job, at least. A handler in Rust, JavaScript or Python has one.
const POOLED_MEMORIES_OF_JOB: u32 = 2;

/// The memories of a pool for so many jobs.
fn pooled_memories(jobs: u32) -> u32 {
    let all = jobs.saturating_mul(limiter::MEMORIES_MAX);
    all.min(POOLED_MEMORIES_MAX.max(jobs.saturating_mul(POOLED_MEMORIES_OF_JOB)))
}

/// Bytes kept resident per memory and table when the kernel can report dirty pages.
const RESIDENT_BYTES_SCANNED: usize = 512 * KIB;

/// Bytes kept resident without that: more than most handlers touch, so that most jobs end without a
/// system call.
const RESIDENT_BYTES_COPIED: usize = 2 * MIB;

/// The allocation of memory for instances. docs/internals/performance.md compares the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// Reused slots. After a job the first pages of its memories and tables are reset in place, and
    /// the others are returned to the kernel.
    Slots {
        /// Bytes at the front of each memory and each table that are reset in place.
        resident_bytes: usize,
        /// Whether the kernel reports which of these pages are dirty (`PAGEMAP_SCAN`); otherwise
        /// all of them are rewritten. Not with swap: the scan may miss a page that was swapped out.
        scans: bool,
    },
    /// No slots: memory is mapped for each job. Slow: for a single job, and for new engines whose
    /// addresses cannot be reserved beside those of the engines that they replace.
    OnDemand,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Slots { resident_bytes, scans } => {
                let reset = if scans { ", changed pages reset" } else { "" };
                let kib = resident_bytes / KIB;
                let (size, unit) = match kib > 0 && kib.is_multiple_of(KIB) {
                    true => (kib / KIB, "MiB"),
                    false => (kib, "KiB"),
                };
                write!(f, "pooled, first {size} {unit} kept in memory{reset}")
            }
            Self::OnDemand => f.write_str("not pooled"),
        }
    }
}

impl Pool {
    /// Slots that are correct on every machine.
    const COPIED: Self = Self::Slots { resident_bytes: RESIDENT_BYTES_COPIED, scans: false };

    /// Slots for a machine without swap and with a kernel of 6.7 or newer.
    const SCANNED: Self = Self::Slots { resident_bytes: RESIDENT_BYTES_SCANNED, scans: true };

    /// The fastest correct choice for this machine: the scan needs a kernel of 6.7 or newer, and no
    /// swap. If swap is enabled later, a sandbox changes to a pool without the scan.
    pub fn for_this_machine() -> Self {
        let has_swap = SwapWatch::of_this_machine().has_seen_swap();
        match !has_swap && PoolingAllocationConfig::is_pagemap_scan_available() {
            true => Self::SCANNED,
            false => Self::COPIED,
        }
    }

    fn strategy(self, running_jobs_max: u32) -> InstanceAllocationStrategy {
        let Self::Slots { resident_bytes, scans } = self else {
            return InstanceAllocationStrategy::OnDemand;
        };
        // The pool has as much per job as the limiter permits, but for the memories of thousands of
        // jobs. A job that finds none goes back to its place in the queue.
        let jobs = running_jobs_max;
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(jobs)
            .total_core_instances(jobs.saturating_mul(limiter::INSTANCES_MAX))
            .total_memories(pooled_memories(jobs))
            .total_tables(jobs.saturating_mul(limiter::TABLES_MAX))
            .total_stacks(jobs);
        bound_component(&mut pool);
        pool.linear_memory_keep_resident(resident_bytes)
            .table_keep_resident(resident_bytes)
            .pagemap_scan(if scans { Enabled::Yes } else { Enabled::No });
        InstanceAllocationStrategy::Pooling(pool)
    }
}

/// The bounds for one component, which a pool checks when a component is loaded.
fn bound_component(pool: &mut PoolingAllocationConfig) {
    pool.max_core_instances_per_component(limiter::INSTANCES_MAX)
        .max_memories_per_component(limiter::MEMORIES_MAX)
        .max_tables_per_component(limiter::TABLES_MAX)
        .max_memories_per_module(limiter::MEMORIES_MAX)
        .max_tables_per_module(limiter::TABLES_MAX)
        .table_elements(limiter::TABLE_ELEMENTS_MAX)
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .max_memory_size(4 << 30);
}

/// The smallest pool that checks these bounds. It runs no handler.
fn checking_strategy() -> InstanceAllocationStrategy {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(1)
        .total_core_instances(1)
        .total_memories(1)
        .total_tables(1)
        .total_stacks(1);
    bound_component(&mut pool);
    InstanceAllocationStrategy::Pooling(pool)
}

/// The options that change an engine's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) metering: Metering,
    /// Whether traps include the handler's stack, with source lines. Reads the debug information of
    /// the component.
    pub(crate) explains_traps: bool,
}

/// The settings that every engine shares: those that run handlers and those that compile them.
fn config(kind: Kind, allocation: InstanceAllocationStrategy) -> Config {
    let Kind { metering, explains_traps } = kind;
    let (details, frames_max) = match explains_traps {
        true => (WasmBacktraceDetails::Enable, 64),
        false => (WasmBacktraceDetails::Disable, 20),
    };
    let mut config = Config::new();
    // Features that handlers do not need are off, since most of the engine's advisories concern
    // them.
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .gc_support(false)
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_exceptions(false)
        .wasm_threads(false)
        .wasm_memory64(false)
        .wasm_custom_page_sizes(false)
        .shared_memory(false)
        // The same results on every machine.
        .wasm_relaxed_simd(true)
        .relaxed_simd_deterministic(true);
    config
        .epoch_interruption(true)
        .consume_fuel(metering == Metering::Fuel)
        .max_wasm_stack(STACK_BYTES_MAX)
        .async_stack_size(STACK_AND_HOST_BYTES)
        .allocation_strategy(allocation)
        .memory_reservation(MEMORY_RESERVATION_BYTES)
        .memory_guard_size(32 * MIB as u64)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(64 * MIB as u64);
    config
        .cranelift_opt_level(OptLevel::Speed)
        .parallel_compilation(true)
        .generate_address_map(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(frames_max))
        .wasm_backtrace_details(details)
        // Registering unwind tables can take quadratic time, and wasm backtraces need none.
        .native_unwind_info(false);
    config
}

/// The settings of an engine without a pool, for compiling.
pub(crate) fn compile_config(kind: Kind) -> Config {
    config(kind, InstanceAllocationStrategy::OnDemand)
}

/// An engine without a pool, for compiling.
///
/// # Errors
/// When the machine is not supported.
pub(crate) fn compile_engine(kind: Kind) -> wasmtime::Result<Engine> {
    Engine::new(&compile_config(kind))
}

/// Names the compiled files that fit an engine: its metering, and a hash of everything that
/// influences the code (the engine's version, its settings, the processor).
pub(crate) fn engine_key(metering: Metering, engine: &Engine) -> String {
    /// Has the same result on every machine, which the standard library's hashers do not promise.
    struct StableHasher(Sha256);
    impl Hasher for StableHasher {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            let digest = self.0.clone().finalize();
            digest.first_chunk().copied().map_or(0, u64::from_be_bytes)
        }
    }
    let mut hasher = StableHasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{}-{:016x}", metering.as_str(), hasher.finish())
}

/// An engine with a linker for all imports of handlers.
pub(crate) struct RunEngine {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) key: String,
    pub(crate) kind: Kind,
    pool: Pool,
    /// Without a pool: an engine that checks whether a sandbox has room for a component, and runs
    /// none. An engine with a pool checks that itself.
    pub(crate) checking: Option<Engine>,
}

/// Both engines. When swap is enabled, engines whose pools scan are replaced, each at its next use:
/// see [`Engines::is_outdated`].
pub(crate) struct Engines {
    running_jobs_max: u32,
    explains_traps: bool,
    swap: SwapWatch,
    current: Mutex<Current>,
    ticker: Ticker,
}

/// The engines of new instances.
struct Current {
    /// The pool to try first.
    wanted_pool: Pool,
    fuel: Option<Arc<RunEngine>>,
    epoch: Option<Arc<RunEngine>>,
}

impl Current {
    fn new(wanted_pool: Pool) -> Self {
        Self { wanted_pool, fuel: None, epoch: None }
    }

    fn slot(&mut self, metering: Metering) -> &mut Option<Arc<RunEngine>> {
        match metering {
            Metering::Fuel => &mut self.fuel,
            Metering::Epoch => &mut self.epoch,
        }
    }
}

impl Engines {
    /// Builds both engines.
    ///
    /// # Errors
    /// When an engine cannot be built or its pool not reserved, or the ticker's thread cannot be
    /// started.
    pub(crate) fn new(
        running_jobs_max: u32,
        wanted_pool: Pool,
        explains_traps: bool,
        swap: SwapWatch,
    ) -> wasmtime::Result<Self> {
        let engines = Self {
            running_jobs_max,
            explains_traps,
            swap,
            current: Mutex::new(Current::new(wanted_pool)),
            ticker: Ticker::start()?,
        };
        for metering in [Metering::Fuel, Metering::Epoch] {
            let built = engines.build(metering, wanted_pool)?;
            engines.put(&mut engines.current.lock(), built);
        }
        Ok(engines)
    }

    /// The options of the engine for a metering.
    pub(crate) fn kind(&self, metering: Metering) -> Kind {
        Kind { metering, explains_traps: self.explains_traps }
    }

    /// The engine for a metering. Building one takes some milliseconds, once.
    ///
    /// # Errors
    /// When the engine cannot be built.
    pub(crate) fn get(&self, metering: Metering) -> wasmtime::Result<Arc<RunEngine>> {
        let mut current = self.current.lock();
        if self.is_unsafe(current.wanted_pool) {
            // The old engines exist as long as their instances.
            *current = Current::new(Pool::COPIED);
        }
        if let Some(built) = current.slot(metering) {
            return Ok(built.clone());
        }
        let built = match self.build(metering, current.wanted_pool) {
            Ok(built) => built,
            Err(error) => {
                warn!(error = %format_args!("{error:#}"), "sandboxes are slower from now on: {error:#}");
                self.build(metering, Pool::OnDemand)?
            }
        };
        Ok(self.put(&mut current, built))
    }

    /// Makes the engine the one for new instances.
    fn put(&self, current: &mut Current, built: RunEngine) -> Arc<RunEngine> {
        self.ticker.add(built.engine.weak());
        current.slot(built.kind.metering).insert(Arc::new(built)).clone()
    }

    /// Whether this engine may make no new instances, because its pool scans and swap was enabled
    /// since: an instance that ended meanwhile may have left pages in its slot that the scan
    /// missed. Existing instances are not affected.
    pub(crate) fn is_outdated(&self, engine: &RunEngine) -> bool {
        self.is_unsafe(engine.pool)
    }

    fn is_unsafe(&self, pool: Pool) -> bool {
        matches!(pool, Pool::Slots { scans: true, .. }) && self.swap.has_seen_swap()
    }

    /// Advances the epochs until the returned value is dropped: while a handler runs.
    pub(crate) fn ticking(&self) -> Ticking {
        Ticking::new(&self.ticker)
    }

    /// The allocation of memory.
    pub(crate) fn pool(&self) -> Pool {
        self.current.lock().fuel.as_ref().map_or(Pool::OnDemand, |built| built.pool)
    }

    /// Bytes that ended instances have left in memory, for the next ones.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let Current { fuel, epoch, .. } = &*self.current.lock();
        let kept = |engine: &Arc<RunEngine>| {
            let metrics = engine.engine.pooling_allocator_metrics()?;
            Some(metrics.unused_memory_bytes_resident() + metrics.unused_table_bytes_resident())
        };
        [fuel, epoch].into_iter().flatten().filter_map(kept).sum::<usize>() as u64
    }

    /// Builds an engine.
    ///
    /// # Errors
    /// When the machine is not supported, or has too few addresses for the pool.
    fn build(&self, metering: Metering, pool: Pool) -> wasmtime::Result<RunEngine> {
        let kind = self.kind(metering);
        let jobs = self.running_jobs_max;
        let engine = Engine::new(&config(kind, pool.strategy(jobs))).with_context(|| {
            format!(
                "cannot reserve the addresses of {jobs} sandboxes, {} GiB for both engines \
                 (--max-running-jobs)",
                2 * u64::from(pooled_memories(jobs)) * (MEMORY_RESERVATION_BYTES >> 30)
            )
        })?;
        let checking = match pool {
            // It reserves the address space of one memory: less than any job.
            Pool::OnDemand => Some(Engine::new(&config(kind, checking_strategy()))?),
            Pool::Slots { .. } => None,
        };
        let (linker, key) = (linker(&engine)?, engine_key(metering, &engine));
        Ok(RunEngine { engine, linker, key, kind, pool, checking })
    }
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engines").field("pool", &self.pool()).finish_non_exhaustive()
    }
}

/// Ticks after the last handler, before the ticker sleeps until the next one: 20 ms. Otherwise each
/// job of a single caller would wake it: 4 us of processor time.
const IDLE_TICKS_MAX: u32 = 10;

/// One thread that advances the epochs of all engines every [`EPOCH_TICK`] while handlers run, and
/// sleeps otherwise. Joined on drop.
struct Ticker {
    shared: Arc<TickerShared>,
    thread: Option<JoinHandle<()>>,
}

struct TickerShared {
    is_stopped: AtomicBool,
    running: AtomicUsize,
    engines: Mutex<Vec<EngineWeak>>,
}

impl Ticker {
    fn start() -> std::io::Result<Self> {
        let shared = Arc::new(TickerShared {
            is_stopped: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            engines: Mutex::new(Vec::new()),
        });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("epoch-ticker".to_owned())
            .spawn(move || for_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    fn add(&self, engine: EngineWeak) {
        self.shared.engines.lock().push(engine);
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl TickerShared {
    fn run(&self) {
        let mut idle_ticks = 0;
        while !self.is_stopped.load(Ordering::SeqCst) {
            let is_idle = self.running.load(Ordering::SeqCst) == 0;
            idle_ticks = if is_idle { idle_ticks + 1 } else { 0 };
            if idle_ticks > IDLE_TICKS_MAX {
                // A wake-up after the check above ends this at once.
                std::thread::park();
                idle_ticks = 0;
                continue;
            }
            std::thread::sleep(EPOCH_TICK);
            for engine in self.engines.lock().iter().filter_map(EngineWeak::upgrade) {
                engine.increment_epoch();
            }
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic; if it did, no caller could handle the error.
            let _ = thread.join();
        }
    }
}

/// A running handler, for the ticker.
pub(crate) struct Ticking(Arc<TickerShared>);

impl Ticking {
    fn new(ticker: &Ticker) -> Self {
        if ticker.shared.running.fetch_add(1, Ordering::SeqCst) == 0 {
            ticker.wake();
        }
        Self(ticker.shared.clone())
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
