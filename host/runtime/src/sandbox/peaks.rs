//! How much memory the next attempt of an endpoint will need, by its latest ones.
//!
//! **Promise.** The estimate is the largest charge of the last two windows of a component's
//! attempts on its endpoint, and an eighth of `memoryMib` before any has been seen; all of it with
//! `reserveMemory`. It only decides when an attempt is admitted: an attempt that needs more asks
//! for more.
//! **Bounds.** One entry of some 100 bytes for each endpoint that has run, until the endpoint is
//! deleted. **Cost.** One lock and one look into a map at the begin and at the end of an attempt.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::EndpointId;
use parking_lot::Mutex;

use crate::sandbox::limiter::BASE_BYTES;

/// Attempts of a window.
const WINDOW_ATTEMPTS: u32 = 32;

/// Time after which a window with fewer attempts ends.
const WINDOW: Duration = Duration::from_secs(600);

/// Part of `memoryMib` that an unknown component is estimated to need.
const UNKNOWN_PART: u64 = 8;

/// The estimates of all endpoints.
#[derive(Debug, Default)]
pub(crate) struct Peaks(Mutex<HashMap<EndpointId, OfEndpoint>>);

#[derive(Debug)]
struct OfEndpoint {
    component: Option<ComponentDigest>,
    /// The largest charge of the present window, and of the one before.
    now: u64,
    before: u64,
    attempts: u32,
    begun: Instant,
}

impl Peaks {
    /// Bytes that the next attempt of the deployment will probably be charged.
    pub(crate) fn estimate(&self, deployment: &Deployment) -> u64 {
        let most = deployment.endpoint.memory_bytes_max() + BASE_BYTES;
        if deployment.endpoint.settings.reserve_memory {
            return most;
        }
        let known = self.0.lock().get(&deployment.endpoint.id).and_then(|of_endpoint| {
            let is_same = of_endpoint.component == deployment.component;
            is_same.then(|| of_endpoint.now.max(of_endpoint.before))
        });
        let unknown = || deployment.endpoint.memory_bytes_max() / UNKNOWN_PART + BASE_BYTES;
        known.unwrap_or_else(unknown).min(most)
    }

    /// An attempt has been charged so many bytes.
    pub(crate) fn seen(&self, deployment: &Deployment, bytes: u64) {
        self.note(deployment, bytes, Instant::now());
    }

    /// An attempt of the deployment got no memory: the next two windows of attempts take all that
    /// they may have before they begin.
    pub(crate) fn got_no_memory(&self, deployment: &Deployment) {
        self.seen(deployment, deployment.endpoint.memory_bytes_max() + BASE_BYTES);
    }

    /// The endpoint was deleted.
    pub(crate) fn forget(&self, endpoint: &EndpointId) {
        self.0.lock().remove(endpoint);
    }

    fn note(&self, deployment: &Deployment, bytes: u64, at: Instant) {
        let mut peaks = self.0.lock();
        let Some(known) = peaks.get_mut(&deployment.endpoint.id) else {
            let new = OfEndpoint::new(deployment.component, bytes, at);
            peaks.insert(deployment.endpoint.id.clone(), new);
            return;
        };
        if known.component != deployment.component {
            *known = OfEndpoint::new(deployment.component, bytes, at);
            return;
        }
        if known.attempts >= WINDOW_ATTEMPTS || at.duration_since(known.begun) >= WINDOW {
            (known.before, known.now, known.attempts, known.begun) = (known.now, 0, 0, at);
        }
        known.now = known.now.max(bytes);
        known.attempts += 1;
    }
}

impl OfEndpoint {
    fn new(component: Option<ComponentDigest>, bytes: u64, at: Instant) -> Self {
        Self { component, now: bytes, before: 0, attempts: 1, begun: at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, TestRuntime, guest};

    const MIB: u64 = 1 << 20;

    #[tokio::test]
    async fn the_estimate_is_the_peak_of_two_windows() {
        let runtime = TestRuntime::open();
        let mut run = Run::of(&runtime.add(guest("unreachable")).await);
        run.endpoint.settings.memory_mib = 64;
        let deployment = run.deployment();
        let (peaks, begun) = (Peaks::default(), Instant::now());
        assert_eq!(peaks.estimate(&deployment), 8 * MIB + BASE_BYTES, "unknown");
        peaks.note(&deployment, 3 * MIB, begun);
        assert_eq!(peaks.estimate(&deployment), 3 * MIB);
        for _ in 0..WINDOW_ATTEMPTS {
            peaks.note(&deployment, MIB, begun);
        }
        assert_eq!(peaks.estimate(&deployment), 3 * MIB, "the window before");
        for _ in 0..WINDOW_ATTEMPTS {
            peaks.note(&deployment, MIB, begun);
        }
        assert_eq!(peaks.estimate(&deployment), MIB);
        peaks.note(&deployment, 2 * MIB, begun);
        for windows in 1..=2 {
            peaks.note(&deployment, MIB, begun + windows * WINDOW);
        }
        assert_eq!(peaks.estimate(&deployment), MIB, "windows end by time too");
        peaks.got_no_memory(&deployment);
        assert_eq!(peaks.estimate(&deployment), 64 * MIB + BASE_BYTES);
        peaks.note(&deployment, 900 * MIB, begun);
        assert_eq!(peaks.estimate(&deployment), 64 * MIB + BASE_BYTES, "never more than the limit");
        run.endpoint.settings.reserve_memory = true;
        assert_eq!(peaks.estimate(&run.deployment()), 64 * MIB + BASE_BYTES, "reserved");
        peaks.forget(&deployment.endpoint.id);
        assert_eq!(peaks.estimate(&deployment), 8 * MIB + BASE_BYTES);
        peaks.note(&deployment, MIB, begun);
        let other = Run::of(&runtime.add(guest("(unreachable) (unreachable)")).await);
        let mut changed = (*deployment).clone();
        changed.component = other.deployment().component;
        assert_eq!(peaks.estimate(&changed), 8 * MIB + BASE_BYTES, "another component");
    }
}
