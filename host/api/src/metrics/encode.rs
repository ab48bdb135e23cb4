//! Writes durations as a histogram.

use std::fmt;

use gristmill_core::metrics::instruments::{DURATION_BOUNDS_US, DurationTotals};
use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Names and values of labels.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Writes one histogram of a metric.
pub(super) fn histogram(
    metric: &mut MetricEncoder<'_>,
    labels: Labels<'_>,
    durations: &DurationTotals,
) -> fmt::Result {
    let bounds = DURATION_BOUNDS_US.map(seconds).into_iter().chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(durations.buckets).collect();
    let (sum, count) = (seconds(durations.sum_us), durations.count());
    if labels.is_empty() {
        return metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None);
    }
    metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum above 2^53 us, 285 years, loses microseconds"
)]
fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}
