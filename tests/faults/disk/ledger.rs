//! The answers that a process got from its store, which determine the state after a loss of power.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An operation of a process on its store, before (`is_done` is false) and after it was
/// acknowledged. Each endpoint has one caller, with one operation at a time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) endpoint: String,
    pub(crate) is_done: bool,
    pub(crate) operation: Operation,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    Submit {
        job: String,
        bytes: usize,
    },
    /// The oldest waiting job is claimed: its caller learns from the answer which job that is.
    ClaimOldest,
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
    /// A process has begun after a kill. Running jobs wait again, and no change is in progress.
    Restart,
    /// A process has found the job in this state after a kill, and shown it.
    Find {
        job: String,
        bytes: usize,
        state: State,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Completed { bytes: usize },
    Failed,
    TimedOut,
}

/// A job, with its acknowledged state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownJob {
    pub(crate) endpoint: String,
    pub(crate) input_bytes: usize,
    pub(crate) state: State,
    /// Processes that may have been killed while it ran.
    pub(crate) crashes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    pub(crate) jobs: BTreeMap<String, KnownJob>,
    /// By endpoint.
    pub(crate) images: BTreeMap<String, String>,
    /// Results that must be billed, by endpoint.
    pub(crate) billed: BTreeMap<String, u64>,
    /// Begun operations without an acknowledgement, by endpoint.
    begun: BTreeMap<String, Operation>,
}

impl Ledger {
    /// Adds notes, one per line.
    pub(crate) fn note_all(&mut self, notes: &[u8]) {
        for line in notes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.note(&serde_json::from_slice(line).unwrap());
        }
    }

    pub(crate) fn note(&mut self, note: &Note) {
        if matches!(note.operation, Operation::Restart | Operation::Find { .. }) {
            self.apply(&note.endpoint, &note.operation);
        } else if note.is_done {
            let begun = self.begun.remove(&note.endpoint);
            assert_eq!(begun.as_ref(), Some(&note.operation));
            self.apply(&note.endpoint, &note.operation);
        } else {
            self.begun.insert(note.endpoint.clone(), note.operation.clone());
        }
    }

    /// The endpoint's job whose result was being written.
    pub(crate) fn begun_result(&self, endpoint: &str) -> Option<&String> {
        match self.begun.get(endpoint) {
            Some(Operation::Finish { job, .. }) => Some(job),
            _ => None,
        }
    }

    /// The state if all begun operations had been completed.
    pub(crate) fn with_begun(&self) -> Self {
        let mut after = self.clone();
        for (endpoint, operation) in std::mem::take(&mut after.begun) {
            after.apply(&endpoint, &operation);
        }
        after
    }

    fn apply(&mut self, endpoint: &str, operation: &Operation) {
        let job = |job: &String| job.clone();
        match operation {
            Operation::Submit { job: id, bytes } => {
                let state = State::Open { is_claimed: false, chunks: 0 };
                let endpoint = endpoint.to_owned();
                let known = KnownJob { endpoint, input_bytes: *bytes, state, crashes: 0 };
                self.jobs.insert(job(id), known);
            }
            // Any waiting job of the endpoint may be the claimed job.
            Operation::ClaimOldest => {
                for known in self.jobs.values_mut().filter(|known| known.endpoint == endpoint) {
                    if let State::Open { is_claimed, .. } = &mut known.state {
                        *is_claimed = true;
                    }
                }
            }
            Operation::Claim { job } => {
                *self.state(job) = State::Open { is_claimed: true, chunks: 0 }
            }
            Operation::Append { job, chunks: more } => {
                if let State::Open { chunks, .. } = self.state(job) {
                    *chunks += more;
                }
            }
            Operation::Finish { job, end } => {
                let state = self.state(job);
                let State::Open { chunks, .. } = *state else { panic!("{job} has ended") };
                *state = State::Ended { end: end.clone(), chunks };
                *self.billed.entry(endpoint.to_owned()).or_default() += 1;
            }
            Operation::Cancel { job } => *self.state(job) = State::Cancelled,
            Operation::Retry { job } => {
                *self.state(job) = State::Open { is_claimed: false, chunks: 0 }
            }
            Operation::Purge => self
                .remove(endpoint, |state| matches!(state, State::Open { is_claimed: false, .. })),
            Operation::DeleteEndpoint => self.remove(endpoint, |_| true),
            Operation::Deploy { image } => {
                drop(self.images.insert(endpoint.to_owned(), image.clone()))
            }
            Operation::Restart => self.restart(),
            Operation::Find { job, bytes, state } => self.find(endpoint, job, *bytes, state),
        }
    }

    fn restart(&mut self) {
        for (endpoint, operation) in std::mem::take(&mut self.begun) {
            if matches!(operation, Operation::ClaimOldest | Operation::Claim { .. }) {
                self.apply(&endpoint, &operation);
            }
        }
        for known in self.jobs.values_mut() {
            if let State::Open { is_claimed, chunks } = &mut known.state {
                known.crashes += u32::from(std::mem::take(is_claimed));
                *chunks = 0;
            }
        }
    }

    fn find(&mut self, endpoint: &str, job: &str, bytes: usize, state: &State) {
        let known = self.jobs.entry(job.to_owned()).or_insert_with(|| KnownJob {
            endpoint: endpoint.to_owned(),
            input_bytes: bytes,
            state: State::Open { is_claimed: false, chunks: 0 },
            crashes: 0,
        });
        if matches!((&known.state, state), (State::Open { .. }, State::Ended { .. })) {
            *self.billed.entry(endpoint.to_owned()).or_default() += 1;
        }
        known.state = state.clone();
    }

    fn state(&mut self, job: &str) -> &mut State {
        &mut self.jobs.get_mut(job).unwrap().state
    }

    fn remove(&mut self, endpoint: &str, is_selected: impl Fn(&State) -> bool) {
        for known in self.jobs.values_mut() {
            if known.endpoint == endpoint && is_selected(&known.state) {
                known.state = State::Removed;
            }
        }
    }
}
