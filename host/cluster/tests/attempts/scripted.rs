//! A runtime whose attempts do what their input says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::HttpCall;
use gristmill_core::id::EndpointId;
use gristmill_core::job::handler_call::HandlerCall;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Part};
use gristmill_core::job::retry::RetryWish;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun, FailureReason, LogLevel,
    Reservation, Runtime, RuntimeLoad, SandboxMemory, Usage,
};
use gristmill_core::sharing::permits::PermitBytes;
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Does what the input's `do` says.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) name: &'static str,
    pub(crate) sandboxes: Arc<Semaphore>,
    pub(crate) running: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    /// Requests that handlers have made.
    pub(crate) requests: AtomicUsize,
    pub(crate) retired: Mutex<Vec<EndpointId>>,
    pub(crate) cannot_run: AtomicBool,
    /// The level of the last sandbox that was waited for.
    pub(crate) level: Mutex<Option<Level>>,
    /// Steps that "go on" may make.
    pub(crate) paces: Semaphore,
    /// Bytes that its sandboxes have.
    pub(crate) memory_bytes: AtomicU64,
}

/// An attempt that is in progress.
pub(crate) struct Running<'a>(&'a Scripted, bool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Scripted {
    pub(crate) fn new(name: &'static str, sandboxes: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            sandboxes: Arc::new(Semaphore::new(sandboxes)),
            running: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            retired: Mutex::default(),
            cannot_run: AtomicBool::new(false),
            level: Mutex::default(),
            paces: Semaphore::new(0),
            memory_bytes: AtomicU64::new(0),
        })
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

pub(crate) fn text(value: &str) -> Json {
    Json::from_value(&value)
}

#[async_trait]
impl Runtime for Scripted {
    async fn prepare(&self, _: &Deployment) -> Result<(), CannotRun> {
        match self.cannot_run.load(Ordering::SeqCst) {
            true => Err(CannotRun("the mill stands still".to_owned())),
            false => Ok(()),
        }
    }

    fn try_reserve(&self, _: &Arc<Deployment>, _: Level) -> Option<Reservation> {
        self.sandboxes.clone().try_acquire_owned().ok().map(Reservation::new)
    }

    async fn reserve(&self, _: &Arc<Deployment>, level: Level) -> Reservation {
        *self.level.lock() = Some(level);
        Reservation::new(self.sandboxes.clone().acquire_owned().await.unwrap())
    }

    fn retire(&self, endpoint: &EndpointId, _: Option<&Arc<Deployment>>) {
        self.retired.lock().push(endpoint.clone());
    }

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad { running: self.running() as u64, idle: 0, waiting: 0 }
    }

    fn memory(&self) -> SandboxMemory {
        let taken = self.memory_bytes.load(Ordering::SeqCst);
        let permits = PermitBytes { taken, ..PermitBytes::default() };
        SandboxMemory { permits, ..SandboxMemory::default() }
    }

    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport {
        let _permit = reservation.downcast::<OwnedSemaphorePermit>().unwrap();
        self.running.fetch_add(1, Ordering::SeqCst);
        let mut running = Running(self, false);
        let script: Value = attempt.input.read().unwrap();
        let end = match script["do"].as_str().unwrap() {
            "host" => AttemptEnd::Returned(text(self.name)),
            "show" => AttemptEnd::Returned(Json::from_value(&json!({
                "job": attempt.key.job.to_string(),
                "number": attempt.number,
                "image": attempt.deployment.template.image,
                "env": attempt.deployment.environment().collect::<Vec<_>>(),
                "component": attempt.deployment.component.unwrap().to_string(),
                "bucket": attempt.s3_config.map(|s3| s3.bucket_name.clone()),
                "trace": attempt.trace.map(|trace| (trace.to_string(), trace.state.as_str().map(str::to_owned))),
                "timeout": attempt.timeout_ms,
                "soon": attempt.deadline <= Instant::now() + Duration::from_secs(61),
            }))),
            "echo" => AttemptEnd::Returned(Json::from_value(&script["value"])),
            "fail" => {
                AttemptEnd::Failed { reason: FailureReason::Trap, error: "ground down".into() }
            }
            "wait" => {
                attempt.stop.cancelled().await;
                AttemptEnd::Stopped
            }
            "hang" => std::future::pending().await,
            "until told" => {
                self.paces.acquire().await.unwrap().forget();
                AttemptEnd::Returned(text("told"))
            }
            "panic when told" => {
                self.paces.acquire().await.unwrap().forget();
                panic!("the millstone breaks");
            }
            "emit" => {
                let bytes = usize::try_from(script["bytes"].as_u64().unwrap_or(1)).unwrap();
                let mut end = AttemptEnd::Returned(Json::null());
                for n in 0..script["count"].as_u64().unwrap() {
                    let output = Json::from_value(&json!([n, "x".repeat(bytes)]));
                    let part = (n == 1).then_some(Part { index: 0, count: 2 });
                    let metrics = (n == 0).then(|| text("first"));
                    if sink.emit(vec![Chunk { output, metrics, part }]).await.is_err() {
                        end = AttemptEnd::Stopped;
                        break;
                    }
                    sink.progress(Json::from_value(&n));
                    sink.log(LogLevel::Warn, &format!("line {n}"));
                    for end in RequestEnd::ALL.into_iter().filter(|_| n == 2) {
                        sink.requested(end, n).await;
                    }
                }
                end
            }
            // Emits, logs and calls in turns, at the pace of the test.
            "go on" => {
                let host = sink.host().unwrap();
                let mut answers = 0;
                for n in 0..script["count"].as_u64().unwrap() {
                    self.paces.acquire().await.unwrap().forget();
                    let output = Json::from_value(&json!([n, "x".repeat(10_000)]));
                    let chunk = Chunk { output, metrics: None, part: None };
                    let call = HandlerCall {
                        endpoint: "answers".to_owned(),
                        input: Json::from_value(&n),
                        idempotency_key: None,
                        job: None,
                    };
                    let (emitted, called) = tokio::join!(sink.emit(vec![chunk]), host.call(call));
                    emitted.unwrap();
                    answers += called.unwrap().read::<u64>().unwrap();
                    sink.progress(Json::from_value(&n));
                    sink.log(LogLevel::Warn, &format!("line {n}"));
                    sink.requested(RequestEnd::Denied, n).await;
                }
                AttemptEnd::Returned(Json::from_value(&answers))
            }
            "request" => {
                let chunk = Chunk { output: text("first"), metrics: None, part: None };
                let _ = sink.emit(vec![chunk]).await;
                for n in 0..script["count"].as_u64().unwrap() {
                    sink.requested(RequestEnd::Denied, n).await;
                    self.requests.fetch_add(1, Ordering::SeqCst);
                }
                AttemptEnd::Returned(Json::null())
            }
            "call" => {
                let call = |endpoint: &str| HandlerCall {
                    endpoint: endpoint.to_owned(),
                    input: text("grain"),
                    idempotency_key: Some("once".to_owned()),
                    job: None,
                };
                let names = ["answers", "denied", "invalid", "full", "failed", "late", "other"];
                let host = sink.host().unwrap();
                let calls = names.map(|name| host.call(call(name)));
                let (answers, job) =
                    tokio::join!(futures::future::join_all(calls), host.submit(call("answers")));
                let shown: Vec<_> = answers.iter().map(|answer| format!("{answer:?}")).collect();
                AttemptEnd::Returned(Json::from_value(&(shown, job.unwrap().to_string())))
            }
            other => panic!("no such script: {other}"),
        };
        running.1 = true;
        let wish = match &script["wish"] {
            Value::Null => None,
            Value::Number(ms) => Some(RetryWish::After(ms.as_u64().unwrap())),
            _ => Some(RetryWish::Never),
        };
        AttemptReport { end, usage: Usage { run_us: 7, fuel: Some(9), ..Usage::default() }, wish }
    }

    /// No test sends requests.
    async fn serve(
        &self,
        _: Reservation,
        _: Attempt<HttpCall>,
        _: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()> {
        AttemptEnd::Stopped.into()
    }
}
