//! The promises that a client received, compared with the host's later answers. Every answer about
//! a job is passed to [`Ledger::saw`]; a broken promise stops the test there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use serde_json::Value;

use super::random::Random;
use super::submission::{Kind, Submission};

/// One end of a job.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// How often the job had been queued again by then.
    pub(crate) retries: u64,
    status: String,
    /// The whole document, which never changes after the end.
    pub(crate) text: String,
}

impl End {
    fn document(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    fn execution_ms(&self) -> u64 {
        self.document()["executionTime"].as_u64().unwrap()
    }

    fn was_stopped(&self) -> bool {
        self.status == "CANCELLED" && self.document()["workerId"].is_string()
    }
}

/// The knowledge about one job.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// `None`: its answer was lost, and it was found in the host's list.
    pub(crate) submission: Option<Submission>,
    /// The number of its first audit.
    pub(crate) round: usize,
    /// All its ends; there are several only after retries.
    pub(crate) ends: Vec<End>,
    /// The answer of a `/cancel`.
    cancel: Option<Value>,
    /// An acknowledged retry raises it.
    retries_min: u64,
    /// A retry was sent since its last end, so it may wait or run again.
    may_run_again: bool,
}

impl Entry {
    fn new(submission: Option<Submission>, round: usize) -> Self {
        Self { submission, round, ends: vec![], cancel: None, retries_min: 0, may_run_again: false }
    }

    fn is_of(&self, kind: Kind) -> bool {
        self.submission.as_ref().is_some_and(|submission| submission.kind == kind)
    }

    fn has_failed(&self) -> bool {
        self.ends.last().is_some_and(|end| end.status == "FAILED")
    }

    /// How often a crash made it run again. Every end but the first was requested by a retry.
    fn runs_lost(&self) -> u64 {
        let last = self.ends.last().map_or(0, |end| end.retries);
        last - (self.ends.len() as u64).saturating_sub(1)
    }
}

/// The state of a job when a call about it was sent, since calls overtake each other.
#[derive(Debug, Clone)]
pub(crate) struct Before {
    job: String,
    retries_min: u64,
    last_end: Option<u64>,
}

/// The expected counters of `/health` and of the bill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    /// Failed jobs whose host crashed too often: they are not billed.
    pub(crate) given_up: u64,
    /// Jobs that were cancelled while they ran: they are billed, too, unless a kill came first.
    pub(crate) stopped: u64,
    /// The `executionTime` of all completed, failed and timed-out jobs, except `given_up`.
    pub(crate) execution_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    jobs: HashMap<String, Entry>,
    round: usize,
    numbers: u64,
    /// Number of answers, by operation.
    answers: BTreeMap<&'static str, u64>,
    /// Submissions with a key whose answer was lost: they are sent again.
    unanswered: Vec<Submission>,
    /// Number of submissions without a key and without an answer: each may have become an unknown
    /// job.
    unattributed: u64,
    /// Jobs whose cancellation was not acknowledged yet.
    to_cancel: Vec<String>,
    /// Jobs that were retried without an answer.
    retries_in_doubt: Vec<String>,
    /// Of jobs that are not checked any more.
    dismissed: Totals,
    ran_again: usize,
}

impl Ledger {
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        state.numbers += 1;
        state.numbers
    }

    /// Counts an answer.
    pub(crate) fn count(&self, what: &'static str) {
        *self.0.lock().unwrap().answers.entry(what).or_default() += 1;
    }

    pub(crate) fn answers(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap().answers.clone()
    }

    /// The submission was answered with this job. A repeated submission must have the same job.
    pub(crate) fn acknowledged(&self, job: &str, submission: Submission) {
        let mut state = self.0.lock().unwrap();
        let round = state.round;
        if submission.kind == Kind::Cancelled && !state.jobs.contains_key(job) {
            state.to_cancel.push(job.to_owned());
        }
        let number = submission.number;
        let entry = state.jobs.entry(job.to_owned());
        let entry = entry.or_insert_with(|| Entry::new(Some(submission), round));
        let first = entry.submission.as_ref().unwrap().number;
        assert_eq!(first, number, "double: {job} was answered to two submissions");
    }

    pub(crate) fn unanswered(&self, submission: Submission) {
        let mut state = self.0.lock().unwrap();
        match submission.has_key {
            true => state.unanswered.push(submission),
            false => state.unattributed += 1,
        }
    }

    pub(crate) fn take_unanswered(&self) -> Option<Submission> {
        self.0.lock().unwrap().unanswered.pop()
    }

    pub(crate) fn to_cancel(&self) -> Vec<String> {
        self.0.lock().unwrap().to_cancel.clone()
    }

    /// The answer of a `/cancel` is expected from now on.
    pub(crate) fn cancelled(&self, job: &str, answer: &Value) {
        let mut state = self.0.lock().unwrap();
        state.to_cancel.retain(|waiting| waiting != job);
        let entry = state.jobs.get_mut(job).unwrap();
        entry.cancel = Some(answer["status"].clone());
    }

    /// A failed job that was not retried often, and may end again.
    pub(crate) fn pick_failed(&self, random: &mut Random) -> Option<String> {
        let state = self.0.lock().unwrap();
        let failed: Vec<_> = state
            .jobs
            .iter()
            .filter(|(_, entry)| !entry.may_run_again && entry.ends.len() < 3)
            .filter(|(_, entry)| entry.submission.is_some() && !entry.is_of(Kind::Cancelled))
            .filter(|(_, entry)| entry.has_failed())
            .map(|(job, _)| job)
            .collect();
        random.pick(&failed).map(|&job| job.clone())
    }

    pub(crate) fn retry_sent(&self, job: &str) {
        self.0.lock().unwrap().jobs.get_mut(job).unwrap().may_run_again = true;
    }

    pub(crate) fn retry_unanswered(&self, job: String) {
        self.0.lock().unwrap().retries_in_doubt.push(job);
    }

    pub(crate) fn retried(&self, job: &str) {
        let mut state = self.0.lock().unwrap();
        let entry = state.jobs.get_mut(job).unwrap();
        // It may have ended again before the answer was read.
        if entry.may_run_again {
            entry.retries_min = entry.ends.last().unwrap().retries + 1;
        }
    }

    pub(crate) fn retries_in_doubt(&self) -> Vec<String> {
        self.0.lock().unwrap().retries_in_doubt.clone()
    }

    /// The host's answer about the outcome of a retry is expected from now on.
    pub(crate) fn retry_settled(&self, job: &str, document: &Value) {
        let mut state = self.0.lock().unwrap();
        state.retries_in_doubt.retain(|doubted| doubted != job);
        let entry = state.jobs.get_mut(job).unwrap();
        let retries = document["retries"].as_u64().unwrap_or(0);
        if retries == entry.ends.last().unwrap().retries && is_final(document) {
            entry.may_run_again = false;
        } else {
            entry.retries_min = entry.retries_min.max(retries);
        }
    }

    pub(crate) fn before(&self, job: &str) -> Before {
        let state = self.0.lock().unwrap();
        let entry = &state.jobs[job];
        let last_end = entry.ends.last().map(|end| end.retries);
        Before { job: job.to_owned(), retries_min: entry.retries_min, last_end }
    }

    /// Compares the host's answer about a job with its earlier promises and answers.
    pub(crate) fn saw(&self, before: &Before, text: &str) {
        let document: Value = serde_json::from_str(text).unwrap();
        let mut state = self.0.lock().unwrap();
        let entry = state.jobs.get_mut(&before.job).unwrap();
        assert_eq!(document["id"], before.job);
        let retries = document["retries"].as_u64().unwrap_or(0);
        assert!(retries >= before.retries_min, "lost: a retry: {text}, known: {entry:?}");
        if !is_final(&document) {
            let newest_end = entry.ends.last().map(|end| end.retries);
            let is_retried = entry.may_run_again || newest_end > before.last_end;
            assert!(
                before.last_end.is_none_or(|end| retries > end && is_retried),
                "double: a job that has ended runs again: {text}, known: {entry:?}"
            );
            return;
        }
        if let Some(end) = entry.ends.iter().find(|end| end.retries == retries) {
            assert!(end.text == text, "double: two results of one job: {text}, known: {entry:?}");
            return;
        }
        assert!(
            entry.ends.is_empty() || entry.may_run_again,
            "double: a job that has ended did so again: {text}, known: {entry:?}"
        );
        if let Some(submission) = &entry.submission {
            assert!(submission.permits(&document), "wrong: {text}, known: {entry:?}");
        }
        if let Some(shown) = &entry.cancel {
            assert_eq!(document["status"], *shown, "lost: a cancel: {text}, known: {entry:?}");
        }
        entry.may_run_again = false;
        let status = document["status"].as_str().unwrap().to_owned();
        entry.ends.push(End { retries, status, text: text.to_owned() });
    }

    /// Picks a job, if possible one whose end was not seen yet.
    pub(crate) fn pick(&self, random: &mut Random) -> Option<String> {
        let state = self.0.lock().unwrap();
        let open: Vec<_> = state.jobs.iter().filter(|(_, entry)| entry.ends.is_empty()).collect();
        let all: Vec<_> = state.jobs.iter().collect();
        let among = if open.is_empty() || random.one_in(3) { all } else { open };
        random.pick(&among).map(|(job, _)| (*job).clone())
    }

    pub(crate) fn entry(&self, job: &str) -> Entry {
        self.0.lock().unwrap().jobs[job].clone()
    }

    pub(crate) fn jobs(&self) -> Vec<String> {
        self.0.lock().unwrap().jobs.keys().cloned().collect()
    }

    /// A job of the host whose answer was lost. There are at most as many as lost answers.
    pub(crate) fn adopt(&self, job: &str) {
        let mut state = self.0.lock().unwrap();
        assert!(state.unattributed > 0, "wrong: no call submitted {job}");
        state.unattributed -= 1;
        let round = state.round;
        state.jobs.insert(job.to_owned(), Entry::new(None, round));
    }

    /// The expected counters of the endpoint when every job has been seen to end.
    pub(crate) fn totals(&self) -> Totals {
        let state = self.0.lock().unwrap();
        state.jobs.values().fold(state.dismissed, Totals::with)
    }

    /// Jobs that a crash made run again.
    pub(crate) fn ran_again(&self) -> usize {
        let state = self.0.lock().unwrap();
        state.ran_again + state.jobs.values().filter(|entry| entry.runs_lost() > 0).count()
    }

    /// After an audit: removes the jobs that were audited twice, and returns them. Each earlier
    /// submission without an answer has been found by now, or has not arrived.
    pub(crate) fn next_round(&self) -> HashMap<String, Entry> {
        let mut state = self.0.lock().unwrap();
        state.unattributed = 0;
        let round = state.round;
        state.round += 1;
        let (leaving, staying): (HashMap<_, _>, HashMap<_, _>) =
            std::mem::take(&mut state.jobs).into_iter().partition(|(_, job)| job.round < round);
        state.jobs = staying;
        for entry in leaving.values() {
            state.dismissed = state.dismissed.with(entry);
            state.ran_again += usize::from(entry.runs_lost() > 0);
        }
        leaving
    }
}

impl Totals {
    fn with(self, entry: &Entry) -> Self {
        let ended = |status| entry.ends.iter().filter(|end| end.status == status).count() as u64;
        let retried = entry.ends.last().map_or(0, |end| end.retries);
        let given_up = |end: &&End| end.text.contains("the host died while the job ran");
        let paid = entry.ends.iter().filter(|end| end.status != "CANCELLED" && !given_up(end));
        let execution_ms = paid.map(End::execution_ms).sum::<u64>();
        Self {
            given_up: self.given_up + entry.ends.iter().filter(given_up).count() as u64,
            stopped: self.stopped
                + entry.ends.iter().filter(|end| end.was_stopped()).count() as u64,
            execution_ms: self.execution_ms + execution_ms,
            completed: self.completed + ended("COMPLETED"),
            failed: self.failed + ended("FAILED") + ended("TIMED_OUT"),
            retried: self.retried + retried,
        }
    }
}

/// Whether the document shows a final status.
pub(crate) fn is_final(document: &Value) -> bool {
    !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS"))
}
