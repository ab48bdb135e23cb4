//! Charts as hosts before the numbers of workers wrote them: their points have no workers.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::ring::{Buckets, MostWorkers, Point, Quantiles, Ring, Rings, Step};
use super::window::Window;

/// The mark of their files.
pub(super) const MARK: &[u8; 8] = b"gmchart1";

#[derive(Serialize, Deserialize)]
struct EarlierPoint {
    submitted: u32,
    completed: u32,
    failed: u32,
    cancelled: u32,
    timed_out: u32,
    waiting: u32,
    running: u32,
    delay: Quantiles,
    run: Quantiles,
}

#[derive(Serialize, Deserialize)]
struct EarlierStep {
    numbers: EarlierPoint,
    delay: Buckets,
    run: Buckets,
}

#[derive(Serialize, Deserialize)]
struct EarlierRing {
    now: u64,
    open: EarlierStep,
    closed: VecDeque<EarlierPoint>,
}

type EarlierCharts = HashMap<String, [EarlierRing; Window::ALL.len()]>;

/// The charts of the content of such a file.
pub(super) fn decode(content: &[u8]) -> Option<HashMap<String, Rings>> {
    let charts: EarlierCharts = postcard::from_bytes(content).ok()?;
    Some(charts.into_iter().map(|(name, rings)| (name, rings.map(EarlierRing::ring))).collect())
}

impl EarlierRing {
    fn ring(self) -> Ring {
        let EarlierRing { now, open: EarlierStep { numbers, delay, run }, closed } = self;
        let open = Step { numbers: numbers.point(), delay, run };
        Ring { now, open, closed: closed.into_iter().map(EarlierPoint::point).collect() }
    }
}

impl EarlierPoint {
    fn point(self) -> Point {
        let Self { submitted, completed, failed, cancelled, timed_out, .. } = self;
        let Self { waiting, running, delay, run, .. } = self;
        Point {
            submitted,
            completed,
            failed,
            cancelled,
            timed_out,
            waiting,
            running,
            workers: MostWorkers::default(),
            delay,
            run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_an_earlier_host_are_read_without_workers() {
        let number = |base| {
            let quantiles = Quantiles { p50: base + 7, p95: base + 8, p99: base + 9 };
            EarlierPoint {
                submitted: base,
                completed: base + 1,
                failed: base + 2,
                cancelled: base + 3,
                timed_out: base + 4,
                waiting: base + 5,
                running: base + 6,
                delay: quantiles,
                run: quantiles,
            }
        };
        let mut delay = Buckets::default();
        delay[3] = 4;
        let ring = |now| EarlierRing {
            now,
            open: EarlierStep { numbers: number(100), delay, run: Buckets::default() },
            closed: [number(10), number(20)].into(),
        };
        let charts = EarlierCharts::from([("e".to_owned(), [ring(50), ring(6), ring(7)])]);
        let read = decode(&postcard::to_allocvec(&charts).unwrap()).unwrap();
        let rings = &read["e"];
        assert_eq!(rings.each_ref().map(|ring| ring.now), [50, 6, 7]);
        let (first, points) = rings[1].points(Window::Hours6);
        let submitted: Vec<_> = points.iter().map(|point| point.submitted).collect();
        assert_eq!((first, submitted), (4, vec![10, 20, 100]), "with the open step");
        assert_eq!((points[0].running, points[1].run.p99), (16, 29));
        assert!(points.iter().all(|point| point.workers == MostWorkers::default()));
    }
}
