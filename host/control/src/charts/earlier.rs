//! Charts as hosts with coarse buckets of durations wrote them. Their closed steps are read; the durations of the
//! steps that were open, and those of whole windows, begin again.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::ring::{Point, Ring, Rings, Step};
use super::window::Window;

/// The mark of their files.
pub(super) const MARK: &[u8; 8] = b"gmchart2";

type EarlierBuckets = [u32; 21];

#[derive(Serialize, Deserialize)]
struct EarlierStep {
    numbers: Point,
    delay: EarlierBuckets,
    run: EarlierBuckets,
}

#[derive(Serialize, Deserialize)]
struct EarlierRing {
    now: u64,
    open: EarlierStep,
    closed: VecDeque<Point>,
}

type EarlierCharts = HashMap<String, [EarlierRing; Window::ALL.len()]>;

/// The charts of the content of such a file.
pub(super) fn decode(content: &[u8]) -> Option<HashMap<String, Rings>> {
    let charts: EarlierCharts = postcard::from_bytes(content).ok()?;
    Some(charts.into_iter().map(|(name, rings)| (name, rings.map(EarlierRing::ring))).collect())
}

impl EarlierRing {
    fn ring(self) -> Ring {
        let Self { now, open: EarlierStep { numbers, .. }, closed } = self;
        Ring { now, open: Step { numbers, ..Step::default() }, closed, ..Ring::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::Quantiles;
    use super::*;

    #[test]
    fn the_closed_steps_of_an_earlier_host_are_read() {
        let number = |base: u32| {
            let at = u64::from(base);
            let run = Quantiles { p50: at + 7, p95: at + 8, p99: at + 9 };
            Point { submitted: base, running: base + 6, run, ..Point::default() }
        };
        let ring = |now| EarlierRing {
            now,
            open: EarlierStep { numbers: number(100), delay: [4; 21], run: [0; 21] },
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
    }
}
