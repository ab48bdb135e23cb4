//! Shared parts of this crate's tests: guests written as text, a sink that records, a sandbox in a
//! temporary directory, and attempts to run in it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::catalog::Component;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{
    Attempt, AttemptKey, AttemptReport, AttemptSink, HandlerHost, LogLevel, Runtime as _,
    SinkClosed, StackCall,
};
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::swap::SwapWatch;
use crate::{Compiler, MemoryRecords, Pool, RuntimeSettings, WasmtimeRuntime};

/// Records the side output of an attempt.
#[derive(Default)]
pub(crate) struct RecordingSink {
    lines: Mutex<Vec<(LogLevel, String)>>,
    chunks: Mutex<Vec<Chunk>>,
    progress: Mutex<Vec<Json>>,
    requests: Mutex<Vec<RequestEnd>>,
    /// Makes `emit` wait for ever.
    pub(crate) is_full: AtomicBool,
}

impl RecordingSink {
    pub(crate) fn lines(&self) -> Vec<(LogLevel, String)> {
        self.lines.lock().clone()
    }

    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        self.chunks.lock().clone()
    }

    /// The ends of requests, sorted.
    pub(crate) fn requests(&self) -> Vec<RequestEnd> {
        let mut ends = self.requests.lock().clone();
        ends.sort_by_key(|end| end.as_str());
        ends
    }
}

#[async_trait]
impl AttemptSink for RecordingSink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        if self.is_full.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.chunks.lock().extend(chunks);
        Ok(())
    }

    fn progress(&self, value: Json) {
        self.progress.lock().push(value);
    }

    fn log(&self, level: LogLevel, line: &str) {
        self.lines.lock().push((level, line.to_owned()));
    }

    async fn requested(&self, end: RequestEnd, _: u64) {
        self.requests.lock().push(end);
    }

    fn trapped(&self, _: Vec<StackCall>) {}

    fn host(&self) -> Option<&dyn HandlerHost> {
        None
    }
}

/// A handler whose `handle` has this body, in the text format of core WebAssembly. Its locals are
/// `$input` and `$input_len`; it has `$ok` (pointer, length), `$recurse` and `$emit` to call, and
/// one page of memory.
pub(crate) fn guest(body: &str) -> Vec<u8> {
    guest_with("", body)
}

/// The same, with further fields of its module: tables, functions, a start.
pub(crate) fn guest_with(fields: &str, body: &str) -> Vec<u8> {
    encode(&guest_module(fields, body), "handler", None)
}

/// The same, with an `init` of this body: it returns a pointer to its outcome.
pub(crate) fn guest_with_init(init: &str, body: &str) -> Vec<u8> {
    let init =
        format!("(func (export \"gristmill:handler/lifecycle@0.1.0#init\") (result i32) {init})");
    encode(&guest_module(&init, body), "handler-with-init", None)
}

/// The same, with the import of one more function of our package.
pub(crate) fn guest_that_uses(import: &str, fields: &str, body: &str) -> Vec<u8> {
    let module = guest_module(fields, body).replacen("(module", &format!("(module {import}"), 1);
    encode(&module, "handler", None)
}

/// A handler that imports one more interface, of a package that is not ours.
pub(crate) fn guest_that_imports(package: &str, interface: &str, function: &str) -> Vec<u8> {
    let wit = format!("package {package}; interface {interface} {{ {function}: func(); }}");
    let (name, version) = package.split_once('@').unwrap();
    let import = format!("{name}/{interface}@{version}");
    let module = guest_module("", "(call $ok (local.get $input) (local.get $input_len))").replacen(
        "(module",
        &format!("(module (import \"{import}\" \"{function}\" (func))"),
        1,
    );
    encode(&module, "handler", Some((&wit, &import)))
}

fn guest_module(fields: &str, body: &str) -> String {
    format!(
        r#"(module
  (import "gristmill:handler/output@0.1.0" "emit"
    (func $emit (param i32 i32 i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (global $heap (mut i32) (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (block $fits (loop $grow
      (br_if $fits (i32.le_u (global.get $heap) (i32.shl (memory.size) (i32.const 16))))
      (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))
      unreachable))
    (local.get $at))
  (func $ok (param $pointer i32) (param $len i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1028) (local.get $pointer))
    (i32.store (i32.const 1032) (local.get $len))
    (i32.const 1024))
  (func $recurse (param i32) (result i32)
    (i32.add (i32.const 1) (call $recurse (i32.add (local.get 0) (i32.const 1)))))
  (func (export "gristmill:handler/run@0.1.0#handle")
    (param $id i32) (param $id_len i32) (param $input i32) (param $input_len i32) (result i32)
    {body})
  {fields})"#
    )
}

fn encode(module: &str, mut world: &str, other: Option<(&str, &str)>) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
    let (mut package, _) = resolve.push_path(wit).unwrap();
    if let Some((text, import)) = other {
        resolve.push_str("other.wit", text).unwrap();
        let worlds = format!(
            "package test:worlds; world both {{ include gristmill:handler/handler@0.1.0; import \
             {import}; }}"
        );
        package = resolve.push_str("worlds.wit", &worlds).unwrap();
        world = "both";
    }
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

/// A sandbox for two jobs at a time.
pub(crate) struct TestRuntime {
    pub(crate) runtime: WasmtimeRuntime,
    pub(crate) records: Arc<MemoryRecords>,
    pub(crate) directory: Arc<TempDir>,
}

impl TestRuntime {
    pub(crate) fn open() -> Self {
        Self::open_in(Arc::new(tempfile::tempdir().unwrap()), MemoryRecords::new())
    }

    pub(crate) fn open_in(directory: Arc<TempDir>, records: Arc<MemoryRecords>) -> Self {
        Self::open_with(directory, records, Pool::for_this_machine())
    }

    /// A sandbox with this allocation of memory.
    pub(crate) fn with_pool(pool: Pool) -> Self {
        Self::open_with(Arc::new(tempfile::tempdir().unwrap()), MemoryRecords::new(), pool)
    }

    /// A sandbox with this much memory for all jobs together.
    pub(crate) fn with_memory(memory_bytes_max: u64) -> Self {
        let swap = SwapWatch::of_this_machine();
        Self::open_as(
            Arc::new(tempfile::tempdir().unwrap()),
            MemoryRecords::new(),
            swap,
            |settings| {
                settings.memory_bytes_max = memory_bytes_max;
            },
        )
    }

    /// A sandbox with this compiler.
    pub(crate) fn with_compiler(compiler: Compiler) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let swap = SwapWatch::of_this_machine();
        Self::open_as(directory, MemoryRecords::new(), swap, |settings| {
            settings.compiler = compiler;
        })
    }

    /// The files of components, compiled ones too.
    pub(crate) fn files(&self) -> usize {
        fn count(directory: &Path) -> usize {
            let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
            entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
        }
        ["components", "artifacts"]
            .map(|below| count(&self.directory.path().join(below)))
            .iter()
            .sum()
    }

    /// Waits until there are this many of them.
    pub(crate) async fn until_files(&self, expected: usize) {
        let wait = async {
            while self.files() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "{} files, and not {expected}", self.files());
    }

    /// One on a machine where this watch sees swap.
    pub(crate) fn with_swap(swap: SwapWatch) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Self::open_as(directory, MemoryRecords::new(), swap, |_| {})
    }

    fn open_with(directory: Arc<TempDir>, records: Arc<MemoryRecords>, pool: Pool) -> Self {
        let swap = SwapWatch::of_this_machine();
        Self::open_as(directory, records, swap, |settings| settings.pool = pool)
    }

    fn open_as(
        directory: Arc<TempDir>,
        records: Arc<MemoryRecords>,
        swap: SwapWatch,
        change: impl FnOnce(&mut RuntimeSettings),
    ) -> Self {
        let mut settings =
            RuntimeSettings::new(directory.path().to_owned(), Compiler::in_process());
        settings.running_jobs_max = 2;
        change(&mut settings);
        let runtime = WasmtimeRuntime::open_watching(settings, records.clone(), swap).unwrap();
        Self { runtime, records, directory }
    }

    pub(crate) async fn add(&self, component: Vec<u8>) -> Component {
        let added = self.runtime.add_component(component.into()).await.unwrap();
        self.records.put(added.component.clone());
        added.component
    }

    /// A run of a handler with this body; the test may change its fields.
    pub(crate) async fn run(&self, body: &str) -> Run {
        Run::of(&self.add(guest(body)).await)
    }

    pub(crate) async fn perform(&self, run: &Run) -> AttemptReport {
        let deployment = run.deployment();
        let reservation = self.runtime.reserve(&deployment, Level::CLIENT).await;
        self.runtime.perform(reservation, run.attempt_of(deployment), run.sink.clone()).await
    }

    /// The only file below a directory of the sandbox.
    pub(crate) fn only_file(&self, below: &str) -> std::path::PathBuf {
        fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { files(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        files(&self.directory.path().join(below), &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

/// One attempt, before it is made.
pub(crate) struct Run {
    pub(crate) endpoint: Endpoint,
    pub(crate) component: Component,
    pub(crate) input: String,
    pub(crate) timeout_ms: u64,
    pub(crate) stop: CancellationToken,
    pub(crate) sink: Arc<RecordingSink>,
    /// The deployment of its last attempt.
    deployed: Mutex<Option<Arc<Deployment>>>,
}

impl Run {
    pub(crate) fn of(component: &Component) -> Self {
        Self {
            endpoint: endpoint(),
            component: component.clone(),
            input: "\"hello\"".to_owned(),
            timeout_ms: 60_000,
            stop: CancellationToken::new(),
            sink: Arc::default(),
            deployed: Mutex::default(),
        }
    }

    /// Its deployment: the same object until something has changed, as in the catalog.
    pub(crate) fn deployment(&self) -> Arc<Deployment> {
        let mut deployed = self.deployed.lock();
        let incarnation =
            deployed.as_ref().map(|last| last.incarnation.clone()).unwrap_or_default();
        let now = Deployment { incarnation, ..deployment(&self.endpoint, &self.component) };
        match &*deployed {
            Some(last) if **last == now => last.clone(),
            _ => deployed.insert(Arc::new(now)).clone(),
        }
    }

    /// Deploys the same again, as if it had been deleted before.
    pub(crate) fn deploy_again(&self) {
        *self.deployed.lock() = None;
    }

    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt_of(self.deployment())
    }

    pub(crate) fn attempt_of(&self, deployment: Arc<Deployment>) -> Attempt {
        Attempt {
            key: AttemptKey::without_store(),
            number: 1,
            deployment,
            input: Json::parse(self.input.clone()).unwrap(),
            s3_config: None,
            trace: None,
            timeout_ms: self.timeout_ms,
            deadline: Instant::now() + Duration::from_millis(self.timeout_ms),
            stop: self.stop.clone(),
        }
    }
}

pub(crate) fn endpoint() -> Endpoint {
    let mut endpoint = Endpoint::new(
        EndpointId::new("e").unwrap(),
        OwnerId::new("o").unwrap(),
        TemplateId::new("t").unwrap(),
        Timestamp::from_millis(0),
    );
    endpoint.settings.execution_timeout_ms = 60_000;
    endpoint
}

fn deployment(endpoint: &Endpoint, component: &Component) -> Deployment {
    let template = Template::new(endpoint.template.clone(), endpoint.owner.clone(), "t:latest");
    Deployment {
        endpoint: Arc::new(endpoint.clone()),
        template: Arc::new(template),
        component: Some(component.digest),
        input_schema: component.input_schema.clone(),
        volume: None,
        incarnation: EndpointIncarnation::default(),
    }
}

/// The bytes of a file that is not a component.
pub(crate) fn core_module() -> Bytes {
    wat::parse_str("(module)").unwrap().into()
}
