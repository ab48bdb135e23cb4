//! What a process was told by its store, and so what must be found after a loss of power.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Something that a process does to its store, before (`is_done` is false) and after it was
/// acknowledged. Each endpoint has one caller, who does one thing at a time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) endpoint: String,
    pub(crate) is_done: bool,
    pub(crate) deed: Deed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Deed {
    Submit {
        job: String,
        bytes: usize,
    },
    Claim {
        job: String,
    },
    Append {
        job: String,
        chunks: u64,
    },
    Finish {
        job: String,
        end: End,
    },
    Cancel {
        job: String,
    },
    Retry {
        job: String,
    },
    Purge,
    DeleteEndpoint,
    /// The endpoint's template names this image.
    Deploy {
        image: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Completed { bytes: usize },
    Failed,
    TimedOut,
}

/// A job, as far as it was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) endpoint: String,
    pub(crate) input_bytes: usize,
    pub(crate) state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits or runs: after a crash it waits.
    Open {
        is_claimed: bool,
        chunks: u64,
    },
    Ended {
        end: End,
        chunks: u64,
    },
    Cancelled,
    Removed,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) jobs: BTreeMap<String, Known>,
    /// By endpoint.
    pub(crate) images: BTreeMap<String, String>,
    /// Results that are to be on the bill, by endpoint.
    pub(crate) billed: BTreeMap<String, u64>,
    /// What was begun and not acknowledged, by endpoint.
    begun: BTreeMap<String, Deed>,
}

impl Ledger {
    pub(crate) fn note(&mut self, note: &Note) {
        if note.is_done {
            let begun = self.begun.remove(&note.endpoint);
            assert_eq!(begun.as_ref(), Some(&note.deed));
            self.apply(&note.endpoint, &note.deed);
        } else {
            self.begun.insert(note.endpoint.clone(), note.deed.clone());
        }
    }

    /// The job of the endpoint whose result was on its way.
    pub(crate) fn begun_result(&self, endpoint: &str) -> Option<&String> {
        match self.begun.get(endpoint) {
            Some(Deed::Finish { job, .. }) => Some(job),
            _ => None,
        }
    }

    /// As if everything that was begun had come about.
    pub(crate) fn with_begun(&self) -> Self {
        let mut after = self.clone();
        for (endpoint, deed) in std::mem::take(&mut after.begun) {
            after.apply(&endpoint, &deed);
        }
        after
    }

    fn apply(&mut self, endpoint: &str, deed: &Deed) {
        let job = |job: &String| job.clone();
        match deed {
            Deed::Submit { job: id, bytes } => {
                let state = State::Open { is_claimed: false, chunks: 0 };
                let known = Known { endpoint: endpoint.to_owned(), input_bytes: *bytes, state };
                self.jobs.insert(job(id), known);
            }
            Deed::Claim { job } => *self.state(job) = State::Open { is_claimed: true, chunks: 0 },
            Deed::Append { job, chunks: more } => {
                if let State::Open { chunks, .. } = self.state(job) {
                    *chunks += more;
                }
            }
            Deed::Finish { job, end } => {
                let state = self.state(job);
                let State::Open { chunks, .. } = *state else { panic!("{job} has ended") };
                *state = State::Ended { end: end.clone(), chunks };
                *self.billed.entry(endpoint.to_owned()).or_default() += 1;
            }
            Deed::Cancel { job } => *self.state(job) = State::Cancelled,
            Deed::Retry { job } => *self.state(job) = State::Open { is_claimed: false, chunks: 0 },
            Deed::Purge => self
                .remove(endpoint, |state| matches!(state, State::Open { is_claimed: false, .. })),
            Deed::DeleteEndpoint => self.remove(endpoint, |_| true),
            Deed::Deploy { image } => drop(self.images.insert(endpoint.to_owned(), image.clone())),
        }
    }

    fn state(&mut self, job: &str) -> &mut State {
        &mut self.jobs.get_mut(job).unwrap().state
    }

    fn remove(&mut self, endpoint: &str, is_meant: impl Fn(&State) -> bool) {
        for known in self.jobs.values_mut() {
            if known.endpoint == endpoint && is_meant(&known.state) {
                known.state = State::Removed;
            }
        }
    }
}
