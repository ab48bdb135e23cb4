//! The attempts of this host, which outlive the connection over which they were sent.
//!
//! **Promise.** When the connection of an attempt ends, its handler goes on, and its limits of time
//! hold. The next connection offers the attempt to the active host, which goes on with it, or ends
//! it. An attempt without a connection for [`adopt_within`](KeptAttempts::new) is stopped.
//!
//! **Bounds.** As many attempts as the active host has sent, which sends no more than this host has
//! sandboxes. Their reports are bounded by [`super::sink`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptKey, AttemptReport, Runtime};
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::sink::{KeptBytes, ReportSink};
use crate::convert;
use crate::messages::KeptAttempt;
use crate::transport::NOTICED_WITHIN;

/// The attempts of this host.
#[derive(Debug)]
pub(super) struct KeptAttempts {
    adopt_within: Duration,
    kept_bytes: Arc<KeptBytes>,
    known: Mutex<HashMap<AttemptKey, Known>>,
}

/// An attempt that is not over.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) sink: Arc<ReportSink>,
    /// Asks it to stop early.
    pub(super) stop: CancellationToken,
    /// When it is stopped.
    deadline: Instant,
}

/// An attempt whose handler is to be called.
pub(super) struct Begun {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) deployment: Arc<Deployment>,
    pub(super) level: Level,
    pub(super) attempt: Attempt,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl KeptAttempts {
    /// None yet. An attempt is kept for `adopt_within` without a connection.
    pub(super) fn new(adopt_within: Duration) -> Arc<Self> {
        Arc::new(Self { adopt_within, kept_bytes: Arc::default(), known: Mutex::default() })
    }

    /// Adds an attempt, and returns it with the future that runs it to its end. An attempt with the
    /// same key ends.
    pub(super) fn add(
        self: &Arc<Self>,
        begun: Begun,
    ) -> (Known, impl Future<Output = ()> + Send + use<>) {
        let key = begun.attempt.key.clone();
        let known = Known {
            sink: ReportSink::new(key.job, self.kept_bytes.clone()),
            stop: begun.attempt.stop.clone(),
            deadline: begun.attempt.deadline,
        };
        let former = self.known.lock().insert(key.clone(), known.clone());
        if let Some(former) = former {
            former.sink.close();
        }
        let listed = Listed { attempts: self.clone(), key, sink: known.sink.clone() };
        (known, attend(listed, begun))
    }

    pub(super) fn find(&self, key: &AttemptKey) -> Option<Known> {
        self.known.lock().get(key).cloned()
    }

    /// All of them, for the active host.
    pub(super) fn offered(&self) -> Vec<KeptAttempt> {
        let known = self.known.lock();
        known.iter().map(|(key, known)| convert::kept_attempt(key, known.deadline)).collect()
    }

    /// Ends an attempt that the active host does not want.
    pub(super) fn forget(&self, key: &AttemptKey) {
        if let Some(known) = self.find(key) {
            known.sink.close();
        }
    }
}

/// The place of an attempt in the list, which it leaves when this is dropped.
struct Listed {
    attempts: Arc<KeptAttempts>,
    key: AttemptKey,
    sink: Arc<ReportSink>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut known = self.attempts.known.lock();
        if known.get(&self.key).is_some_and(|known| Arc::ptr_eq(&known.sink, &self.sink)) {
            known.remove(&self.key);
        }
        drop(known);
        self.sink.close();
    }
}

/// Runs the handler, and keeps its end until the active host has taken it.
async fn attend(listed: Listed, begun: Begun) {
    let Listed { attempts, sink, .. } = &listed;
    let given_up = || sink.given_up(attempts.adopt_within, NOTICED_WITHIN);
    let report = {
        let mut performing = std::pin::pin!(perform(begun, sink.clone()));
        let mut given_up = std::pin::pin!(given_up());
        loop {
            tokio::select! {
                biased;
                report = &mut performing => break report,
                () = sink.has_progress() => sink.send_progress(),
                () = &mut given_up => return,
            }
        }
    };
    sink.end(convert::end(report));
    given_up().await;
}

/// Waits for the sandbox, which the attempt before is about to leave, and runs the handler in it.
async fn perform(begun: Begun, sink: Arc<ReportSink>) -> AttemptReport {
    let Begun { runtime, deployment, level, attempt } = begun;
    let reservation = tokio::select! {
        reservation = runtime.reserve(&deployment, level) => reservation,
        () = attempt.stop.cancelled() => return AttemptEnd::Stopped.into(),
        () = tokio::time::sleep_until(attempt.deadline.into()) => {
            return AttemptEnd::DeadlineReached.into();
        }
    };
    runtime.perform(reservation, attempt, sink).await
}
