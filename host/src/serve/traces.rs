//! The export of the host's traces, if the settings name a collector.

use std::time::Duration;

use anyhow::Context as _;
use gristmill_core::trace::Tracer;
use gristmill_traces::{Exporter, TraceSettings};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Time for the last spans: the exporter's own bound is a second less.
const LAST_SPANS: Duration = Duration::from_secs(6);

/// The tracer of the host, and the task that sends its spans.
#[derive(Debug, Default)]
pub(super) struct Traces {
    tracer: Tracer,
    stop: CancellationToken,
    sending: Option<JoinHandle<()>>,
}

impl Traces {
    /// Starts the export. Without settings nothing is recorded.
    ///
    /// # Errors
    /// When the client for the collector cannot be made.
    pub(super) fn start(settings: Option<TraceSettings>) -> anyhow::Result<Self> {
        let Some(settings) = settings else { return Ok(Self::default()) };
        let sampler = settings.sampler;
        let exporter = Exporter::new(settings).context("cannot export traces")?;
        let (tracer, stop) = (Tracer::new(sampler, exporter.queue()), CancellationToken::new());
        let sending = tokio::spawn(exporter.run(stop.clone().cancelled_owned()));
        Ok(Self { tracer, stop, sending: Some(sending) })
    }

    pub(super) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Sends the last spans.
    pub(super) async fn close(self) {
        self.stop.cancel();
        if let Some(sending) = self.sending {
            // A collector that does not take them in this time loses them.
            let _ = timeout(LAST_SPANS, sending).await;
        }
    }
}
