//! Steps of a window: sums, gaps, clocks that are set back, percentiles, and any sequence of times.

use gristmill_core::metrics::spread::RecentDurations;
use proptest::prelude::*;

use super::*;

const WINDOW: Window = Window::Minutes15;
const STEP: u64 = 10_000;

fn sample(submitted: u32) -> Sample {
    let counts = WorkerCounts { idle: submitted.into(), ..WorkerCounts::default() };
    let workers = counts.into();
    Sample {
        numbers: Point { submitted, waiting: submitted, workers, ..Point::default() },
        ..Sample::default()
    }
}

fn submitted(ring: &Ring) -> (u64, Vec<u32>) {
    let (first, points) = ring.points(WINDOW);
    (first, points.iter().map(|point| point.submitted).collect())
}

#[test]
fn each_step_has_the_sum_of_its_samples_and_a_gap_is_empty() {
    let mut ring = Ring::new(WINDOW, 100 * STEP);
    for (at, number) in [(100 * STEP, 1), (100 * STEP + 9_999, 2), (101 * STEP, 4)] {
        ring.add(WINDOW, at, &sample(number));
    }
    assert_eq!(submitted(&ring), (100, vec![3]), "the open step is not shown");
    ring.add(WINDOW, 104 * STEP, &sample(8));
    assert_eq!(submitted(&ring), (100, vec![3, 4, 0, 0]));
    let most = ring.points(WINDOW).1[0].waiting;
    assert_eq!(most, 2, "of a state it has the largest value");
    let idle =
        |ring: &Ring| ring.points(WINDOW).1.iter().map(|at| at.workers.idle).collect::<Vec<_>>();
    assert_eq!(idle(&ring), [2, 4, 0, 0]);
    ring.add(WINDOW, 10_000 * STEP, &sample(0));
    assert_eq!(submitted(&ring), (10_000 - 90, vec![0; 90]));
    ring.add(WINDOW, u64::MAX, &sample(0));
    assert_eq!(submitted(&ring).1, vec![0; 90]);
}

#[test]
fn the_steps_after_the_time_of_a_clock_that_is_set_back_are_dropped() {
    let mut ring = Ring::new(WINDOW, 100 * STEP);
    (100..110).for_each(|step| ring.add(WINDOW, step * STEP, &sample(1)));
    ring.add(WINDOW, 105 * STEP, &sample(1));
    assert_eq!(submitted(&ring), (100, vec![1; 5]));
    ring.add(WINDOW, 106 * STEP, &sample(0));
    assert_eq!(submitted(&ring).1.last(), Some(&2), "the open step goes on");
    ring.add(WINDOW, 0, &sample(1));
    assert_eq!(submitted(&ring), (0, vec![]));
}

fn ran(durations_us: &[u64]) -> Sample {
    let recent = RecentDurations::default();
    durations_us.iter().for_each(|us| recent.record(*us));
    Sample { run: recent.take(), ..Sample::default() }
}

#[test]
fn the_percentiles_of_a_window_are_those_of_all_its_jobs() {
    for window in Window::ALL {
        let mut ring = Ring::new(window, 0);
        let mut add = |step: u64, durations: &[u64]| {
            ring.add(window, step * window.step_ms(), &ran(durations));
            ring.run()
        };
        let steps = window.steps() as u64;
        let most = vec![1_000_000; 98];
        let p99 = add(1, &most).p99;
        assert!(
            (940_000..=1_000_000).contains(&p99),
            "one bucket, and not above the longest: {p99}"
        );
        let run = add(steps / 2, &[5_002_000, 5_002_000]);
        assert!((4_702_000..=5_302_000).contains(&run.p99), "{run:?}");
        assert!((940_000..=1_060_000).contains(&run.p50), "of all steps, not the newest: {run:?}");
        assert_eq!(add(steps, &[]), run, "the whole window");
        let left = add(steps + 1 + window.part_steps(), &[]);
        assert_eq!(left.p50, run.p99, "the first step has left it");
        assert_eq!(add(3 * steps, &[]), Quantiles::default());
    }
}

#[test]
fn parts_of_a_window_are_as_long_as_the_window() {
    for window in Window::ALL {
        assert_eq!(window.parts() as u64 * window.part_steps(), window.steps() as u64);
    }
}

proptest! {
    #[test]
    fn no_sequence_of_times_breaks_the_bounds(
        times in proptest::collection::vec(0..2_000_000_u64, 0..100),
    ) {
        let mut ring = Ring::new(WINDOW, 1_000_000);
        for at in times {
            ring.add(WINDOW, at, &sample(1));
            prop_assert!(ring.is_sound(WINDOW));
            let (first, points) = ring.points(WINDOW);
            prop_assert_eq!(first + points.len() as u64, at / STEP);
        }
    }
}
