//! Counters of the whole host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gristmill_core::deploy::endpoint::EndpointType;
use gristmill_core::logs::Logs;
use gristmill_core::metrics::endpoint::EndpointMetrics;
use gristmill_core::metrics::instruments::DurationTotals;
use gristmill_core::runtime::{RunnerHost, Runtime, RuntimeLoad, SandboxMemory};
use gristmill_core::store::{StoreError, StoreStats};

use crate::deployed::Deployed;
use crate::metric_series::{EndpointNow, MetricSeries, SeriesValues};

/// The whole host.
#[derive(Debug, Clone)]
pub struct Host {
    deployed: Arc<Deployed>,
    runtime: Arc<dyn Runtime>,
    logs: Arc<Logs>,
    series: Arc<MetricSeries>,
}

/// The present counters. They cover all owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCounters {
    /// The store's.
    pub store: StoreStats,
    /// Handlers' log lines that could not be written to the disk.
    pub lost_log_lines: u64,
    /// Sandboxes that run on all hosts, and the idle ones and waiting workers of this host.
    pub load: RuntimeLoad,
    /// The memory of this host's sandboxes.
    pub memory: SandboxMemory,
    /// Times of the compiles of components that succeeded.
    pub compiles: DurationTotals,
    /// Hosts that run jobs, this one included.
    pub hosts: u64,
    /// Endpoints that exist.
    pub endpoints: u64,
    /// When the last backup was complete, in milliseconds since 1970; 0 before the first one of
    /// this process.
    pub backed_up_at_ms: u64,
}

impl Host {
    pub(crate) fn new(
        deployed: Arc<Deployed>,
        runtime: Arc<dyn Runtime>,
        logs: Arc<Logs>,
        metrics_endpoints_max: usize,
    ) -> Self {
        let series = Arc::new(MetricSeries::new(metrics_endpoints_max));
        Self { deployed, runtime, logs, series }
    }

    /// The present counters.
    pub fn counters(&self) -> HostCounters {
        let (own, runners) = (self.load(), self.runners());
        let elsewhere: u64 = runners.iter().map(|host| host.running).sum();
        HostCounters {
            store: self.deployed.store.stats(),
            lost_log_lines: self.logs.lost_lines(),
            load: RuntimeLoad { running: own.running + elsewhere, ..own },
            memory: self.runtime.memory(),
            compiles: self.runtime.compiles(),
            hosts: 1 + runners.len() as u64,
            endpoints: self.deployed.view().deployments.len() as u64,
            backed_up_at_ms: self.deployed.backed_up_at_ms.load(Ordering::Relaxed),
        }
    }

    /// Sandboxes of this host that run now.
    pub fn load(&self) -> RuntimeLoad {
        self.runtime.load()
    }

    /// The other hosts that run jobs.
    pub fn runners(&self) -> Vec<RunnerHost> {
        self.runtime.runners()
    }

    /// Webhooks of the present endpoints that were given up since the start.
    pub fn webhooks_given_up(&self) -> u64 {
        let view = self.deployed.view();
        let of_endpoint = |metrics: &EndpointMetrics| {
            let [.., given_up] = metrics.totals().webhooks;
            given_up
        };
        let endpoints = view.deployments.values();
        endpoints.map(|deployment| of_endpoint(deployment.incarnation.metrics())).sum()
    }

    /// The counters and the present state of all endpoints, as a bounded number of series. Costs
    /// some microseconds for each endpoint.
    ///
    /// # Errors
    /// When the store is closed.
    pub async fn endpoints(&self) -> Result<Vec<SeriesValues>, StoreError> {
        let view = self.deployed.view();
        let (store, workers) = (&self.deployed.store, &self.deployed.workers);
        let mut endpoints = Vec::with_capacity(view.deployments.len());
        for (id, deployment) in &view.deployments {
            let demand = store.demand(id).await?;
            let waits = |since| self.deployed.now().millis_since(since);
            let now = EndpointNow {
                jobs: store.counts(id).await?,
                oldest_waiting_ms: demand.since.map_or(0, waits),
                workers: workers.counts(id),
                waiting_requests: match deployment.endpoint.kind {
                    EndpointType::LoadBalancer => Some(workers.waiting_requests(id)),
                    EndpointType::Queue => None,
                },
            };
            endpoints.push((id.clone(), deployment.incarnation.clone(), now));
        }
        Ok(self.series.of(endpoints))
    }
}
