//! The host's state of a running handler: one [`State`] per store, one store per instance.
//!
//! **Cost.** The parts for WASI and for requests are made when the handler first uses them. Two
//! random generators, clocks, streams and the limits of requests are 15 allocations, and many
//! handlers use none of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::id::OwnerId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::job::retry::RetryWish;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{Attempt, AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall};
use gristmill_core::sharing::permits::Permits;
use gristmill_core::sharing::shares::Level;
use gristmill_core::sharing::tenancy::Tenancy;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, ResourceLimiterAsync, Result, Store};
use wasmtime_wasi::p2::pipe::ClosedInputStream;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::disk::Files;
use crate::egress::{Egress, HTTP_HEAD_BYTES_MAX, JobEgress};
use crate::sandbox::charge::{Account, Charge};
use crate::sandbox::deadline::{Watch, Watched, watch_epochs};
use crate::sandbox::growths::Growths;
use crate::sandbox::limiter::{INSTANCES_MAX, Limiter, MEMORIES_MAX, TABLES_MAX};
use crate::sandbox::log::{AttemptLog, StdStream};
use crate::sandbox::stdio::LogStream;

/// Most bytes that the host copies out of a handler in one call, in either direction of the
/// contract: the largest output, and room for other values beside it.
pub(crate) const HOST_CALL_BYTES_MAX: usize = OUTPUT_BYTES_MAX + (4 << 20);

/// Most resource handles (streams, pollables, requests, …) of a job; one more ends the call with an
/// error. The host keeps up to [`HTTP_HEAD_BYTES_MAX`] for each, also for the head of an answer, so
/// 32 MiB for a job in total.
pub(crate) const HANDLES_MAX: usize = 1_024;

/// A shorter wait for memory is not named in the log.
const LOGGED_WAIT: Duration = Duration::from_millis(100);

/// Most random bytes that a handler gets in one call.
const RANDOM_BYTES_MAX: u64 = 64 << 10;

/// What an instance has from its first attempt to its end.
pub(crate) struct Surroundings {
    /// What it is charged.
    pub(crate) charge: Arc<Charge>,
    /// The memory of all sandboxes.
    pub(crate) account: Arc<Account>,
    /// Makes its requests.
    pub(crate) network: Arc<Egress>,
    /// Its files, if it has any.
    pub(crate) files: Option<Files>,
}

impl Surroundings {
    /// Those of an instance that shares no memory and has no files.
    pub(crate) fn alone(network: Arc<Egress>) -> Self {
        let permits = Permits::new(1, u64::MAX, Tenancy::default());
        let permit = permits.owner_share(&OwnerId::operator()).try_take(0, Level::CLIENT);
        let charge = Charge::new(permit.expect("nobody else takes one"), false);
        let growths = Growths::new(permits, || {});
        let account = Account::new(growths).into();
        Self { charge: charge.into(), account, network, files: None }
    }
}

/// The host's state of one instance, and of its present attempt.
pub(crate) struct State {
    pub(crate) attempt: Attempt<()>,
    pub(crate) sink: Arc<dyn AttemptSink>,
    pub(crate) log: Arc<AttemptLog>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) limiter: Limiter,
    pub(crate) charge: Arc<Charge>,
    pub(crate) account: Arc<Account>,
    /// Its files, if it has any.
    pub(crate) files: Option<Files>,
    /// What it is charged for requests and fields that it holds.
    pub(crate) http_bytes: u64,
    /// Chunks emitted, and their bytes.
    pub(crate) chunks: u64,
    pub(crate) emitted_bytes: u64,
    /// Calls of other endpoints.
    pub(crate) calls: u32,
    /// Whether the handler requested that its instance runs no further job.
    pub(crate) retired: bool,
    /// What the handler wishes for the job of its present attempt, if that fails.
    pub(crate) wish: Option<RetryWish>,
    pub(crate) table: ResourceTable,
    network: Arc<Egress>,
    egress: Option<JobEgress>,
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
}

impl State {
    /// The state of an attempt that is about to start.
    pub(crate) fn new(
        attempt: Attempt<()>,
        sink: Arc<dyn AttemptSink>,
        watch: Arc<Watch>,
        surroundings: Surroundings,
    ) -> Self {
        let Surroundings { charge, account, network, files } = surroundings;
        let log = Arc::new(AttemptLog::new(sink.clone()));
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HTTP_HEAD_BYTES_MAX);
        Self {
            limiter: Limiter::new(attempt.deployment.endpoint.memory_bytes_max()),
            charge,
            account,
            files,
            attempt,
            sink,
            log,
            watch,
            http_bytes: 0,
            chunks: 0,
            emitted_bytes: 0,
            calls: 0,
            retired: false,
            wish: None,
            table,
            network,
            egress: None,
            wasi: None,
            http,
        }
    }

    /// The requests of the attempt.
    pub(crate) fn egress(&mut self) -> &mut JobEgress {
        used(&mut self.egress, &self.network, &self.attempt, &self.sink)
    }

    /// The same; `None` while there was none.
    pub(crate) fn used_egress(&self) -> Option<&JobEgress> {
        self.egress.as_ref()
    }

    /// Prepares the next attempt of the same instance.
    pub(crate) fn begin(
        &mut self,
        attempt: Attempt<()>,
        sink: Arc<dyn AttemptSink>,
        watch: Arc<Watch>,
    ) {
        self.limiter.begin();
        self.charge.begin();
        if let Some(egress) = &mut self.egress {
            egress.begin(&attempt, sink.clone());
        }
        if let Some(files) = &self.files {
            files.begin();
        }
        self.log.begin(sink.clone());
        (self.chunks, self.emitted_bytes, self.calls) = (0, 0, 0);
        self.wish = None;
        self.attempt = attempt;
        self.sink = sink;
        self.watch = watch;
    }

    /// Drops the state of the ended attempt, while the instance is idle.
    pub(crate) fn end(&mut self) {
        let no_sink: Arc<dyn AttemptSink> = Arc::new(NoSink);
        if let Some(egress) = &mut self.egress {
            egress.end(no_sink.clone());
        }
        self.log.begin(no_sink.clone());
        self.sink = no_sink;
        self.attempt.s3_config = None;
        self.attempt.trace = None;
    }

    /// Charges so many bytes more to the instance; waits if the host has none. The log of the
    /// attempt names a wait of at least [`LOGGED_WAIT`].
    ///
    /// # Errors
    /// [`NoMemory`](crate::sandbox::growths::NoMemory): the attempt must end.
    pub(crate) async fn charge_more(&mut self, bytes: u64) -> Result<()> {
        let has_acted = self.has_acted();
        let memory_bytes_max = self.limiter.memory_bytes_max();
        let charge = self.charge.clone();
        let waited = charge.add(bytes, &self.account.growths, memory_bytes_max, has_acted).await?;
        if waited >= LOGGED_WAIT {
            let ms = waited.as_millis();
            let line = format!("waited {ms} ms for memory of the host (--max-sandbox-memory-mib)");
            self.log.write(LogLevel::Warn, &line);
        }
        Ok(())
    }

    /// Whether the attempt has had an effect outside of its instance: a chunk, a call, a request,
    /// or access to a network volume.
    fn has_acted(&self) -> bool {
        let has_volume = self.attempt.deployment.volume.is_some();
        self.chunks > 0 || self.calls > 0 || self.egress.is_some() || has_volume
    }

    /// The fuel that this attempt may burn. Unless the endpoint bounds it, fuel is only counted:
    /// how much a processor burns in a millisecond differs between machines, and the deadline is a
    /// time.
    pub(crate) fn fuel_max(&self) -> u64 {
        self.attempt.deployment.endpoint.settings.max_fuel.unwrap_or(u64::MAX)
    }
}

#[async_trait]
impl ResourceLimiterAsync for State {
    async fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let Some(bytes) = self.limiter.grow_memory(current, desired, maximum) else {
            return Ok(false);
        };
        self.charge_more(bytes).await?;
        Ok(true)
    }

    async fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> Result<bool> {
        let Some(bytes) = self.limiter.grow_table(current, desired) else { return Ok(false) };
        self.charge_more(bytes).await?;
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

impl Watched for State {
    fn watch(&self) -> &Watch {
        &self.watch
    }
}

/// The requests of an attempt, from the first use on.
fn used<'a>(
    egress: &'a mut Option<JobEgress>,
    network: &Arc<Egress>,
    attempt: &Attempt<()>,
    sink: &Arc<dyn AttemptSink>,
) -> &'a mut JobEgress {
    egress.get_or_insert_with(|| JobEgress::new(network.clone(), attempt, sink.clone()))
}

/// The WASI surroundings of a handler: its arguments, its environment, clocks, random numbers and
/// output streams that become its log. Sockets and name lookup are linked, since some languages
/// always import them, and all their calls are refused. Files are served by `disk`, not by
/// wasmtime.
fn wasi(attempt: &Attempt<()>, log: &Arc<AttemptLog>) -> WasiCtx {
    let mut wasi = WasiCtxBuilder::new();
    wasi.stdin(ClosedInputStream)
        .stdout(LogStream { stream: StdStream::Out, log: log.clone() })
        .stderr(LogStream { stream: StdStream::Err, log: log.clone() })
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .max_random_size(RANDOM_BYTES_MAX);
    for argument in attempt.deployment.arguments() {
        wasi.arg(argument);
    }
    for (name, value) in attempt.deployment.environment() {
        wasi.env(name, value);
    }
    wasi.build()
}

/// A store for one instance, with all its limits except fuel.
///
/// # Errors
/// When the store cannot be allocated.
pub(crate) fn store(engine: &Engine, state: State) -> Result<Store<State>> {
    let mut store = Store::try_new(engine, state)?;
    store.limiter_async(|state| state);
    store.set_hostcall_fuel(HOST_CALL_BYTES_MAX);
    store.set_max_component_handles(HANDLES_MAX);
    watch_epochs(&mut store);
    Ok(store)
}

/// The sink of an instance without a job.
struct NoSink;

#[async_trait]
impl AttemptSink for NoSink {
    async fn emit(&self, _: Vec<Chunk>) -> std::result::Result<(), SinkClosed> {
        Err(SinkClosed)
    }

    fn progress(&self, _: Json) {}

    fn log(&self, _: LogLevel, _: &str) {}

    async fn requested(&self, _: RequestEnd, _: u64) {}

    fn trapped(&self, _: Vec<StackCall>) {}

    fn host(&self) -> Option<&dyn HandlerHost> {
        None
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Self { wasi: ctx, table, attempt, log, .. } = self;
        WasiCtxView { ctx: ctx.get_or_insert_with(|| wasi(attempt, log)), table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let hooks = used(&mut self.egress, &self.network, &self.attempt, &self.sink);
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
