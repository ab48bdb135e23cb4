//! A sandbox with one component.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use bytes::Bytes;
use gristmill_commands::calls::signalled;
use gristmill_commands::output::progress;
use gristmill_core::deploy::endpoint::{Deployment, Metering};
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::deploy::input_checks::InputChecks;
use gristmill_core::http_call::{HttpBody, HttpCall};
use gristmill_core::job::payload::Json;
use gristmill_core::metrics::failure_reason::FailureReason;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptReport, AttemptSink, Reservation, Runtime as _,
};
use gristmill_core::sharing::shares::Level;
use gristmill_runtime::{MemoryRecords, RuntimeSettings, WasmtimeRuntime};
use http::Response;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::deployment;
use super::options::LocalSettings;
use super::request::{LocalRequest, Served};
use crate::compiler::compiler;
use crate::temporary::temporary;

/// A sandbox with one component, in a temporary directory.
#[derive(Debug)]
pub(crate) struct Bench {
    runtime: WasmtimeRuntime,
    deployment: Arc<Deployment>,
    timeout_ms: u64,
    checks: InputChecks,
    _dir: TempDir,
}

/// One job for a bench.
#[derive(Debug)]
pub(crate) struct LocalJob {
    /// The handler's input.
    pub(crate) input: Json,
    /// Environment of this job only, in addition to the common one.
    pub(crate) env: BTreeMap<String, String>,
    /// Its time limit in milliseconds, if it differs from the common one.
    pub(crate) timeout_ms: Option<u64>,
}

impl Bench {
    /// Compiles the component, unless `stop` fires before that is done. At most `jobs_max` jobs or
    /// requests run at one time, and more wait.
    ///
    /// # Errors
    /// When limits exclude each other, the component cannot run here or has no handler of this
    /// kind, or the volume's directory cannot be used.
    pub(crate) async fn open(
        component: Bytes,
        kind: HandlerKind,
        settings: LocalSettings,
        jobs_max: u32,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        settings.limits.check()?;
        let dir = temporary("gristmill-run-")
            .context("cannot create a directory for the compiled component")?;
        let records = MemoryRecords::new();
        let runtime =
            WasmtimeRuntime::open(sandbox_settings(dir.path(), jobs_max)?, records.clone())?;
        if let Some(volume) = &settings.volume {
            let name = volume.display();
            ensure!(volume.is_dir(), "the volume {name} is not a directory");
            runtime
                .assign_volume_directory(&deployment::volume_id(), volume)
                .with_context(|| format!("cannot use the volume {name}"))?;
        }
        let timeout_ms = settings.timeout_ms();
        let spinner = progress::spinner("preparing the component");
        let compiled = async {
            let added = runtime.add_component(component).await?;
            let (digest, schema) = (added.component.digest, added.component.input_schema.clone());
            let deployment = Arc::new(deployment::local(settings, kind, digest, schema));
            records.put(added.component.clone());
            drop(added);
            runtime.prepare(&deployment).await?;
            anyhow::Ok(deployment)
        };
        let compiled =
            progress::noted("preparing the component; the first run compiles it", compiled);
        let deployment = tokio::select! {
            compiled = compiled => compiled,
            () = stop.cancelled() => Err(anyhow!("interrupted")),
        };
        spinner.finish_and_clear();
        let checks = InputChecks::default();
        Ok(Self { deployment: deployment?, runtime, timeout_ms, checks, _dir: dir })
    }

    /// Whether jobs report their fuel.
    pub(crate) fn counts_fuel(&self) -> bool {
        self.deployment.endpoint.settings.metering == Metering::Fuel
    }

    /// How long a job may run.
    pub(crate) fn timeout(&self, job: &LocalJob) -> Duration {
        Duration::from_millis(job.timeout_ms.unwrap_or(self.timeout_ms))
    }

    /// Runs one job to its end. An input that a host would refuse, by the schema of the component,
    /// fails the job.
    pub(crate) async fn perform(
        &self,
        job: LocalJob,
        sink: Arc<dyn AttemptSink>,
        stop: CancellationToken,
    ) -> AttemptReport {
        let timeout = self.timeout(&job);
        let deployment = deployment::with_env(&self.deployment, job.env);
        if let Err(refused) = self.checks.check(&deployment, &job.input).await {
            let (reason, error) = (FailureReason::InvalidInput, refused.to_string());
            return AttemptEnd::Failed { reason, error }.into();
        }
        let Some(reservation) = self.reserve(&deployment, &stop).await else {
            return AttemptEnd::Stopped.into();
        };
        let attempt = attempt(deployment, job.input, timeout, stop);
        self.runtime.perform(reservation, attempt, sink).await
    }

    /// Has one request answered. `client` reads the body of the answer while the handler runs.
    pub(crate) async fn serve<T>(
        &self,
        request: LocalRequest,
        sink: Arc<dyn AttemptSink>,
        stop: CancellationToken,
        client: impl AsyncFnOnce(Response<HttpBody>) -> T,
    ) -> Served<T> {
        let timeout = Duration::from_millis(request.timeout_ms.unwrap_or(self.timeout_ms));
        let deployment = deployment::with_env(&self.deployment, request.env);
        let Some(reservation) = self.reserve(&deployment, &stop).await else {
            return Served { answer: None, report: AttemptEnd::Stopped.into(), timeout };
        };
        let (call, answered) = HttpCall::new(request.request);
        let attempt = attempt(deployment, call, timeout, stop);
        let read = async {
            Some(match answered.await.ok()? {
                Ok(answer) => Ok(client(answer).await),
                Err(invalid) => Err(invalid),
            })
        };
        let (report, answer) = tokio::join!(self.runtime.serve(reservation, attempt, sink), read);
        Served { answer, report, timeout }
    }

    /// Waits for room; `None` if `stop` fires before.
    async fn reserve(
        &self,
        deployment: &Arc<Deployment>,
        stop: &CancellationToken,
    ) -> Option<Reservation> {
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            reservation = self.runtime.reserve(deployment, Level::CLIENT) => Some(reservation),
        }
    }
}

fn attempt<I>(
    deployment: Arc<Deployment>,
    input: I,
    timeout: Duration,
    stop: CancellationToken,
) -> Attempt<I> {
    Attempt {
        key: AttemptKey::without_store(),
        number: 1,
        deployment,
        input,
        s3_config: None,
        trace: None,
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        deadline: Instant::now() + timeout,
        stop,
    }
}

fn sandbox_settings(dir: &Path, jobs_max: u32) -> anyhow::Result<RuntimeSettings> {
    let settings = RuntimeSettings::new(dir.to_owned(), compiler()?);
    Ok(RuntimeSettings {
        running_jobs_max: jobs_max,
        explains_traps: true,
        request_refusal: deployment::request_refusal,
        ..settings
    })
}

/// Fires `stop` on SIGINT or SIGTERM.
pub(crate) async fn stop_on_signal(stop: CancellationToken) {
    signalled().await;
    stop.cancel();
}
