//! What the endpoints did in the last 15 minutes, 6 hours and 7 days, for charts.
//!
//! One task takes a sample of the counters of all endpoints every [`SAMPLE_INTERVAL`]; nothing is
//! done on the path of a job. The host writes the charts to a file now and then, so that they
//! survive a restart; samples since the last write are lost with the process.
//!
//! **Bounds.** [`CHARTS_MAX`] endpoints have charts. An endpoint gets one with its first job. At
//! the bound it takes the place of the least recently active endpoint of the owner with the most
//! charts, if that owner keeps at least as many as the new endpoint's owner gets; otherwise that of
//! an endpoint of an owner with no fewer charts, if it was inactive for [`INACTIVE_AFTER_MS`]. So
//! one owner cannot keep the charts from the others.
//! A chart takes 21 KiB for its 246 steps, and for each of its at most 37 spreads of durations 56
//! bytes and 4 for each bucket: 27 KiB if all durations are within a factor of eight, and 68 KiB at
//! most.
//! **Cost.** Some microseconds for each endpoint and sample; at the bound, a look at all charts for
//! each chart that is replaced, and for each owner with an endpoint that gets none.

mod file;
mod ring;
mod window;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::access::key::ApiKey;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::record::JobCounts;
use gristmill_core::metrics::endpoint::EndpointTotals;
use gristmill_core::metrics::spread::Spread;
use gristmill_core::store::StoreError;
use gristmill_core::workers::WorkerCounts;
use parking_lot::Mutex;

use self::file::CHARTS_MAX;
pub use self::file::ChartsDamaged;
pub use self::ring::{MostWorkers, Point, Quantiles};
use self::ring::{Ring, Rings, Sample};
pub use self::window::Window;
use crate::deployed::Deployed;
use crate::error::ControlError;
use crate::owned::missing;

/// Time between two samples: the shortest step.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Endpoints whose counters are read at one time: less than half a millisecond.
const SAMPLE_PART: usize = 100;

/// An endpoint without jobs for this time gives its place to another one.
const INACTIVE_AFTER_MS: u64 = 15 * 60_000;

/// The chart of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// The time of the first point, in milliseconds since 1970.
    pub from_ms: u64,
    /// The points, a step apart, the oldest first. Empty for an endpoint without jobs.
    pub points: Vec<Point>,
    /// The times that attempts ran in the whole window, and in up to a minute, an hour or a day
    /// before it.
    pub run: Quantiles,
}

/// The service for charts.
#[derive(Debug, Clone)]
pub struct Charts(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    deployed: Arc<Deployed>,
    kept: Mutex<Kept>,
}

/// The charts of all endpoints, by the names of their incarnations.
#[derive(Debug, Default)]
struct Kept {
    charts: HashMap<String, Entry>,
    /// Whether an endpoint was ever left out, so that earlier counts of a new one may be old.
    was_full: bool,
}

/// The counters of an endpoint, and its present state.
#[derive(Debug)]
struct Observed {
    incarnation: EndpointIncarnation,
    totals: EndpointTotals,
    jobs: JobCounts,
    workers: WorkerCounts,
    /// Since the last sample.
    delay: Spread,
    run: Spread,
}

#[derive(Debug)]
struct Entry {
    rings: Rings,
    /// The counters at the last sample.
    seen: EndpointTotals,
    active_at_ms: u64,
}

impl Charts {
    pub(crate) fn new(deployed: Arc<Deployed>) -> Self {
        Self(Arc::new(Parts { deployed, kept: Mutex::default() }))
    }

    /// Takes a sample of all endpoints.
    ///
    /// # Errors
    /// When the store is closed.
    pub async fn sample(&self) -> Result<(), StoreError> {
        let Deployed { store, workers, .. } = &*self.0.deployed;
        let view = self.0.deployed.view();
        let mut samples = Vec::with_capacity(view.deployments.len());
        for (count, (id, deployment)) in view.deployments.iter().enumerate() {
            if count % SAMPLE_PART == SAMPLE_PART - 1 {
                tokio::task::yield_now().await;
            }
            let incarnation = deployment.incarnation.clone();
            let totals = incarnation.metrics().totals();
            let (jobs, workers) = (store.counts(id).await?, workers.counts(id));
            let (delay, run) = incarnation.metrics().take_recent();
            samples.push(Observed { incarnation, totals, jobs, workers, delay, run });
        }
        let (parts, now_ms) = (self.0.clone(), self.0.deployed.now().as_millis());
        // Thousands of endpoints take several milliseconds.
        let add = move || parts.kept.lock().add(now_ms, &samples);
        tokio::task::spawn_blocking(add).await.map_err(|_| StoreError::Closed)
    }

    /// The chart of an endpoint that the key sees.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn of(
        &self,
        caller: &ApiKey,
        id: &EndpointId,
        window: Window,
    ) -> Result<Chart, ControlError> {
        let view = self.0.deployed.view();
        let found = view.deployments.get(id).filter(|found| caller.sees(&found.endpoint.owner));
        let found = found.ok_or_else(|| missing::<Endpoint>(id))?;
        let now_ms = self.0.deployed.now().as_millis();
        let kept = self.0.kept.lock();
        Ok(kept.chart(&found.incarnation, window).unwrap_or_else(|| Chart {
            from_ms: now_ms,
            points: vec![],
            run: Quantiles::default(),
        }))
    }

    /// The charts of all endpoints that the key sees and that have one.
    pub fn all(&self, caller: &ApiKey, window: Window) -> Vec<(EndpointId, Chart)> {
        let view = self.0.deployed.view();
        let seen = view.deployments.iter();
        let seen = seen.filter(|(_, found)| caller.sees(&found.endpoint.owner));
        let kept = self.0.kept.lock();
        let chart = |(id, found): (&EndpointId, &Arc<Deployment>)| {
            Some((id.clone(), kept.chart(&found.incarnation, window)?))
        };
        seen.filter_map(chart).collect()
    }

    /// All charts, for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kept = self.0.kept.lock();
        let charts = kept.charts.iter().map(|(name, entry)| (name.as_str(), &entry.rings));
        file::encode(&charts.collect())
    }

    /// Takes over the charts of an earlier process, before the first sample.
    ///
    /// # Errors
    /// [`ChartsDamaged`]; nothing has changed.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), ChartsDamaged> {
        let charts = file::decode(bytes)?;
        let now_ms = self.0.deployed.now().as_millis();
        let entry = |rings| Entry { rings, seen: EndpointTotals::default(), active_at_ms: now_ms };
        let charts = charts.into_iter().map(|(name, rings)| (name, entry(rings)));
        self.0.kept.lock().charts = charts.collect();
        Ok(())
    }
}

/// The charts of each owner, while a sample is added.
#[derive(Debug, Default)]
struct Shares<'a> {
    /// By the names of the incarnations.
    owners: HashMap<&'a str, &'a OwnerId>,
    held: HashMap<&'a OwnerId, usize>,
    /// Owners for whose further endpoints this sample has no room.
    refused: HashSet<&'a OwnerId>,
}

impl Shares<'_> {
    /// The charts that the owner of this one has.
    fn held_beside(&self, name: &str) -> usize {
        let owner = self.owners.get(name);
        owner.and_then(|owner| self.held.get(owner)).copied().unwrap_or_default()
    }

    fn count(&mut self, name: &str, change: impl FnOnce(usize) -> usize) {
        if let Some(owner) = self.owners.get(name) {
            let held = self.held.entry(owner).or_default();
            *held = change(*held);
        }
    }
}

impl Kept {
    fn add<'a>(&mut self, now_ms: u64, samples: &'a [Observed]) {
        let owner = |it: &'a Observed| (it.incarnation.name_on_disk(), it.incarnation.owner());
        let owners: HashMap<_, _> = samples.iter().map(owner).collect();
        self.charts.retain(|name, _| owners.contains_key(name.as_str()));
        let mut shares = Shares { owners, ..Shares::default() };
        for name in self.charts.keys() {
            shares.count(name, |held| held + 1);
        }
        for observed in samples {
            let Observed { incarnation, totals, jobs, .. } = observed;
            let name = incarnation.name_on_disk();
            let is_known = self.charts.contains_key(name);
            if !is_known {
                let is_active =
                    jobs.in_queue + jobs.in_progress > 0 || *totals != EndpointTotals::default();
                if !is_active || !self.make_room(now_ms, incarnation.owner(), &mut shares) {
                    continue;
                }
                // Its counts may be those of days in which it had no chart.
                let seen = if self.was_full { totals.clone() } else { EndpointTotals::default() };
                let rings = Window::ALL.map(|window| Ring::new(window, now_ms));
                self.charts.insert(name.to_owned(), Entry { rings, seen, active_at_ms: now_ms });
                shares.count(name, |held| held + 1);
            }
            if let Some(entry) = self.charts.get_mut(name) {
                entry.add(now_ms, observed);
            }
        }
    }

    /// Makes room for one more chart of the owner, if it can.
    fn make_room<'a>(&mut self, now_ms: u64, owner: &'a OwnerId, shares: &mut Shares<'a>) -> bool {
        if self.charts.len() < CHARTS_MAX {
            return true;
        }
        self.was_full = true;
        if shares.refused.contains(owner) {
            return false;
        }
        let own = shares.held.get(owner).copied().unwrap_or_default();
        let may_go = |(name, entry): (&String, &Entry)| {
            let held = shares.held_beside(name);
            let idle_ms = now_ms.saturating_sub(entry.active_at_ms);
            let has_more = held > own + 1 || held >= own && idle_ms >= INACTIVE_AFTER_MS;
            has_more.then(|| (Reverse(held), entry.active_at_ms, name.clone()))
        };
        let Some((.., name)) = self.charts.iter().filter_map(may_go).min() else {
            shares.refused.insert(owner);
            return false;
        };
        shares.count(&name, |held| held - 1);
        self.charts.remove(&name).is_some()
    }

    fn chart(&self, incarnation: &EndpointIncarnation, window: Window) -> Option<Chart> {
        let entry = self.charts.get(incarnation.name_on_disk())?;
        let (_, ring) = Window::ALL.iter().zip(&entry.rings).find(|(one, _)| **one == window)?;
        let (first, points) = ring.points(window);
        Some(Chart { from_ms: first.saturating_mul(window.step_ms()), points, run: ring.run() })
    }
}

impl Entry {
    fn add(&mut self, now_ms: u64, observed: &Observed) {
        let Observed { totals, jobs, workers, delay, run, .. } = observed;
        let since = totals.clone().since(&self.seen);
        if *totals != self.seen || jobs.in_queue + jobs.in_progress > 0 {
            self.active_at_ms = now_ms;
        }
        self.seen.clone_from(totals);
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let [completed, timed_out, failed @ ..] = since.finished;
        let numbers = Point {
            submitted: number(since.submitted.iter().sum()),
            completed: number(completed),
            failed: number(failed.iter().sum()),
            cancelled: number(since.cancelled),
            timed_out: number(timed_out),
            waiting: number(jobs.in_queue),
            running: number(jobs.in_progress),
            workers: (*workers).into(),
            ..Point::default()
        };
        let sample = Sample { numbers, delay: delay.clone(), run: run.clone() };
        for (ring, window) in self.rings.iter_mut().zip(Window::ALL) {
            ring.add(window, now_ms, &sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(owner: &str, count: usize) -> Vec<Observed> {
        let owner = OwnerId::new(owner).unwrap();
        let busy = || Observed {
            incarnation: EndpointIncarnation::new(owner.clone()),
            totals: EndpointTotals::default(),
            jobs: JobCounts { in_queue: 1, ..JobCounts::default() },
            workers: WorkerCounts::default(),
            delay: Spread::default(),
            run: Spread::default(),
        };
        std::iter::repeat_with(busy).take(count).collect()
    }

    fn with_charts(kept: &Kept, samples: &[Observed]) -> HashMap<String, usize> {
        let mut held = HashMap::new();
        for observed in samples {
            if kept.charts.contains_key(observed.incarnation.name_on_disk()) {
                *held.entry(observed.incarnation.owner().to_string()).or_default() += 1;
            }
        }
        held
    }

    #[test]
    fn an_owner_with_many_endpoints_leaves_charts_to_the_others() {
        const STEP_MS: u64 = 10_000;
        let held = |pairs: &[(&str, usize)]| -> HashMap<String, usize> {
            pairs.iter().map(|(owner, held)| ((*owner).to_owned(), *held)).collect()
        };
        let (mut kept, mut now_ms) = (Kept::default(), 1_000_000);
        let mut add = |kept: &mut Kept, samples: &[Observed]| {
            now_ms += STEP_MS;
            kept.add(now_ms, samples);
            assert!(kept.charts.len() <= CHARTS_MAX);
            with_charts(kept, samples)
        };
        let mut samples = busy("many", CHARTS_MAX + 200);
        assert_eq!(add(&mut kept, &samples), held(&[("many", 1_000)]));
        samples.extend(busy("few", 3));
        assert_eq!(add(&mut kept, &samples), held(&[("many", 997), ("few", 3)]));
        let of_few: Vec<_> = samples[CHARTS_MAX + 200..].iter().collect();
        let few: Vec<_> =
            of_few.iter().map(|it| it.incarnation.name_on_disk().to_owned()).collect();
        samples.extend(busy("also-many", CHARTS_MAX));
        let expected = held(&[("many", 499), ("also-many", 498), ("few", 3)]);
        for _ in 0..3 {
            assert_eq!(add(&mut kept, &samples), expected, "no chart goes to and fro");
        }
        // The few lose theirs to no owner with more, however long they are inactive.
        for observed in &mut samples {
            if observed.incarnation.owner().as_str() == "few" {
                observed.jobs = JobCounts::default();
            }
        }
        for _ in 0..=INACTIVE_AFTER_MS / STEP_MS {
            assert_eq!(add(&mut kept, &samples), expected);
        }
        assert!(few.iter().all(|name| kept.charts.contains_key(name)));
    }

    #[test]
    fn an_inactive_endpoint_gives_its_place_to_one_of_its_owner() {
        let mut kept = Kept::default();
        let mut samples = busy("one", CHARTS_MAX + 1);
        kept.add(1_000_000, &samples);
        let last = samples[CHARTS_MAX].incarnation.name_on_disk().to_owned();
        assert!(!kept.charts.contains_key(&last), "all others are active");
        samples[7].jobs = JobCounts::default();
        kept.add(1_000_000 + INACTIVE_AFTER_MS - 1, &samples);
        assert!(!kept.charts.contains_key(&last));
        kept.add(1_000_000 + INACTIVE_AFTER_MS, &samples);
        assert!(kept.charts.contains_key(&last));
        assert!(!kept.charts.contains_key(samples[7].incarnation.name_on_disk()));
    }
}
