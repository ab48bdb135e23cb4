//! Waiting with a bound, and statistics of measurements.

use std::time::{Duration, Instant};

/// How long a test waits for an event that should occur soon. Far above the usual time, so that no
/// test fails on a busy machine; and short enough for a hanging run.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Calls `look` repeatedly until it returns `Some`.
///
/// # Panics
/// When that takes longer than [`PATIENCE`]; `what` describes the awaited event.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        let waited = begun.elapsed();
        assert!(waited < PATIENCE, "waited {PATIENCE:?} for: {what}");
        // The pause grows with the time, since a host with a stopped clock counts every call.
        let pause = (waited / 20).clamp(Duration::from_millis(20), Duration::from_millis(500));
        tokio::time::sleep(pause).await;
    }
}

/// The value below which `percent` of the samples lie.
pub fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort();
    let index = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
    samples.get(index).copied().unwrap_or_default()
}
