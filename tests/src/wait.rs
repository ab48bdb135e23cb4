//! Waiting with a bound, and figures about what was measured.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen soon. Far above what it takes, so that a busy
/// machine fails no test; far below what would hold a run up.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Asks `look` again and again until it answers `Some`.
///
/// # Panics
/// When that takes longer than [`PATIENCE`]; `what` names what was waited for.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        let waited = begun.elapsed();
        assert!(waited < PATIENCE, "waited {PATIENCE:?} for: {what}");
        // What takes long is asked about less often: a host whose clock stands still counts every call.
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
