//! A case on this machine.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, ChunkPage, Part, TIMED_OUT_ERROR};
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::stream::OutputList;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{
    AttemptEnd, AttemptReport, AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall, Usage,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::cases::{Case, CaseCall};
use super::observed::{Observed, ObservedChunks, ObservedLocally};
use crate::local::{Bench, LocalJob, LocalRequest, NoAnswer, WholeAnswer};

/// Runs a case in its own sandbox; `None` when it was interrupted.
pub(super) async fn run(bench: &Bench, case: &Case, stop: CancellationToken) -> Option<Observed> {
    let sink = Arc::new(CaseSink::default());
    let timeout_ms = case.expectation.timeout_ms;
    let env = case.env.clone();
    let (seen, usage) = match &case.call {
        CaseCall::Job(input) => {
            let job = LocalJob { input: input.clone(), env, timeout_ms };
            perform(bench, job, &sink, stop).await?
        }
        CaseCall::Request(given) => {
            let request = LocalRequest { request: given.build(), env, timeout_ms };
            serve(bench, request, &sink, stop).await?
        }
    };
    let kept = std::mem::take(&mut *sink.0.lock());
    let local = ObservedLocally {
        fuel: usage.fuel,
        memory_bytes_peak: usage.memory_bytes_peak,
        log: kept.log,
        stack: kept.stack,
    };
    Some(Observed { local: Some(local), ..seen })
}

async fn perform(
    bench: &Bench,
    job: LocalJob,
    sink: &Arc<CaseSink>,
    stop: CancellationToken,
) -> Option<(Observed, Usage)> {
    let timeout = bench.timeout(&job);
    let AttemptReport { end, usage, .. } = bench.perform(job, sink.clone(), stop).await;
    let mut kept = sink.0.lock();
    let (status, output, error) = match end {
        AttemptEnd::Returned(value) if value.is_null() && usage.chunks > 0 => {
            (JobStatus::Completed, kept.list(), None)
        }
        AttemptEnd::Returned(value) => (JobStatus::Completed, Some(value), None),
        AttemptEnd::Failed { error, .. } => (JobStatus::Failed, None, Some(error)),
        AttemptEnd::DeadlineReached => {
            let error = format!("{TIMED_OUT_ERROR} after {} ms", timeout.as_millis());
            (JobStatus::TimedOut, None, Some(error))
        }
        AttemptEnd::Stopped | AttemptEnd::NoMemory | AttemptEnd::HostLost(_) | AttemptEnd::Left => {
            return None;
        }
    };
    let chunks = Some(std::mem::take(&mut kept.chunks));
    let (run_us, head, local) = (usage.run_us, None, None);
    Some((Observed { status, output, error, chunks, run_us, head, local }, usage))
}

async fn serve(
    bench: &Bench,
    request: LocalRequest,
    sink: &Arc<CaseSink>,
    stop: CancellationToken,
) -> Option<(Observed, Usage)> {
    let served = bench.serve(request, sink.clone(), stop, WholeAnswer::read).await;
    let usage = served.report.usage;
    let seen = match served.whole() {
        Ok(answer) => Observed::answered(answer, usage.run_us),
        Err(NoAnswer::Failed(status, error)) => Observed::unanswered(status, error, usage.run_us),
        Err(NoAnswer::Interrupted) => return None,
    };
    Some((seen, usage))
}

/// Keeps the side output of a handler.
#[derive(Default)]
struct CaseSink(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    chunks: ObservedChunks,
    /// The positions of these chunks in values that were split.
    parts: Vec<Option<Part>>,
    log: Vec<String>,
    stack: Vec<StackCall>,
}

impl Kept {
    /// The output of a handler that only streamed; `None` when it is larger than an output may be.
    fn list(&self) -> Option<Json> {
        let chunk = |(output, part): (&Json, &Option<Part>)| Chunk {
            output: output.clone(),
            metrics: None,
            part: *part,
        };
        let chunks = self.chunks.outputs()?.iter().zip(&self.parts).map(chunk).collect();
        let mut list = OutputList::default();
        list.add(ChunkPage { chunks, ..ChunkPage::default() });
        list.finish()
    }
}

#[async_trait]
impl AttemptSink for CaseSink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        // The sandbox refuses an emit beyond the bound of the host.
        let mut kept = self.0.lock();
        for chunk in chunks {
            kept.chunks.add(chunk.output);
            kept.parts.push(chunk.part);
        }
        Ok(())
    }

    fn progress(&self, _: Json) {}

    fn log(&self, level: LogLevel, line: &str) {
        self.0.lock().log.push(format!("{}: {line}", level.as_str()));
    }

    async fn requested(&self, _: RequestEnd, _: u64) {}

    fn trapped(&self, stack: Vec<StackCall>) {
        self.0.lock().stack = stack;
    }

    fn host(&self) -> Option<&dyn HandlerHost> {
        None
    }
}
