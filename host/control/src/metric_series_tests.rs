//! Series of endpoints that come, work and go: names, the shared series, and totals of jobs.

use proptest::prelude::*;

use gristmill_core::id::OwnerId;
use gristmill_core::metrics::endpoint::FinishedAs;

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
    fn series(&self, of: &MetricSeries) -> Vec<(String, u64)> {
        self.series_at(of, Instant::now(), None)
    }

    /// The same at a time, with a job of one endpoint that waits.
    fn series_at(
        &self,
        of: &MetricSeries,
        time: Instant,
        waiting: Option<&str>,
    ) -> Vec<(String, u64)> {
        let now = |(id, incarnation): &(EndpointId, EndpointIncarnation)| {
            let in_queue = u64::from(waiting == Some(id.as_str()));
            let jobs = JobCounts { in_queue, ..JobCounts::default() };
            (id.clone(), incarnation.clone(), EndpointNow { jobs, ..EndpointNow::default() })
        };
        let all = of.of_at(&mut of.state.lock(), self.0.iter().map(now).collect(), time);
        all.into_iter().map(|one| (one.endpoint, one.totals.finished.iter().sum())).collect()
    }
}

fn named(series: &[(&str, u64)]) -> Vec<(String, u64)> {
    series.iter().map(|(name, jobs)| ((*name).to_owned(), *jobs)).collect()
}

#[test]
fn an_endpoint_has_its_name_until_it_is_deleted_and_no_count_ever_falls() {
    let of = MetricSeries::new(2);
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
fn an_idle_endpoint_gives_its_name_to_the_busiest_one_and_continues_when_it_has_it_again() {
    let (of, start) = (MetricSeries::new(1), Instant::now());
    let minutes = |count| start + Duration::from_mins(count);
    let mut endpoints = Endpoints(vec![]);
    endpoints.create("a");
    endpoints.run("a", 5);
    assert_eq!(endpoints.series_at(&of, start, None), named(&[("a", 5)]));
    endpoints.create("b");
    endpoints.create("c");
    endpoints.run("a", 1);
    endpoints.run("b", 10);
    endpoints.run("c", 20);
    let early = named(&[("a", 6), ("(other)", 30)]);
    assert_eq!(endpoints.series_at(&of, minutes(1), None), early);
    assert_eq!(endpoints.series_at(&of, minutes(30), None), early, "no other one is busy");

    endpoints.run("b", 1);
    endpoints.run("c", 2);
    let busiest = named(&[("c", 0), ("(other)", 33)]);
    assert_eq!(endpoints.series_at(&of, minutes(31), None), busiest);
    endpoints.run("a", 100);
    endpoints.run("c", 4);
    let later = named(&[("c", 4), ("(other)", 133)]);
    assert_eq!(
        endpoints.series_at(&of, minutes(45), None),
        later,
        "`c` has its name for 14 minutes"
    );
    endpoints.run("a", 1);
    let waiting = named(&[("c", 4), ("(other)", 134)]);
    assert_eq!(endpoints.series_at(&of, minutes(60), Some("c")), waiting, "a job of `c` waits");
    endpoints.run("a", 1);
    let again = named(&[("a", 6), ("(other)", 135)]);
    assert_eq!(endpoints.series_at(&of, minutes(75), None), again, "`a` continues");
    endpoints.run("a", 3);
    endpoints.run("c", 7);
    let last = named(&[("a", 9), ("(other)", 142)]);
    assert_eq!(endpoints.series_at(&of, minutes(76), None), last);
    endpoints.delete("c");
    assert_eq!(endpoints.series_at(&of, minutes(77), None), last);
}

#[derive(Debug, Clone)]
enum Step {
    Create,
    Delete(usize),
    Run(usize, u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Create),
        1 => (0..8_usize).prop_map(Step::Delete),
        6 => (0..8_usize, 1..5_u64).prop_map(|(at, count)| Step::Run(at, count)),
        3 => (1..20_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn no_series_falls_and_each_job_is_counted_once(steps in steps(), names_max in 0..4_usize) {
        let (of, mut time) = (MetricSeries::new(names_max), Instant::now());
        let mut endpoints = Endpoints(vec![]);
        let mut last = HashMap::<String, u64>::new();
        let (mut jobs, mut counted) = (0, 0);
        for (number, step) in steps.iter().enumerate() {
            let name_of = |at: &usize| {
                endpoints.0.get(*at).map(|(id, _)| id.as_str().to_owned())
            };
            match step {
                Step::Create => endpoints.create(&format!("e{number}")),
                Step::Delete(at) => {
                    if let Some(name) = name_of(at) {
                        endpoints.delete(&name);
                    }
                }
                Step::Run(at, count) => {
                    if let Some(name) = name_of(at) {
                        endpoints.run(&name, *count);
                        jobs += count;
                    }
                }
                Step::Wait(minutes) => time += Duration::from_mins(*minutes),
            }
            let series = endpoints.series_at(&of, time, None);
            prop_assert!(series.iter().filter(|(name, _)| name != OTHER_ENDPOINTS).count() <= names_max);
            for (name, value) in series {
                let before = last.insert(name.clone(), value).unwrap_or_default();
                prop_assert!(value >= before, "{name} fell from {before} to {value}");
                counted += value - before;
            }
            prop_assert_eq!(counted, jobs);
        }
    }
}

#[test]
fn the_shared_series_has_the_sum_of_its_endpoints_and_the_age_of_the_oldest_job() {
    let of = MetricSeries::new(0);
    let endpoint = |name: &str, in_queue, oldest_waiting_ms| {
        let jobs = JobCounts { in_queue, in_progress: 1, ..JobCounts::default() };
        let workers = WorkerCounts { running: 1, idle: 2, ..WorkerCounts::default() };
        let now = EndpointNow { jobs, oldest_waiting_ms, workers, ..EndpointNow::default() };
        (EndpointId::new(name).unwrap(), EndpointIncarnation::default(), now)
    };
    let series = of.of(vec![endpoint("a", 3, 40), endpoint("b", 4, 9)]);
    let [SeriesValues { endpoint, now, .. }] = &series[..] else { panic!("{series:?}") };
    assert_eq!(endpoint, OTHER_ENDPOINTS);
    assert!(EndpointId::new(endpoint).is_err(), "no endpoint has this name");
    assert_eq!((now.jobs.in_queue, now.jobs.in_progress, now.oldest_waiting_ms), (7, 2, 40));
    assert_eq!((now.workers.running, now.workers.idle), (2, 4));
}
