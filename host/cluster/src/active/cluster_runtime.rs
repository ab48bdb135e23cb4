//! The runtime of the active host: its own sandboxes, and those of its runners.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::HttpCall;
use gristmill_core::id::EndpointId;
use gristmill_core::job::record::LeftAttempt;
use gristmill_core::metrics::instruments::DurationTotals;
use gristmill_core::runtime::{
    Attempt, AttemptReport, AttemptSink, CannotRun, Reservation, RunnerHost, Runtime, RuntimeLoad,
    SandboxMemory, SandboxShortage,
};
use gristmill_core::sharing::cores::cores;
use gristmill_core::sharing::shares::Level;

use super::attempt::{self, Expected, RemoteRoom};
use super::balance::{self, Busy, Choice};
use super::link::{Prepared, Reserved};
use super::runners::Runners;

/// Runs attempts here and on the runners.
#[derive(Debug)]
pub struct ClusterRuntime {
    local: Arc<dyn Runtime>,
    cores: u64,
    runners: Arc<Runners>,
}

impl ClusterRuntime {
    /// Combines the sandboxes of this host with those of its runners.
    pub fn new(local: Arc<dyn Runtime>, runners: Arc<Runners>) -> Self {
        Self { local, cores: cores() as u64, runners }
    }

    fn reserve_now(
        &self,
        deployment: &Arc<Deployment>,
        level: Level,
        ready: &[Prepared],
    ) -> Option<Reservation> {
        if ready.is_empty() {
            return self.local.try_reserve(deployment, level);
        }
        let local = Busy { running: self.local.load().running, cores: self.cores };
        let runners: Vec<_> = ready.iter().map(Prepared::busy).collect();
        balance::order(local, &runners).into_iter().find_map(|choice| match choice {
            Choice::Local => self.local.try_reserve(deployment, level),
            Choice::Runner(index) => {
                let reserved = ready.get(index)?.try_reserve(deployment, level)?;
                Some(on_runner(reserved))
            }
        })
    }
}

#[async_trait]
impl Runtime for ClusterRuntime {
    async fn prepare(&self, deployment: &Deployment) -> Result<(), CannotRun> {
        self.local.prepare(deployment).await
    }

    fn try_reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Option<Reservation> {
        self.reserve_now(deployment, level, &self.runners.ready(deployment))
    }

    async fn reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Reservation {
        let mut changes = self.runners.changes();
        loop {
            let ready = self.runners.ready(deployment);
            if let Some(reservation) = self.reserve_now(deployment, level, &ready) {
                return reservation;
            }
            let mut waits = FuturesUnordered::<BoxFuture<'_, Reservation>>::new();
            waits.push(Box::pin(self.local.reserve(deployment, level)));
            for prepared in ready {
                let deployment = deployment.clone();
                waits.push(Box::pin(async move {
                    on_runner(prepared.reserve(deployment, level).await)
                }));
            }
            tokio::select! {
                biased;
                Some(reservation) = waits.next() => return reservation,
                // Another runner may have room.
                Ok(()) = changes.changed() => {}
            }
        }
    }

    fn expect(&self, deployment: &Arc<Deployment>, left: &LeftAttempt) -> Option<Reservation> {
        let expected = Expected::new(&self.runners, deployment, left);
        Some(Reservation::on(left.host, RemoteRoom::Expected(expected)))
    }

    fn leave(&self) {
        self.runners.attempts().leave();
    }

    fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        self.local.retire(endpoint, current);
        self.runners.retire(endpoint, current);
    }

    fn shortage(&self, deployment: &Deployment) -> Option<SandboxShortage> {
        self.local.shortage(deployment)
    }

    fn memory(&self) -> SandboxMemory {
        self.local.memory()
    }

    fn load(&self) -> RuntimeLoad {
        self.local.load()
    }

    fn runners(&self) -> Vec<RunnerHost> {
        self.runners.hosts()
    }

    fn compiles(&self) -> DurationTotals {
        self.local.compiles()
    }

    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport {
        match reservation.downcast::<RemoteRoom>() {
            // Boxed, so that the future of an attempt on this host stays small.
            Ok(room) => Box::pin(attempt::perform(&self.runners, *room, attempt, sink)).await,
            Err(reservation) => self.local.perform(reservation, attempt, sink).await,
        }
    }

    /// On this host, always: a request is not repeated when another host is lost.
    async fn serve(
        &self,
        reservation: Reservation,
        attempt: Attempt<HttpCall>,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()> {
        self.local.serve(reservation, attempt, sink).await
    }
}

fn on_runner(reserved: Reserved) -> Reservation {
    Reservation::on(reserved.process(), RemoteRoom::Reserved(reserved))
}
