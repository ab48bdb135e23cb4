//! Which schedules have something to do, and when.
//!
//! **Cost.** A look at the next time is constant, a change of it logarithmic. Following the catalog
//! looks at each schedule, and is done only after a change of schedules.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::schedule::record::Schedule;
use gristmill_core::time::Timestamp;
use hashbrown::HashMap;

/// Before all times.
const SOON: Timestamp = Timestamp::from_millis(0);

/// The next times of all schedules.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    known: HashMap<ScheduleNumber, Planned>,
    /// Those that wait, by their next time.
    times: BTreeSet<(Timestamp, ScheduleNumber)>,
}

#[derive(Debug)]
struct Planned {
    settings: Arc<Schedule>,
    /// `None` while it decides what is due.
    next: Option<Timestamp>,
}

impl Agenda {
    /// Has these schedules from now on. New and changed ones have something to do at once.
    pub(crate) fn follow(&mut self, schedules: &[Arc<Schedule>]) {
        let numbers: HashSet<_> = schedules.iter().map(|schedule| schedule.number).collect();
        self.known.retain(|number, _| numbers.contains(number));
        self.times.retain(|(_, number)| numbers.contains(number));
        for schedule in schedules {
            match self.known.get_mut(&schedule.number) {
                Some(planned) if Arc::ptr_eq(&planned.settings, schedule) => {}
                Some(planned) => {
                    planned.settings = schedule.clone();
                    if let Some(next) = planned.next {
                        self.times.remove(&(next, schedule.number));
                        self.wait(schedule.clone(), SOON);
                    }
                }
                None => self.wait(schedule.clone(), SOON),
            }
        }
    }

    /// When the first schedule has something to do; never, if all are deciding or there is none.
    pub(crate) fn next(&self) -> Timestamp {
        self.times.first().map_or(Timestamp::NEVER, |(next, _)| *next)
    }

    /// A schedule that has something to do now. It decides until [`decided`](Self::decided).
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<Arc<Schedule>> {
        let (_, number) = self.times.first().filter(|(next, _)| *next <= now).copied()?;
        self.times.pop_first();
        let planned = self.known.get_mut(&number)?;
        planned.next = None;
        Some(planned.settings.clone())
    }

    /// The schedule has decided what was due by these settings, and has something to do at `next`;
    /// at once if it was changed meanwhile.
    pub(crate) fn decided(&mut self, settings: &Arc<Schedule>, next: Timestamp) {
        let Some(planned) = self.known.get(&settings.number) else { return };
        let current = planned.settings.clone();
        let next = if Arc::ptr_eq(&current, settings) { next } else { SOON };
        self.wait(current, next);
    }

    fn wait(&mut self, settings: Arc<Schedule>, next: Timestamp) {
        let number = settings.number;
        self.known.insert(number, Planned { settings, next: Some(next) });
        self.times.insert((next, number));
    }
}

#[cfg(test)]
#[path = "agenda_tests.rs"]
mod tests;
