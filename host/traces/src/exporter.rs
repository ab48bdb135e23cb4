//! The task that sends batches of spans to the collector.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prost::Message as _;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url, retry};
use tokio::time::{sleep, timeout};

use crate::TraceSettings;
use crate::encode::{encode, gzip};
use crate::messages::ExportAnswer;
use crate::queue::{Batch, SpanQueue, add};

/// Most bytes of an answer that are read.
pub const ANSWER_BYTES: usize = 64 * 1_024;
/// Most calls for a batch.
const CALLS_MAX: u32 = 5;
/// The time before the first repetition; it doubles for each further one.
const BACKOFF: Duration = Duration::from_secs(1);
/// Most time before a repetition, whatever the collector asks for.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Most time for what waits when the host stops.
const LAST_FLUSH: Duration = Duration::from_secs(5);

/// The HTTP client cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the client for the collector of traces cannot be built: {0}")]
pub struct CannotExport(#[from] reqwest::Error);

/// Sends what its [`SpanQueue`] takes.
#[derive(Debug)]
pub struct Exporter {
    settings: TraceSettings,
    queue: Arc<SpanQueue>,
    client: Client,
    is_failing: bool,
}

/// Why a call failed.
enum Fault {
    /// It may succeed later; the collector may say when.
    Temporary(String, Option<Duration>),
    Refused(String),
}

/// A batch that is counted as not sent unless it ends otherwise.
struct InFlight<'a>(&'a SpanQueue, usize);

impl InFlight<'_> {
    fn ends_as(mut self, counter: &AtomicU64) {
        add(counter, std::mem::take(&mut self.1));
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        add(&self.0.not_sent, self.1);
    }
}

impl Exporter {
    /// An exporter with an empty queue.
    ///
    /// # Errors
    /// [`CannotExport`] when the HTTP client cannot be built.
    pub fn new(settings: TraceSettings) -> Result<Self, CannotExport> {
        let builder = Client::builder()
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .retry(retry::never())
            .referer(false)
            .timeout(settings.timeout)
            .default_headers(settings.headers.clone());
        // A proxy cannot reach this machine's loopback address.
        let builder = if is_loopback(&settings.url) { builder.no_proxy() } else { builder };
        let builder = match settings.authorities.clone() {
            Some(authorities) => builder.tls_certs_only(authorities),
            None => builder,
        };
        let client = builder.build()?;
        let queue = Arc::new(SpanQueue::new(settings.queue_spans, settings.batch_spans));
        Ok(Self { settings, queue, client, is_failing: false })
    }

    /// The sink for the host's tracer, with the counters.
    pub fn queue(&self) -> Arc<SpanQueue> {
        self.queue.clone()
    }

    /// Sends batches until `shutdown` ends; then sends what waits, for 5 s at most.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let queue = self.queue.clone();
        let mut shutdown = pin!(shutdown);
        let mut is_stopping = false;
        while !is_stopping {
            tokio::select! {
                () = &mut shutdown => is_stopping = true,
                () = queue.full_batch() => {}
                () = sleep(self.settings.delay) => {}
            }
            let mut sending = pin!(self.send_all());
            if !is_stopping {
                tokio::select! {
                    () = &mut shutdown => is_stopping = true,
                    () = &mut sending => continue,
                }
            }
            // Spans that are not sent after this time are counted when they are dropped.
            let _ = timeout(LAST_FLUSH, sending).await;
        }
        queue.close();
    }

    async fn send_all(&mut self) {
        while let Some(batch) = self.queue.take() {
            self.send(batch).await;
        }
    }

    async fn send(&mut self, Batch { bytes, spans }: Batch) {
        let queue = self.queue.clone();
        let mut batch = InFlight(&queue, spans);
        let body = encode(&self.settings.resource, &bytes);
        drop(bytes);
        let body = if self.settings.is_gzip { gzip(&body) } else { body };
        let mut backoff = BACKOFF;
        for call in 1..=CALLS_MAX {
            match self.call(body.clone()).await {
                Ok(rejected) => {
                    let rejected = rejected.min(batch.1);
                    batch.1 -= rejected;
                    add(&queue.refused, rejected);
                    batch.ends_as(&queue.exported);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the collector of traces accepts spans again");
                    }
                    return;
                }
                Err(Fault::Refused(reason)) => {
                    self.record_failure(&reason);
                    return batch.ends_as(&queue.refused);
                }
                Err(Fault::Temporary(reason, after)) => {
                    self.record_failure(&reason);
                    if call < CALLS_MAX {
                        // Hosts that failed together do not come back together.
                        let own = backoff.mul_f64(rand::random::<f64>() / 2.0 + 0.5);
                        sleep(after.unwrap_or(own).min(PAUSE_MAX)).await;
                        backoff = backoff.saturating_mul(2);
                    }
                }
            }
        }
    }

    fn record_failure(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!("the collector of traces does not accept spans: {reason}");
        }
    }

    /// The number of rejected spans.
    async fn call(&self, body: Vec<u8>) -> Result<usize, Fault> {
        let request = self.client.post(self.settings.url.clone());
        let request = request.header(CONTENT_TYPE, "application/x-protobuf").body(body);
        let request = match self.settings.is_gzip {
            true => request.header(CONTENT_ENCODING, "gzip"),
            false => request,
        };
        let answer = request.send().await.map_err(|error| {
            let error: &dyn std::error::Error = &error.without_url();
            let chain = std::iter::successors(Some(error), |error| error.source());
            let reasons: Vec<_> = chain.map(ToString::to_string).collect();
            Fault::Temporary(reasons.join(": "), None)
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(rejected(answer).await);
        }
        let reason = format!("it answers {status}");
        let is_temporary = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        if !is_temporary.contains(&status) {
            return Err(Fault::Refused(reason));
        }
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Err(Fault::Temporary(reason, after))
    }
}

/// The number of spans that an answer rejects; 0 for an answer that cannot be read.
async fn rejected(mut answer: Response) -> usize {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        if body.len() + piece.len() > ANSWER_BYTES {
            return 0;
        }
        body.extend_from_slice(&piece);
    }
    let partial = ExportAnswer::decode(&body[..]).ok().and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
