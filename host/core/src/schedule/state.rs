//! What a schedule has decided: each of its times ends as exactly one job, or is left out for a
//! reason. Pure, so that the store's note of it is all that a restart needs.
//!
//! **Bounds.** The ten newest times, and eight jobs that may not have ended: [`BYTES_MAX`] as JSON.
//! One call of [`plan`](ScheduleState::plan) looks at [`STEPS_MAX`] times, some milliseconds.

use std::collections::VecDeque;

use gristmill_wire::management::{CatchUp, TickOutcome};
use serde::{Deserialize, Serialize};

use super::Ticks;
use crate::id::{EndpointId, JobId};
use crate::time::Timestamp;

/// The newest times that are kept.
const LAST_MAX: usize = 10;

/// Jobs that may not have ended: as many as a client can submit beside the one of a time.
const OPEN_MAX: usize = 8;

/// Times that one call examines. More than `catchUp.maxTicks` can be, so that each call moves on.
pub const STEPS_MAX: usize = 10_000;

/// Longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// Most bytes of a state as JSON.
pub const BYTES_MAX: u64 = 6 * 1_024;

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
    pub open: Vec<ScheduledJob>,
}

/// A job of a schedule. The endpoint may not be the one that the schedule has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledJob {
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// Its id.
    pub id: JobId,
}

/// What became of one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedTick {
    /// The time by the schedule.
    pub at: Timestamp,
    /// What became of it.
    pub outcome: TickOutcome,
    /// Its job.
    pub job: Option<ScheduledJob>,
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
    /// Times up to `begins_at` are not looked at. `blocked` is why the times that are due have no
    /// jobs yet. If there are too many times for one call, nothing is to run yet, and the next time
    /// is `now`.
    pub fn plan(
        &mut self,
        ticks: &Ticks,
        begins_at: Timestamp,
        catch_up: CatchUp,
        blocked: Option<&str>,
        now: Timestamp,
    ) -> Plan {
        let runs_max = usize::try_from(catch_up.max_ticks).unwrap_or(usize::MAX);
        let missed = |rule: &str| match blocked {
            Some(blocked) => format!("{blocked}; {rule}"),
            None => rule.to_owned(),
        };
        let late = missed("its job was not submitted within `catchUp.windowMs`");
        let mut run = VecDeque::new();
        let mut at = self.decided_to.max(begins_at);
        let window_ms = catch_up.window_ms.saturating_add(1);
        let window_begin = Timestamp::from_millis(now.as_millis().saturating_sub(window_ms));
        if let Some((count, last)) = ticks.passed(at, window_begin) {
            self.missed += count - 1;
            self.miss(last, &late);
            at = last;
        }
        for _ in 0..STEPS_MAX {
            match ticks.next_after(at) {
                None => return Plan { run, next: None },
                Some(next) if next > now => return Plan { run, next: Some(next) },
                Some(due) => at = due,
            }
            if at <= window_begin {
                self.miss(at, &late);
                continue;
            }
            run.push_back(at);
            if run.len() > runs_max
                && let Some(oldest) = run.pop_front()
            {
                let many = "more times were due than `catchUp.maxTicks`, and it was the oldest";
                self.miss(oldest, &missed(many));
            }
        }
        Plan { run: VecDeque::new(), next: Some(now) }
    }

    /// Leaves out all times up to `now` that are due, and begins anew after `now`, even if the
    /// clock was ahead and later times were decided. `false`: there are too many for one call.
    pub fn settle(
        &mut self,
        ticks: &Ticks,
        begins_at: Timestamp,
        reason: &str,
        now: Timestamp,
    ) -> bool {
        let mut at = self.decided_to.max(begins_at);
        if let Some((count, last)) = ticks.passed(at, now) {
            self.missed += count - 1;
            self.miss(last, reason);
            at = last;
        }
        for _ in 0..STEPS_MAX {
            let Some(due) = ticks.next_after(at).filter(|due| *due <= now) else {
                self.decided_to = now;
                return true;
            };
            self.miss(due, reason);
            at = due;
        }
        false
    }

    /// The time became this job.
    pub fn ran(&mut self, at: Timestamp, job: ScheduledJob) {
        self.jobs += 1;
        self.opened(job.clone());
        self.decide(DecidedTick { at, outcome: TickOutcome::Job, job: Some(job), reason: None });
    }

    /// A job that belongs to no time was submitted.
    pub fn opened(&mut self, job: ScheduledJob) {
        self.open.push(job);
        let dropped = self.open.len().saturating_sub(OPEN_MAX);
        self.open.drain(..dropped);
    }

    /// The time is left out since this job had not ended.
    pub fn skip(&mut self, at: Timestamp, before: JobId) {
        self.skipped += 1;
        let reason = Some(Self::not_ended(before));
        self.decide(DecidedTick { at, outcome: TickOutcome::Skipped, job: None, reason });
    }

    /// The reason of a time that this earlier job keeps from becoming one.
    pub fn not_ended(before: JobId) -> String {
        format!("job `{before}` of this schedule had not ended")
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
