//! The counters of all endpoints as a bounded number of series.
//!
//! **Bounds.** At most N endpoints have series with their own name; the others share the series
//! [`OTHER_ENDPOINTS`]. An endpoint keeps its name until it is deleted, or until it has had no job
//! and no request for [`IDLE_AFTER`] while an endpoint without a name has some: the busiest one of
//! those takes the name's place.
//!
//! **Counters never go back.** A collector treats a counter that falls as reset, and would show a
//! burst of jobs that never ran. So each count stays in the series where it was first shown: the
//! shared series keeps the counts of its deleted endpoints, and those of an endpoint before it got
//! its own name. When an endpoint loses its name, its own series ends and the shared one gets its
//! later counts only; when it has its name again, its own series continues with the last value.
//!
//! **Cost.** None for a job: all of this is decided when a collector reads, by the differences of
//! the counters since the read before. Times are those of the monotonic clock, so steps of the wall
//! clock do not matter.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use gristmill_core::id::EndpointId;
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::record::JobCounts;
use gristmill_core::metrics::endpoint::EndpointTotals;
use gristmill_core::workers::WorkerCounts;
use parking_lot::Mutex;

/// The name of the series that endpoints without a name of their own share. No endpoint can have
/// it.
const OTHER_ENDPOINTS: &str = "(other)";

/// An endpoint that has had no job for this time gives its name to an endpoint that has some.
const IDLE_AFTER: Duration = Duration::from_mins(15);

/// Decides which endpoints have series with their own name.
#[derive(Debug)]
pub struct MetricSeries {
    names_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    named: HashMap<EndpointIncarnation, Named>,
    shared: HashMap<EndpointIncarnation, Shared>,
    /// The counts in the shared series of endpoints that are not in it any more.
    left: EndpointTotals,
}

/// An endpoint with its own name.
#[derive(Debug)]
struct Named {
    /// Its counts that stay in the shared series.
    elsewhere: EndpointTotals,
    /// Its activity at the last read.
    activity: u64,
    /// The last read at which it had jobs.
    active_at: Instant,
}

/// An endpoint in the shared series.
#[derive(Debug, Default)]
struct Shared {
    /// Its counts that stay in the series with its name, if it had one.
    own: Option<Box<EndpointTotals>>,
    /// Its activity at the last read.
    activity: u64,
    /// Its jobs since the read before, and those that wait or run.
    jobs: u64,
    /// Whether a read has shown its counts in the shared series.
    is_shown: bool,
}

impl Shared {
    /// The counts of the endpoint that belong to the shared series.
    fn part_of(&self, totals: EndpointTotals) -> EndpointTotals {
        match &self.own {
            Some(own) => totals.since(own),
            None => totals,
        }
    }
}

impl State {
    /// Forgets the endpoints that were deleted.
    fn remove_ended(&mut self) {
        self.named.retain(|incarnation, _| !incarnation.has_ended());
        for (ended, of) in self.shared.extract_if(|incarnation, _| incarnation.has_ended()) {
            self.left.add(&of.part_of(ended.metrics().totals()));
        }
    }

    /// Notes what an endpoint has done since the last read.
    fn observe(&mut self, incarnation: &EndpointIncarnation, of: &EndpointNow, now: Instant) {
        let activity = incarnation.metrics().activity();
        let present =
            of.jobs.in_queue + of.jobs.in_progress + of.waiting_requests.unwrap_or_default();
        if let Some(named) = self.named.get_mut(incarnation) {
            if activity != named.activity || present > 0 {
                named.active_at = now;
            }
            named.activity = activity;
            return;
        }
        let shared = self.shared.entry(incarnation.clone()).or_default();
        shared.jobs = activity.saturating_sub(shared.activity) + present;
        shared.activity = activity;
    }

    /// Gives names to endpoints in the shared series, the busiest first, and then in this order:
    /// first those names that are free, and then those of idle endpoints.
    fn give_names(&mut self, order: &[&EndpointIncarnation], names_max: usize, now: Instant) {
        let in_line = order.iter().filter_map(|each| Some((*each, self.shared.get(*each)?.jobs)));
        let mut in_line: Vec<_> = in_line.collect();
        in_line.sort_by_key(|(_, jobs)| Reverse(*jobs));
        let free = names_max.saturating_sub(self.named.len()).min(in_line.len());
        let busy = in_line.split_off(free);
        for (incarnation, _) in in_line {
            self.give_name(incarnation, now);
        }
        let mut idle: Vec<_> = self
            .named
            .iter()
            .filter(|(_, named)| now.duration_since(named.active_at) >= IDLE_AFTER)
            .map(|(incarnation, named)| (named.active_at, incarnation.clone()))
            .collect();
        idle.sort_unstable_by_key(|(active_at, _)| *active_at);
        let busy = busy.into_iter().filter(|(_, jobs)| *jobs > 0);
        for ((_, idle), (busy, _)) in idle.iter().zip(busy) {
            self.take_name(idle);
            self.give_name(busy, now);
        }
    }

    fn give_name(&mut self, incarnation: &EndpointIncarnation, now: Instant) {
        let Some(shared) = self.shared.remove(incarnation) else { return };
        // An endpoint that no read has shown yet has all its counts in its own series.
        let elsewhere = if shared.is_shown {
            shared.part_of(incarnation.metrics().totals())
        } else {
            EndpointTotals::default()
        };
        self.left.add(&elsewhere);
        let named = Named { elsewhere, activity: shared.activity, active_at: now };
        self.named.insert(incarnation.clone(), named);
    }

    fn take_name(&mut self, incarnation: &EndpointIncarnation) {
        let Some(Named { elsewhere, activity, .. }) = self.named.remove(incarnation) else {
            return;
        };
        let own = incarnation.metrics().totals().since(&elsewhere);
        // The shared series had these counts all the time; now they are those of an endpoint in it.
        self.left = std::mem::take(&mut self.left).since(&elsewhere);
        let shared = Shared { own: Some(Box::new(own)), activity, jobs: 0, is_shown: true };
        self.shared.insert(incarnation.clone(), shared);
    }
}

/// The present state of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointNow {
    /// Its jobs by state.
    pub jobs: JobCounts,
    /// Milliseconds since the oldest waiting job was queued; 0 when none waits.
    pub oldest_waiting_ms: u64,
    /// Its workers by state.
    pub workers: WorkerCounts,
    /// HTTP requests that wait for a worker; `None` on an endpoint with jobs.
    pub waiting_requests: Option<u64>,
}

impl EndpointNow {
    /// Adds another endpoint; the oldest job is the oldest of both.
    fn add(&mut self, other: &Self) {
        let Self { jobs, oldest_waiting_ms, workers, waiting_requests } = other;
        self.jobs.in_queue += jobs.in_queue;
        self.jobs.in_progress += jobs.in_progress;
        self.oldest_waiting_ms = self.oldest_waiting_ms.max(*oldest_waiting_ms);
        self.workers.idle += workers.idle;
        self.workers.initializing += workers.initializing;
        self.workers.running += workers.running;
        self.workers.throttled += workers.throttled;
        self.workers.unhealthy += workers.unhealthy;
        if let Some(waiting) = waiting_requests {
            *self.waiting_requests.get_or_insert_default() += waiting;
        }
    }
}

/// The values of one endpoint, or of all that have no name of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesValues {
    /// The endpoint's id, or [`OTHER_ENDPOINTS`].
    pub endpoint: String,
    /// The counters.
    pub totals: EndpointTotals,
    /// The present state.
    pub now: EndpointNow,
}

impl MetricSeries {
    /// Series with at most `names_max` names of endpoints.
    pub fn new(names_max: usize) -> Self {
        Self { names_max, state: Mutex::default() }
    }

    /// The series of these endpoints, which are all that exist; sorted by name, the shared one
    /// last. It is missing as long as no endpoint was ever in it.
    pub fn of(
        &self,
        endpoints: Vec<(EndpointId, EndpointIncarnation, EndpointNow)>,
    ) -> Vec<SeriesValues> {
        let mut state = self.state.lock();
        // Below the lock, so that the times of reads are in the order of the reads.
        let now = Instant::now();
        self.of_at(&mut state, endpoints, now)
    }

    fn of_at(
        &self,
        state: &mut State,
        mut endpoints: Vec<(EndpointId, EndpointIncarnation, EndpointNow)>,
        now: Instant,
    ) -> Vec<SeriesValues> {
        state.remove_ended();
        // An endpoint that was deleted while the caller read its state is counted above or at the
        // next read.
        endpoints.retain(|(_, incarnation, _)| !incarnation.has_ended());
        endpoints.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        for (_, incarnation, of) in &endpoints {
            state.observe(incarnation, of, now);
        }
        let order: Vec<_> = endpoints.iter().map(|(_, incarnation, _)| incarnation).collect();
        state.give_names(&order, self.names_max, now);
        let mut series = Vec::with_capacity(endpoints.len().min(self.names_max) + 1);
        let mut others = EndpointNow::default();
        for (id, incarnation, now) in endpoints {
            match state.named.get(&incarnation) {
                Some(named) => {
                    let totals = incarnation.metrics().totals().since(&named.elsewhere);
                    series.push(SeriesValues { endpoint: id.to_string(), totals, now });
                }
                None => others.add(&now),
            }
        }
        let mut totals = state.left.clone();
        for (incarnation, shared) in &mut state.shared {
            shared.is_shown = true;
            totals.add(&shared.part_of(incarnation.metrics().totals()));
        }
        if !state.shared.is_empty() || totals != EndpointTotals::default() {
            series.push(SeriesValues { endpoint: OTHER_ENDPOINTS.to_owned(), totals, now: others });
        }
        series
    }
}

#[cfg(test)]
#[path = "metric_series_tests.rs"]
mod tests;
