//! The metrics of endpoints: counters, gauges and histograms with the label `endpoint`.

use std::fmt;

use gristmill_control::SeriesValues;
use gristmill_core::metrics::endpoint::{
    FinishedAs, RefusedFor, RequestEnd, SubmittedBy, WebhookEnd,
};
use gristmill_core::metrics::instruments::DurationTotals;
use gristmill_core::metrics::requests::AnswerClass;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::encode::{self, Labels};

/// The series of all endpoints at one time.
#[derive(Debug)]
pub(super) struct Endpoints(pub(super) Vec<SeriesValues>);

/// The name, the help and the value of a metric.
type Plain = (&'static str, &'static str, fn(&SeriesValues) -> u64);
type Histogram = (&'static str, &'static str, fn(&SeriesValues) -> &DurationTotals);

impl Collector for Endpoints {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.counters(&mut encoder)?;
        self.gauges(&mut encoder)?;
        let histograms: [Histogram; 5] = [
            ("job_wait", "Time between queueing and start of an attempt", |one| &one.totals.wait),
            ("job_start", "Time until the instance of an attempt is ready", |one| {
                &one.totals.start
            }),
            ("job_run", "Run time of an attempt", |one| &one.totals.run),
            ("job_cpu", "Processor time of an attempt", |one| &one.totals.cpu),
            (
                "outgoing_request",
                "Time of a request of a handler until the head of its answer",
                |one| &one.totals.request,
            ),
        ];
        for (name, help, durations) in histograms {
            self.histogram(&mut encoder, name, help, durations)?;
        }
        self.with_requests().requests(&mut encoder)
    }
}

impl Endpoints {
    /// The series with HTTP requests. The shared one may have those of deleted endpoints only.
    fn with_requests(&self) -> Self {
        let has_requests = |one: &&SeriesValues| {
            one.now.waiting_requests.is_some() || one.totals.http.whole.count() > 0
        };
        Self(self.0.iter().filter(has_requests).cloned().collect())
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let classes = AnswerClass::ALL.map(AnswerClass::as_str);
        self.dimension(
            encoder,
            ("requests", "HTTP requests that have ended", MetricType::Counter),
            &classes.map(|text| vec![("status", text)]),
            |one, at| one.totals.http.answers.get(at).copied(),
            count,
        )?;
        let bytes = [[("direction", "in")], [("direction", "out")]];
        self.dimension(
            encoder,
            (
                "request_bytes",
                "Bytes of the bodies of HTTP requests, and of their answers",
                MetricType::Counter,
            ),
            &bytes.map(Vec::from),
            |one, at| [one.totals.http.bytes_in, one.totals.http.bytes_out].get(at).copied(),
            count,
        )?;
        let kind = ("requests_waiting", "HTTP requests that wait for a worker", MetricType::Gauge);
        self.dimension(encoder, kind, &[vec![]], |one, _| one.now.waiting_requests, gauge)?;
        let histograms: [Histogram; 2] = [
            ("request_head", "Time of an HTTP request until the head of its answer", |one| {
                &one.totals.http.head
            }),
            ("request", "Time of an HTTP request until its end", |one| &one.totals.http.whole),
        ];
        for (name, help, durations) in histograms {
            self.histogram(encoder, name, help, durations)?;
        }
        Ok(())
    }

    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let by = SubmittedBy::ALL.map(SubmittedBy::as_str);
        self.dimension(
            encoder,
            ("jobs_submitted", "Accepted submissions", MetricType::Counter),
            &by.map(|text| vec![("operation", text)]),
            |one, at| one.totals.submitted.get(at).copied(),
            count,
        )?;
        let why = RefusedFor::ALL.map(RefusedFor::as_str);
        self.dimension(
            encoder,
            ("jobs_refused", "Submissions that a limit refused", MetricType::Counter),
            &why.map(|text| vec![("code", text)]),
            |one, at| one.totals.refused.get(at).copied(),
            count,
        )?;
        let ends = FinishedAs::ALL.map(|end| match end.reason() {
            "" => vec![("status", end.status())],
            reason => vec![("status", end.status()), ("reason", reason)],
        });
        self.dimension(
            encoder,
            ("jobs_finished", "Attempts with a result", MetricType::Counter),
            &ends,
            |one, at| one.totals.finished.get(at).copied(),
            count,
        )?;
        let ends = WebhookEnd::ALL.map(WebhookEnd::as_str);
        self.dimension(
            encoder,
            ("webhook_attempts", "Attempts to send a webhook", MetricType::Counter),
            &ends.map(|text| vec![("result", text)]),
            |one, at| one.totals.webhooks.get(at).copied(),
            count,
        )?;
        let ends = RequestEnd::ALL.map(RequestEnd::as_str);
        self.dimension(
            encoder,
            ("outgoing_requests", "Requests that handlers made", MetricType::Counter),
            &ends.map(|text| vec![("result", text)]),
            |one, at| one.totals.requests.get(at).copied(),
            count,
        )?;
        let bytes = [[("direction", "sent")], [("direction", "received")]];
        self.dimension(
            encoder,
            (
                "outgoing_bytes",
                "Bytes of the bodies of requests that handlers made, and of their answers",
                MetricType::Counter,
            ),
            &bytes.map(Vec::from),
            |one, at| [one.totals.sent_bytes, one.totals.received_bytes].get(at).copied(),
            count,
        )?;
        let plain: [Plain; 5] = [
            ("jobs_cancelled", "Jobs that calls cancelled or purged", |one| one.totals.cancelled),
            ("jobs_expired", "Jobs whose ttl was over before they had a result", |one| {
                one.totals.expired
            }),
            ("job_retries", "Jobs that were queued again", |one| one.totals.requeued),
            ("stream_chunks", "Chunks of streams", |one| one.totals.chunks),
            ("log_lines_dropped", "Log lines beyond the bound of an attempt", |one| {
                one.totals.log_lines_dropped
            }),
        ];
        for (name, help, value) in plain {
            let kind = (name, help, MetricType::Counter);
            self.dimension(encoder, kind, &[vec![]], |one, _| Some(value(one)), count)?;
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
            self.dimension(encoder, kind, &[vec![]], |one, _| Some(value(one)), gauge)?;
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
            &states.map(|text| vec![("state", text)]),
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

    /// Writes a metric with one value for each endpoint and each set of further labels.
    fn dimension(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        sets: &[Vec<(&str, &str)>],
        value: impl Fn(&SeriesValues, usize) -> Option<u64>,
        write: impl Fn(MetricEncoder<'_>, u64) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for one in &self.0 {
            let mut labels = vec![("endpoint", one.endpoint.as_str())];
            for (at, further) in sets.iter().enumerate() {
                labels.truncate(1);
                labels.extend(further);
                let labels: Labels<'_> = &labels;
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
        durations: fn(&SeriesValues) -> &DurationTotals,
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
