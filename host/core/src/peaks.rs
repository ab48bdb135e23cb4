//! How much memory the next attempt of an endpoint will need, by its latest ones.
//!
//! **Promise.** The estimate is the largest charge of the last two windows of a component's
//! attempts on its endpoint, and an eighth of `memoryMib` before any has been seen; all of it with
//! `reserveMemory`. It only decides when an attempt is admitted: an attempt that needs more asks
//! for more.
//! **Bounds.** One entry of some 100 bytes for each endpoint that has run, until the endpoint is
//! deleted. **Cost.** One lock and one look into a map at the begin and at the end of an attempt.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::Deployment;
use crate::id::EndpointId;
use crate::runtime::AttemptEnd;
use parking_lot::Mutex;

/// Charged to each sandbox besides its memories and tables: its stack, its page tables and the
/// host's state of it. Most use less than 100 KiB, and a handler with a deep recursion 1 MiB.
pub const SANDBOX_BASE_BYTES: u64 = 512 << 10;

/// Attempts of a window.
const WINDOW_ATTEMPTS: u32 = 32;

/// Time after which a window with fewer attempts ends.
const WINDOW: Duration = Duration::from_secs(600);

/// Part of `memoryMib` that an unknown component is estimated to need.
const UNKNOWN_PART: u64 = 8;

/// The estimates of all endpoints.
#[derive(Debug, Default)]
pub struct Peaks(Mutex<HashMap<EndpointId, PeaksOfEndpoint>>);

#[derive(Debug)]
struct PeaksOfEndpoint {
    component: Option<ComponentDigest>,
    /// The largest charge of the present window, and of the one before.
    now: u64,
    before: u64,
    attempts: u32,
    begun: Instant,
}

impl Peaks {
    /// Bytes that the next attempt of the deployment will probably be charged.
    pub fn estimate(&self, deployment: &Deployment) -> u64 {
        let most = deployment.endpoint.memory_bytes_max() + SANDBOX_BASE_BYTES;
        if deployment.endpoint.settings.reserve_memory {
            return most;
        }
        let known = self.0.lock().get(&deployment.endpoint.id).and_then(|of_endpoint| {
            let is_same = of_endpoint.component == deployment.component;
            is_same.then(|| of_endpoint.now.max(of_endpoint.before))
        });
        let unknown = || deployment.endpoint.memory_bytes_max() / UNKNOWN_PART + SANDBOX_BASE_BYTES;
        known.unwrap_or_else(unknown).min(most)
    }

    /// An attempt has been charged so many bytes.
    pub fn seen(&self, deployment: &Deployment, bytes: u64) {
        self.note(deployment, bytes, Instant::now());
    }

    /// An attempt ended, and was charged so many bytes. If it got no memory, the next two windows
    /// of attempts take all that they may have before they begin.
    pub fn ended<T>(&self, deployment: &Deployment, end: &AttemptEnd<T>, bytes: u64) {
        let all = deployment.endpoint.memory_bytes_max() + SANDBOX_BASE_BYTES;
        let got_none = matches!(end, AttemptEnd::NoMemory);
        self.seen(deployment, if got_none { all } else { bytes });
    }

    /// The endpoint was deleted.
    pub fn forget(&self, endpoint: &EndpointId) {
        self.0.lock().remove(endpoint);
    }

    fn note(&self, deployment: &Deployment, bytes: u64, at: Instant) {
        let mut peaks = self.0.lock();
        let Some(known) = peaks.get_mut(&deployment.endpoint.id) else {
            let new = PeaksOfEndpoint::new(deployment.component, bytes, at);
            peaks.insert(deployment.endpoint.id.clone(), new);
            return;
        };
        if known.component != deployment.component {
            *known = PeaksOfEndpoint::new(deployment.component, bytes, at);
            return;
        }
        if known.attempts >= WINDOW_ATTEMPTS || at.duration_since(known.begun) >= WINDOW {
            (known.before, known.now, known.attempts, known.begun) = (known.now, 0, 0, at);
        }
        known.now = known.now.max(bytes);
        known.attempts += 1;
    }
}

impl PeaksOfEndpoint {
    fn new(component: Option<ComponentDigest>, bytes: u64, at: Instant) -> Self {
        Self { component, now: bytes, before: 0, attempts: 1, begun: at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::endpoint::Endpoint;
    use crate::deploy::template::Template;
    use crate::id::{OwnerId, TemplateId};
    use crate::incarnation::EndpointIncarnation;
    use crate::time::Timestamp;

    const MIB: u64 = 1 << 20;

    fn deployment(component: &[u8], reserve_memory: bool) -> Deployment {
        let (owner, template) = (OwnerId::operator(), TemplateId::new("t").unwrap());
        let id = EndpointId::new("e").unwrap();
        let mut endpoint =
            Endpoint::new(id, owner.clone(), template.clone(), Timestamp::from_millis(0));
        endpoint.settings.memory_mib = 64;
        endpoint.settings.reserve_memory = reserve_memory;
        Deployment {
            endpoint: endpoint.into(),
            template: Template::new(template, owner, "t:latest").into(),
            component: Some(ComponentDigest::of(component)),
            input_schema: None,
            volume: None,
            incarnation: EndpointIncarnation::default(),
        }
    }

    #[test]
    fn the_estimate_is_the_peak_of_two_windows() {
        let deployment = deployment(b"a", false);
        let (peaks, begun) = (Peaks::default(), Instant::now());
        assert_eq!(peaks.estimate(&deployment), 8 * MIB + SANDBOX_BASE_BYTES, "unknown");
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
        peaks.ended(&deployment, &AttemptEnd::<()>::NoMemory, MIB);
        assert_eq!(peaks.estimate(&deployment), 64 * MIB + SANDBOX_BASE_BYTES);
        peaks.note(&deployment, 900 * MIB, begun);
        assert_eq!(
            peaks.estimate(&deployment),
            64 * MIB + SANDBOX_BASE_BYTES,
            "never more than the limit"
        );
        let reserved = self::deployment(b"a", true);
        assert_eq!(peaks.estimate(&reserved), 64 * MIB + SANDBOX_BASE_BYTES, "reserved");
        peaks.forget(&deployment.endpoint.id);
        assert_eq!(peaks.estimate(&deployment), 8 * MIB + SANDBOX_BASE_BYTES);
        peaks.note(&deployment, MIB, begun);
        let changed = self::deployment(b"b", false);
        assert_eq!(peaks.estimate(&changed), 8 * MIB + SANDBOX_BASE_BYTES, "another component");
    }
}
