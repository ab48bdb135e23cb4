//! What a schedule has decided: each of its times ends as exactly one job, or is left out for a
//! reason. Pure, so that the store's note of it is all that a restart needs.
//!
//! **Bounds.** The ten newest times, and eight jobs that may not have ended: some 2 KiB as JSON.
//! One call of [`plan`](ScheduleState::plan) looks at [`STEPS_MAX`] times, some milliseconds.

use std::collections::VecDeque;

use gristmill_wire::management::{CatchUp, TickOutcome};
use serde::{Deserialize, Serialize};

use super::Ticks;
use crate::id::JobId;
use crate::time::Timestamp;

/// The newest times that are kept.
const LAST_MAX: usize = 10;

/// Jobs that may not have ended: as many as a client can submit beside the one of a time.
const OPEN_MAX: usize = 8;

/// Times that one call examines. More than `catchUp.maxTicks` can be, so that each call moves on.
pub const STEPS_MAX: usize = 10_000;

/// Longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// The decisions of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleState {
    /// All times up to this one are decided.
    pub decided_to: Timestamp,
    /// Times that became jobs.
    pub jobs: u64,
    /// Times that were left out since an earlier job had not ended.
    pub skipped: u64,
    /// Times that were left out for another reason.
    pub missed: u64,
    /// The newest times, the oldest first.
    pub last: VecDeque<DecidedTick>,
    /// Its newest jobs that had not ended when it was looked last.
    pub open: Vec<JobId>,
}

/// What became of one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedTick {
    /// The time by the schedule.
    pub at: Timestamp,
    /// What became of it.
    pub outcome: TickOutcome,
    /// Its job.
    pub job: Option<JobId>,
    /// Why it has no job.
    pub reason: Option<String>,
}

/// The times that are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Those that are to become jobs, the oldest first.
    pub run: VecDeque<Timestamp>,
    /// The next time after them; `None`: there is none.
    pub next: Option<Timestamp>,
}

impl ScheduleState {
    /// The state as the store keeps it.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a state is plain data")
    }

    /// The state of this text.
    ///
    /// # Errors
    /// For a text that is no state.
    pub fn of_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Decides the times up to `now` that come too late, and finds those that are to become jobs.
    /// Times up to `begins_at` are not looked at. `refused` is why a job was refused that was
    /// submitted before. If there are too many times for one call, nothing is to run yet, and the
    /// next time is `now`.
    pub fn plan(
        &mut self,
        ticks: &Ticks,
        begins_at: Timestamp,
        catch_up: CatchUp,
        refused: Option<&str>,
        now: Timestamp,
    ) -> Plan {
        let runs_max = usize::try_from(catch_up.max_ticks).unwrap_or(usize::MAX);
        let mut run = VecDeque::new();
        let mut at = self.decided_to.max(begins_at);
        for _ in 0..STEPS_MAX {
            match ticks.next_after(at) {
                None => return Plan { run, next: None },
                Some(next) if next > now => return Plan { run, next: Some(next) },
                Some(due) => at = due,
            }
            if now.millis_since(at) > catch_up.window_ms {
                let late = "the host could not submit its job within `catchUp.windowMs`";
                self.miss(at, refused.unwrap_or(late));
                continue;
            }
            run.push_back(at);
            if run.len() > runs_max
                && let Some(oldest) = run.pop_front()
            {
                self.miss(
                    oldest,
                    "more times were due than `catchUp.maxTicks`, and it was the oldest",
                );
            }
        }
        Plan { run: VecDeque::new(), next: Some(now) }
    }

    /// The time became this job.
    pub fn ran(&mut self, at: Timestamp, job: JobId) {
        self.jobs += 1;
        self.opened(job);
        self.decide(DecidedTick { at, outcome: TickOutcome::Job, job: Some(job), reason: None });
    }

    /// A job that belongs to no time was submitted.
    pub fn opened(&mut self, job: JobId) {
        self.open.push(job);
        let dropped = self.open.len().saturating_sub(OPEN_MAX);
        self.open.drain(..dropped);
    }

    /// The time is left out since this job had not ended.
    pub fn skip(&mut self, at: Timestamp, before: JobId) {
        self.skipped += 1;
        let reason = Some(format!("job `{before}` of this schedule had not ended"));
        self.decide(DecidedTick { at, outcome: TickOutcome::Skipped, job: None, reason });
    }

    /// The time is left out for another reason.
    pub fn miss(&mut self, at: Timestamp, reason: &str) {
        self.missed += 1;
        let reason = Some(reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned());
        self.decide(DecidedTick { at, outcome: TickOutcome::Missed, job: None, reason });
    }

    fn decide(&mut self, tick: DecidedTick) {
        self.decided_to = tick.at;
        self.last.push_back(tick);
        if self.last.len() > LAST_MAX {
            self.last.pop_front();
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
