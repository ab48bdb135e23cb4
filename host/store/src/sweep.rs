//! Removals too large for one step. The writer carries them out slice by slice between its
//! transactions, so that no call holds the lock for long, what waits for the disk stays bounded,
//! and a caller that goes away does not stop them half-way.

use gristmill_core::job::JobEvent;
use gristmill_core::time::Timestamp;
use tokio::sync::oneshot;

use crate::asks::Write;
use crate::entry::{Ack, EndpointKey};
use crate::index::Index;

/// Jobs that one slice removes, or looks at.
pub(crate) const SLICE: usize = 1_000;

/// A removal that goes on.
#[derive(Debug)]
pub(crate) enum Sweep {
    /// Remove the jobs that wait on an endpoint and came before `until`.
    Purge { endpoint: EndpointKey, until: u64, removed: u64, answer: oneshot::Sender<Purged> },
    /// Remove all jobs of an endpoint, then the endpoint.
    Forget { endpoint: EndpointKey, from: usize, ack: Ack },
}

/// How many jobs a purge removed, and what resolves when they are gone from the disk too.
#[derive(Debug)]
pub(crate) struct Purged {
    pub(crate) removed: u64,
    pub(crate) on_disk: oneshot::Receiver<()>,
}

impl Index {
    /// Carries out one slice of the first sweep, if there is one.
    pub(crate) fn sweep_slice(&mut self, now: Timestamp) {
        match self.sweeps.pop_front() {
            Some(Sweep::Purge { endpoint, until, mut removed, answer }) => {
                let ready = self.endpoints.get(&endpoint).map(|endpoint| &endpoint.ready);
                let keys = ready.map(|ready| ready.before(until, SLICE)).unwrap_or_default();
                for &key in &keys {
                    let purged = self.decide(key, JobEvent::Purged, now);
                    debug_assert!(purged.is_ok(), "a job in the queue can be purged");
                    removed += 1;
                }
                if keys.len() == SLICE {
                    self.sweeps.push_front(Sweep::Purge { endpoint, until, removed, answer });
                } else {
                    let (ack, on_disk) = oneshot::channel();
                    self.ack_all(ack);
                    // A caller that went away does not want to know.
                    let _ = answer.send(Purged { removed, on_disk });
                }
            }
            Some(Sweep::Forget { endpoint, from, ack }) => {
                let to = (from + SLICE).min(self.jobs.end());
                let slice = self.jobs.range(from..to);
                let keys: Vec<_> =
                    slice.filter(|(_, job)| job.endpoint == endpoint).map(|(key, _)| key).collect();
                for key in keys {
                    // The end of the endpoint is the end of its jobs' time. One that is gone
                    // already refuses.
                    let _ = self.decide(key, JobEvent::TtlElapsed, now);
                }
                if to < self.jobs.end() {
                    self.sweeps.push_front(Sweep::Forget { endpoint, from: to, ack });
                } else {
                    self.backlog.push_last(Write::Forget(endpoint, ack));
                }
            }
            None => {}
        }
    }
}
