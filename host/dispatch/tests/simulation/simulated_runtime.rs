//! Runs handlers whose behaviour is in their input, and checks that no job runs twice at one time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::HttpCall;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun, FailureReason, Reservation,
    Runtime, RuntimeLoad, SinkClosed,
};
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::scenario::{BRIEF_DELAY, Trace};

/// Most sandboxes of the host.
pub(crate) const SANDBOXES: usize = 3;

/// The behaviour of a handler.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Script {
    /// Returns after this time.
    Return {
        after_ms: u64,
    },
    Fail {
        after_ms: u64,
    },
    /// Emits this many chunks, with this pause before each.
    Stream {
        chunks: u64,
        pause_ms: u64,
    },
    /// Never ends by itself; takes this time to stop.
    Hang {
        grace_ms: u64,
    },
}

#[derive(Debug)]
pub(crate) struct SimulatedRuntime {
    pub(crate) trace: Trace,
    pub(crate) running: Mutex<BTreeSet<JobId>>,
    /// Fewer permits than the maximum of workers.
    sandboxes: Arc<Semaphore>,
    pub(crate) allowed: Mutex<Allowed>,
    /// The component cannot be prepared before this time.
    pub(crate) broken_until: Mutex<Option<Instant>>,
    /// The newest attempt of each job, over all starts of the host.
    attempts: Arc<Mutex<BTreeMap<JobId, u32>>>,
}

/// Most running jobs.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) now: u32,
    before: u32,
    since: Option<Instant>,
}

impl Allowed {
    pub(crate) fn set(&mut self, workers_max: u32) {
        *self = Self { now: workers_max, before: self.max_u32(), since: Some(Instant::now()) };
    }

    /// Workers that have read the endpoint before a change may take one more job.
    fn max_u32(&self) -> u32 {
        let is_new = self.since.is_some_and(|since| since.elapsed() < BRIEF_DELAY);
        if is_new { self.now.max(self.before) } else { self.now }
    }

    fn max(&self) -> usize {
        self.max_u32() as usize
    }
}

impl SimulatedRuntime {
    pub(crate) fn new(trace: Trace, attempts: Arc<Mutex<BTreeMap<JobId, u32>>>) -> Self {
        Self {
            trace,
            running: Mutex::default(),
            sandboxes: Arc::new(Semaphore::new(SANDBOXES)),
            allowed: Mutex::default(),
            broken_until: Mutex::default(),
            attempts,
        }
    }

    fn begin(&self, job: JobId, number: u32) {
        self.trace.record(format!("{} attempt {number} begins", Trace::name(job)));
        self.trace.starts(job);
        let mut running = self.running.lock();
        assert!(running.insert(job), "{job} runs twice at one time");
        assert!(running.len() <= self.allowed.lock().max(), "{} jobs run", running.len());
        let before = self.attempts.lock().insert(job, number);
        assert!(before.is_none_or(|before| before < number), "{job}: {before:?}, then {number}");
    }
}

#[async_trait]
impl Runtime for SimulatedRuntime {
    async fn prepare(&self, _: &Deployment) -> Result<(), CannotRun> {
        match *self.broken_until.lock() {
            Some(until) if Instant::now() < until => Err(CannotRun("it is broken".to_owned())),
            _ => Ok(()),
        }
    }

    fn try_reserve(&self, _: &Arc<Deployment>, _: Level) -> Option<Reservation> {
        self.sandboxes.clone().try_acquire_owned().ok().map(Reservation::new)
    }

    async fn reserve(&self, _: &Arc<Deployment>, _: Level) -> Reservation {
        Reservation::new(self.sandboxes.clone().acquire_owned().await.unwrap())
    }

    fn retire(&self, _: &EndpointId, _: Option<&Arc<Deployment>>) {}

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad { running: self.running.lock().len() as u64, idle: 0, waiting: 0 }
    }

    async fn perform(
        &self,
        _reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport {
        self.begin(attempt.key.job, attempt.number);
        let script: Script = attempt.input.read().unwrap();
        let limit = Duration::from_millis(attempt.timeout_ms);
        let work = async {
            tokio::select! {
                biased;
                end = carry_out(script, &*sink) => end,
                () = attempt.stop.cancelled() => {
                    if let Script::Hang { grace_ms } = script {
                        sleep(Duration::from_millis(grace_ms)).await;
                    }
                    AttemptEnd::Stopped
                }
            }
        };
        let end = timeout(limit, work).await.unwrap_or(AttemptEnd::DeadlineReached);
        self.trace.record(format!(
            "{} attempt {} ends: {end:?}",
            Trace::name(attempt.key.job),
            attempt.number
        ));
        self.running.lock().remove(&attempt.key.job);
        end.into()
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

async fn carry_out(script: Script, sink: &dyn AttemptSink) -> AttemptEnd {
    match script {
        Script::Return { after_ms } => {
            sleep(Duration::from_millis(after_ms)).await;
            AttemptEnd::Returned(Json::from_value(&after_ms))
        }
        Script::Fail { after_ms } => {
            sleep(Duration::from_millis(after_ms)).await;
            AttemptEnd::Failed { reason: FailureReason::Handler, error: "as told".to_owned() }
        }
        Script::Stream { chunks, pause_ms } => {
            for n in 0..chunks {
                sleep(Duration::from_millis(pause_ms)).await;
                let chunk = Chunk { output: Json::from_value(&n), metrics: None, part: None };
                if sink.emit(vec![chunk]).await == Err(SinkClosed) {
                    return AttemptEnd::Stopped;
                }
                sink.progress(Json::from_value(&n));
            }
            AttemptEnd::Returned(Json::null())
        }
        Script::Hang { .. } => std::future::pending().await,
    }
}
