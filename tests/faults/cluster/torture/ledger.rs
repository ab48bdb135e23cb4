//! The promises that clients have received, compared with all later answers. A broken promise stops
//! the test there.
//!
//! Calls overtake each other, so an answer is compared with the knowledge from before its call was
//! sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Instant;

use rand::seq::{IndexedRandom as _, IteratorRandom as _};
use serde_json::Value;

use super::submission::{Kind, Submission};

/// Jobs that are read again and again.
const RECENT: usize = 200;

/// The most ends of a job that is retried once more.
const ENDS_MAX: usize = 2;

/// An end of a job. A job has several ends only after retries.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// How often the job had been queued again by then.
    pub(crate) retries: u64,
    pub(crate) status: String,
    /// The whole document, which never changes after the end.
    pub(crate) text: String,
    known: Instant,
}

/// The knowledge about one job.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) submission: Submission,
    /// All ends that were seen, in their order.
    pub(crate) ends: Vec<End>,
    /// The final status that an acknowledged cancel has shown, and when it was known.
    cancelled: Option<(Instant, String)>,
    is_cancel_sent: bool,
    /// The numbers of retries that answers have shown or promised, and since when each is known.
    promised: Vec<(u64, Instant)>,
    /// Retries that were acknowledged.
    pub(crate) retries_acknowledged: u64,
    /// Retries that were acknowledged, or whose outcome is unknown.
    pub(crate) retries_possible: u64,
}

impl Entry {
    fn new(submission: Submission) -> Self {
        Self {
            submission,
            ends: Vec::new(),
            cancelled: None,
            is_cancel_sent: false,
            promised: Vec::new(),
            retries_acknowledged: 0,
            retries_possible: 0,
        }
    }

    fn promise(&mut self, retries: u64) {
        if self.promised.iter().all(|(known, _)| *known < retries) {
            self.promised.push((retries, Instant::now()));
        }
    }

    /// Compares an answer with the promises that were known when its call began.
    fn check_promises(&self, began: Instant, retries: u64, text: &str) {
        for (promised, known) in &self.promised {
            assert!(*known > began || retries >= *promised, "lost: a retry: {text}: {self:?}");
        }
        let earlier = self.ends.iter().filter(|end| end.retries < retries).count() as u64;
        assert!(
            earlier <= self.retries_possible,
            "double: a job that has ended runs again: {text}: {self:?}"
        );
    }

    fn saw_open(&self, began: Instant, retries: u64, text: &str) {
        let ended = self.ends.iter().any(|end| end.retries >= retries && end.known < began);
        assert!(!ended, "double: a job that has ended runs again: {text}: {self:?}");
        let is_cancelled = self.cancelled.as_ref().is_some_and(|(known, _)| *known < began);
        assert!(!is_cancelled, "lost: a cancel: {text}: {self:?}");
    }

    fn saw_end(&mut self, began: Instant, retries: u64, document: &Value, text: &str) {
        if let Some(end) = self.ends.iter().find(|end| end.retries == retries) {
            assert!(end.text == text, "double: two results of one job: {text}: {self:?}");
            return;
        }
        let is_stale = self.ends.iter().any(|end| end.retries > retries && end.known < began);
        assert!(!is_stale, "lost: a later end: {text}: {self:?}");
        let permitted = self.submission.permits(document, self.is_cancel_sent);
        assert!(permitted, "wrong: {text}: {self:?}");
        let status = document["status"].as_str().unwrap().to_owned();
        if let Some((_, shown)) = &self.cancelled {
            assert_eq!(status, *shown, "lost: a cancel: {text}: {self:?}");
        }
        self.ends.push(End { retries, status, text: text.to_owned(), known: Instant::now() });
        self.ends.sort_by_key(|end| end.retries);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<String, Entry>,
    /// In the order of their answers.
    order: Vec<String>,
    /// Jobs that must still end, since their submission or a retry, and since when.
    open: BTreeMap<String, Instant>,
    /// Jobs that a retrier has taken and not released yet.
    taken: BTreeSet<String>,
    /// Jobs with chunks that no reader has taken yet.
    streams: Vec<String>,
    /// Answers by their operation.
    answers: BTreeMap<&'static str, u64>,
}

impl State {
    fn entry(&mut self, job: &str) -> &mut Entry {
        self.jobs.get_mut(job).unwrap()
    }
}

impl Ledger {
    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.0.lock().unwrap())
    }

    pub(crate) fn count(&self, what: &'static str) {
        self.with(|state| *state.answers.entry(what).or_default() += 1);
    }

    pub(crate) fn answers(&self) -> BTreeMap<&'static str, u64> {
        self.with(|state| state.answers.clone())
    }

    /// A submission was answered with this job; a repeated one must have the same job.
    pub(crate) fn acknowledged(&self, job: &str, submission: &Submission) {
        self.with(|state| {
            if let Some(known) = state.jobs.get(job) {
                let first = known.submission.number;
                assert_eq!(first, submission.number, "double: {job} is the answer to two calls");
                return;
            }
            let number = submission.number;
            let mut known = state.jobs.values().map(|entry| entry.submission.number);
            assert!(known.all(|known| known != number), "double: two jobs of number {number}");
            state.jobs.insert(job.to_owned(), Entry::new(submission.clone()));
            state.order.push(job.to_owned());
            state.open.insert(job.to_owned(), Instant::now());
            if !submission.chunks().is_empty() {
                state.streams.push(job.to_owned());
            }
        });
    }

    /// Compares the document of a job with everything that was known before its call began; true
    /// when the job has ended.
    pub(crate) fn saw(&self, job: &str, began: Instant, text: &str) -> bool {
        let document: Value = serde_json::from_str(text).unwrap();
        assert_eq!(document["id"], job, "wrong: another job: {text}");
        let retries = document["retries"].as_u64().unwrap_or(0);
        self.with(|state| {
            let entry = state.entry(job);
            entry.check_promises(began, retries, text);
            entry.promise(retries);
            if !is_final(&document) {
                entry.saw_open(began, retries, text);
                return false;
            }
            entry.saw_end(began, retries, &document, text);
            if state.open.get(job).is_some_and(|since| *since < began) {
                state.open.remove(job);
            }
            true
        })
    }

    /// A cancel is about to be sent.
    pub(crate) fn cancel_sent(&self, job: &str) {
        self.with(|state| state.entry(job).is_cancel_sent = true);
    }

    /// A cancel was answered with this status, which stays.
    pub(crate) fn cancelled(&self, job: &str, status: &str) {
        self.with(|state| {
            let entry = state.entry(job);
            for known in entry.ends.iter().map(|end| &end.status) {
                assert_eq!(known, status, "wrong: the answer of a cancel: {entry:?}");
            }
            if let Some((_, shown)) = &entry.cancelled {
                assert_eq!(shown, status, "wrong: the answer of a second cancel: {entry:?}");
            } else {
                entry.cancelled = Some((Instant::now(), status.to_owned()));
            }
        });
    }

    /// Takes a failed job to retry, with the number of retries at its last end.
    pub(crate) fn take_failed(&self) -> Option<(String, u64)> {
        self.with(|state| {
            let State { jobs, open, taken, .. } = state;
            let failed = jobs.iter().filter(|(job, entry)| {
                entry.submission.kind == Kind::Fail
                    && (1..=ENDS_MAX).contains(&entry.ends.len())
                    && !open.contains_key(*job)
                    && !taken.contains(*job)
            });
            let (job, entry) = failed.choose(&mut rand::rng())?;
            taken.insert(job.clone());
            Some((job.clone(), entry.ends.last().unwrap().retries))
        })
    }

    pub(crate) fn release(&self, job: &str) {
        self.with(|state| assert!(state.taken.remove(job), "{job} was not taken"));
    }

    /// A retry is about to be sent.
    pub(crate) fn retry_sent(&self, job: &str) {
        self.with(|state| {
            state.entry(job).retries_possible += 1;
            state.open.insert(job.to_owned(), Instant::now());
        });
    }

    /// A retry was refused, as it must be only if an earlier one has had an effect.
    pub(crate) fn retry_refused(&self, job: &str, text: &str) {
        self.with(|state| {
            state.open.insert(job.to_owned(), Instant::now());
            let entry = state.entry(job);
            entry.retries_possible -= 1;
            let has_doubt = entry.retries_possible > entry.retries_acknowledged;
            assert!(has_doubt, "wrong: a failed job is not retried: {text}: {entry:?}");
        });
    }

    /// A retry after this end was acknowledged.
    pub(crate) fn retried(&self, job: &str, end_retries: u64) {
        self.with(|state| {
            let entry = state.entry(job);
            entry.retries_acknowledged += 1;
            entry.promise(end_retries + 1);
            state.open.insert(job.to_owned(), Instant::now());
        });
    }

    /// Picks a recent job.
    pub(crate) fn pick(&self) -> Option<String> {
        self.with(|state| {
            let start = state.order.len().saturating_sub(RECENT);
            state.order[start..].choose(&mut rand::rng()).cloned()
        })
    }

    /// The newest job with chunks that no reader has taken yet.
    pub(crate) fn take_stream(&self) -> Option<String> {
        self.with(|state| state.streams.pop())
    }

    /// The jobs that must still end.
    pub(crate) fn open(&self) -> Vec<String> {
        self.with(|state| state.open.keys().cloned().collect())
    }

    pub(crate) fn is_open(&self, job: &str) -> bool {
        self.with(|state| state.open.contains_key(job))
    }

    pub(crate) fn len(&self) -> usize {
        self.with(|state| state.jobs.len())
    }

    pub(crate) fn entry(&self, job: &str) -> Entry {
        self.with(|state| state.entry(job).clone())
    }

    pub(crate) fn entries(&self) -> BTreeMap<String, Entry> {
        self.with(|state| state.jobs.clone())
    }
}

/// Whether the document shows a final status.
pub(crate) fn is_final(document: &Value) -> bool {
    !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS"))
}
