//! The counters of all endpoints as a bounded number of series.
//!
//! **Bounds.** At most N endpoints have series with their own name; the others share the series
//! [`OTHER_ENDPOINTS`]. An endpoint keeps its name until it is deleted, and the next one in line gets
//! the name's place, so a series never changes its meaning.
//!
//! **Counters never go back.** A collector treats a counter that falls as reset, and would show a burst of
//! jobs that never ran. So the shared series keeps the counts of its deleted endpoints.
//! For the same reason the counts of an endpoint before it got its own name stay in the shared series,
//! and are not in its own.

use std::collections::{HashMap, HashSet};

use crate::deploy::endpoint::EndpointIncarnation;
use crate::id::EndpointId;
use crate::job::record::JobCounts;
use crate::metrics::endpoint::EndpointTotals;
use crate::workers::WorkerCounts;
use parking_lot::Mutex;

/// The name of the series that endpoints without a name of their own share. No endpoint can have it.
pub const OTHER_ENDPOINTS: &str = "(other)";

/// Decides which endpoints have series with their own name.
#[derive(Debug)]
pub struct EndpointSeries {
    names_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Endpoints with their own name, and the counts that stay in the shared series.
    named: HashMap<EndpointIncarnation, EndpointTotals>,
    /// Endpoints in the shared series.
    shared: HashSet<EndpointIncarnation>,
    /// The counts in the shared series of endpoints that are not in it any more.
    left: EndpointTotals,
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
}

impl EndpointNow {
    /// Adds another endpoint; the oldest job is the oldest of both.
    fn add(&mut self, other: &Self) {
        let Self { jobs, oldest_waiting_ms, workers } = other;
        self.jobs.in_queue += jobs.in_queue;
        self.jobs.in_progress += jobs.in_progress;
        self.oldest_waiting_ms = self.oldest_waiting_ms.max(*oldest_waiting_ms);
        self.workers.idle += workers.idle;
        self.workers.initializing += workers.initializing;
        self.workers.running += workers.running;
        self.workers.throttled += workers.throttled;
        self.workers.unhealthy += workers.unhealthy;
    }
}

/// The values of one endpoint, or of all that have no name of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The endpoint's id, or [`OTHER_ENDPOINTS`].
    pub endpoint: String,
    /// The counters.
    pub totals: EndpointTotals,
    /// The present state.
    pub now: EndpointNow,
}

impl EndpointSeries {
    /// Series with at most `names_max` names of endpoints.
    pub fn new(names_max: usize) -> Self {
        Self { names_max, state: Mutex::default() }
    }

    /// The series of these endpoints, which are all that exist; sorted by name, the shared one last. It
    /// is missing as long as no endpoint was ever in it.
    pub fn of(
        &self,
        mut endpoints: Vec<(EndpointId, EndpointIncarnation, EndpointNow)>,
    ) -> Vec<Series> {
        endpoints.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut state = self.state.lock();
        let State { named, shared, left } = &mut *state;
        named.retain(|incarnation, _| !incarnation.has_ended());
        for ended in shared.extract_if(EndpointIncarnation::has_ended) {
            left.add(&ended.metrics().totals());
        }
        let mut series = Vec::with_capacity(endpoints.len().min(self.names_max) + 1);
        let mut others = EndpointNow::default();
        for (id, incarnation, now) in endpoints {
            // It was deleted while the caller read its state, and is counted above or at the next read.
            if incarnation.has_ended() {
                continue;
            }
            let totals = incarnation.metrics().totals();
            if named.len() < self.names_max && !named.contains_key(&incarnation) {
                let was_shared = shared.remove(&incarnation);
                let before = if was_shared { totals.clone() } else { EndpointTotals::default() };
                left.add(&before);
                named.insert(incarnation.clone(), before);
            }
            match named.get(&incarnation) {
                Some(before) => {
                    let totals = totals.since(before);
                    series.push(Series { endpoint: id.to_string(), totals, now });
                }
                None => {
                    others.add(&now);
                    shared.insert(incarnation);
                }
            }
        }
        let mut totals = left.clone();
        shared.iter().for_each(|each| totals.add(&each.metrics().totals()));
        if !shared.is_empty() || totals != EndpointTotals::default() {
            series.push(Series { endpoint: OTHER_ENDPOINTS.to_owned(), totals, now: others });
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use crate::id::OwnerId;
    use crate::metrics::endpoint::FinishedAs;

    use super::*;

    struct Endpoints(Vec<(EndpointId, EndpointIncarnation)>);

    impl Endpoints {
        fn create(&mut self, name: &str) {
            let incarnation = EndpointIncarnation::new(OwnerId::operator());
            self.0.push((EndpointId::new(name).unwrap(), incarnation));
        }

        /// Runs `count` jobs.
        fn run(&self, name: &str, count: u64) {
            let (_, found) = self.0.iter().find(|(id, _)| id.as_str() == name).unwrap();
            (0..count).for_each(|_| found.metrics().finished(FinishedAs::Completed));
        }

        fn delete(&mut self, name: &str) {
            let at = self.0.iter().position(|(id, _)| id.as_str() == name).unwrap();
            self.0.remove(at).1.end();
        }

        /// The names of the series, and the numbers of their jobs.
        fn series(&self, of: &EndpointSeries) -> Vec<(String, u64)> {
            let now = |(id, incarnation): &(EndpointId, EndpointIncarnation)| {
                (id.clone(), incarnation.clone(), EndpointNow::default())
            };
            let all = of.of(self.0.iter().map(now).collect());
            all.into_iter().map(|one| (one.endpoint, one.totals.finished.iter().sum())).collect()
        }
    }

    fn named(series: &[(&str, u64)]) -> Vec<(String, u64)> {
        series.iter().map(|(name, jobs)| ((*name).to_owned(), *jobs)).collect()
    }

    #[test]
    fn an_endpoint_has_its_name_until_it_is_deleted_and_no_count_ever_falls() {
        let of = EndpointSeries::new(2);
        let mut endpoints = Endpoints(vec![]);
        assert_eq!(endpoints.series(&of), named(&[]));
        endpoints.create("b");
        endpoints.create("c");
        assert_eq!(endpoints.series(&of), named(&[("b", 0), ("c", 0)]));
        endpoints.create("a");
        for (name, count) in [("a", 1), ("b", 10), ("c", 100)] {
            endpoints.run(name, count);
        }
        let both = [("b", 10), ("c", 100), ("(other)", 1)];
        assert_eq!(endpoints.series(&of), named(&both), "`a` is too late for a name");

        endpoints.delete("b");
        endpoints.run("a", 4);
        let after = [("a", 0), ("c", 100), ("(other)", 5)];
        assert_eq!(endpoints.series(&of), named(&after), "its five jobs stay where they were");
        endpoints.run("a", 7);
        endpoints.create("b");
        endpoints.run("b", 1_000);
        let next = [("a", 7), ("c", 100), ("(other)", 1_005)];
        assert_eq!(endpoints.series(&of), named(&next), "the new `b` is another endpoint");
        let read_before = endpoints.0.clone();
        endpoints.delete("b");
        for _ in 0..2 {
            let late = Endpoints(read_before.clone());
            assert_eq!(late.series(&of), named(&next), "nor does a late read count it twice");
        }
        assert_eq!(endpoints.series(&of), named(&next), "nor does a deletion lower a count");
    }

    #[test]
    fn the_shared_series_has_the_sum_of_its_endpoints_and_the_age_of_the_oldest_job() {
        let of = EndpointSeries::new(0);
        let endpoint = |name: &str, in_queue, oldest_waiting_ms| {
            let jobs = JobCounts { in_queue, in_progress: 1, ..JobCounts::default() };
            let workers = WorkerCounts { running: 1, idle: 2, ..WorkerCounts::default() };
            let now = EndpointNow { jobs, oldest_waiting_ms, workers };
            (EndpointId::new(name).unwrap(), EndpointIncarnation::default(), now)
        };
        let series = of.of(vec![endpoint("a", 3, 40), endpoint("b", 4, 9)]);
        let [Series { endpoint, now, .. }] = &series[..] else { panic!("{series:?}") };
        assert_eq!(endpoint, OTHER_ENDPOINTS);
        assert!(EndpointId::new(endpoint).is_err(), "no endpoint has this name");
        assert_eq!((now.jobs.in_queue, now.jobs.in_progress, now.oldest_waiting_ms), (7, 2, 40));
        assert_eq!((now.workers.running, now.workers.idle), (2, 4));
    }
}
