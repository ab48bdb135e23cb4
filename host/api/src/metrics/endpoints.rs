//! The metrics of endpoints: counters, gauges and histograms with the label `endpoint`.

use std::fmt;
use std::slice;

use gristmill_core::endpoint_metrics::{FinishedAs, RefusedFor, SubmittedBy, WebhookEnd};
use gristmill_core::endpoint_series::Series;
use gristmill_core::metrics::DurationTotals;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::encode::{self, Labels};

/// The series of all endpoints at one time.
#[derive(Debug)]
pub(super) struct Endpoints(pub(super) Vec<Series>);

/// The name, the help and the value of a metric.
type Plain = (&'static str, &'static str, fn(&Series) -> u64);
type Histogram = (&'static str, &'static str, fn(&Series) -> &DurationTotals);

impl Collector for Endpoints {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.counters(&mut encoder)?;
        self.gauges(&mut encoder)?;
        let histograms: [Histogram; 3] = [
            ("job_wait", "Time between queueing and start of an attempt", |one| &one.totals.wait),
            ("job_run", "Run time of an attempt", |one| &one.totals.run),
            ("job_cpu", "Processor time of an attempt", |one| &one.totals.cpu),
        ];
        for (name, help, durations) in histograms {
            self.histogram(&mut encoder, name, help, durations)?;
        }
        Ok(())
    }
}

impl Endpoints {
    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let by = SubmittedBy::ALL.map(SubmittedBy::as_str);
        self.dimension(
            encoder,
            ("jobs_submitted", "Accepted submissions", MetricType::Counter),
            ("operation", &by),
            |one, at| one.totals.submitted.get(at).copied(),
            count,
        )?;
        let why = RefusedFor::ALL.map(RefusedFor::as_str);
        self.dimension(
            encoder,
            ("jobs_refused", "Submissions that a limit refused", MetricType::Counter),
            ("code", &why),
            |one, at| one.totals.refused.get(at).copied(),
            count,
        )?;
        let status = FinishedAs::ALL.map(FinishedAs::as_str);
        self.dimension(
            encoder,
            ("jobs_finished", "Attempts with a result", MetricType::Counter),
            ("status", &status),
            |one, at| one.totals.finished.get(at).copied(),
            count,
        )?;
        let ends = WebhookEnd::ALL.map(WebhookEnd::as_str);
        self.dimension(
            encoder,
            ("webhook_attempts", "Attempts to send a webhook", MetricType::Counter),
            ("result", &ends),
            |one, at| one.totals.webhooks.get(at).copied(),
            count,
        )?;
        let plain: [Plain; 3] = [
            ("job_retries", "Jobs that were queued again", |one| one.totals.requeued),
            ("stream_chunks", "Chunks of streams", |one| one.totals.chunks),
            ("log_lines_dropped", "Log lines beyond the bound of an attempt", |one| {
                one.totals.log_lines_dropped
            }),
        ];
        for (name, help, value) in plain {
            let kind = (name, help, MetricType::Counter);
            self.dimension(encoder, kind, ("", &[""]), |one, _| Some(value(one)), count)?;
        }
        Ok(())
    }

    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let plain: [Plain; 2] = [
            ("jobs_waiting", "Jobs that wait for a worker", |one| one.now.jobs.in_queue),
            ("jobs_running", "Jobs that run", |one| one.now.jobs.in_progress),
        ];
        for (name, help, value) in plain {
            let kind = (name, help, MetricType::Gauge);
            self.dimension(encoder, kind, ("", &[""]), |one, _| Some(value(one)), gauge)?;
        }
        let help = "Age of the next job to start, without low-priority jobs; 0 when none waits";
        let mut ages = encoder.encode_descriptor(
            "oldest_waiting_job_age",
            help,
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for one in &self.0 {
            let labels: Labels<'_> = &[("endpoint", &one.endpoint)];
            #[expect(clippy::cast_precision_loss, reason = "ages are below 2^52 ms")]
            let seconds = one.now.oldest_waiting_ms as f64 / 1_000.0;
            ages.encode_family(&labels)?.encode_gauge(&seconds)?;
        }
        let states = ["idle", "initializing", "running", "throttled", "unhealthy"];
        self.dimension(
            encoder,
            ("workers", "Workers by state", MetricType::Gauge),
            ("state", &states),
            |one, at| {
                let workers = &one.now.workers;
                let counts = [
                    workers.idle,
                    workers.initializing,
                    workers.running,
                    workers.throttled,
                    workers.unhealthy,
                ];
                counts.get(at).copied()
            },
            gauge,
        )
    }

    /// Writes a metric with one value for each endpoint and each value of a further label. The label
    /// is left out when its name is empty.
    fn dimension(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        (label, values): (&str, &[&str]),
        value: impl Fn(&Series, usize) -> Option<u64>,
        write: impl Fn(MetricEncoder<'_>, u64) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for one in &self.0 {
            for (at, text) in values.iter().enumerate() {
                let labels = [("endpoint", one.endpoint.as_str()), (label, *text)];
                let labels = if label.is_empty() { slice::from_ref(&labels[0]) } else { &labels };
                write(metric.encode_family(&labels)?, value(one, at).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    fn histogram(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        durations: fn(&Series) -> &DurationTotals,
    ) -> fmt::Result {
        let mut metric =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for one in &self.0 {
            encode::histogram(&mut metric, &[("endpoint", &one.endpoint)], durations(one))?;
        }
        Ok(())
    }
}

fn count(mut metric: MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn gauge(mut metric: MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_gauge(&value)
}
