//! Head starts by tables, and by a property.

use proptest::prelude::*;

use super::*;

fn at(s: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000_000 + s * 1_000)
}

/// The order in which jobs with these seconds and priorities are claimed.
fn order(jobs: &[(u64, u8)]) -> Vec<usize> {
    let mut positions = Positions::default();
    let mut placed: Vec<_> = jobs
        .iter()
        .enumerate()
        .map(|(job, &(s, priority))| (positions.next(priority, at(s)), job))
        .collect();
    placed.sort_unstable();
    placed.into_iter().map(|(_, job)| job).collect()
}

#[test]
fn a_priority_is_a_head_start_of_a_minute_for_each_unit() {
    let cases = [
        (vec![(0, 0), (0, 0), (1, 0)], vec![0, 1, 2]),
        // The last one passes those of the last minute.
        (vec![(0, 0), (30, 0), (59, 0), (70, 1)], vec![0, 3, 1, 2]),
        (vec![(0, 0), (30, 0), (59, 0), (70, 2)], vec![3, 0, 1, 2]),
        // Nothing was submitted for a long time.
        (vec![(0, 0), (9_000, 9), (9_000, 0)], vec![0, 1, 2]),
        // Equal priorities keep their order, and the greater one is first.
        (vec![(0, 0), (100, 2), (100, 2), (100, 9)], vec![1, 2, 3, 0]),
        (vec![(10, 3), (11, 0), (12, 3), (13, 0)], vec![0, 2, 1, 3]),
        // The clock was set back.
        (vec![(500, 0), (10, 0), (10, 1)], vec![2, 0, 1]),
    ];
    for (jobs, expected) in cases {
        assert_eq!(order(&jobs), expected, "{jobs:?}");
    }
}

#[test]
fn jobs_of_an_earlier_process_are_passed_too() {
    let (mut before, mut after) = (Positions::default(), Positions::default());
    let mut restored = Vec::new();
    for s in 0..1_200 {
        let priority = u8::from(s % 7 == 0);
        restored.push((before.next(priority, at(s)), priority, at(s)));
    }
    for (position, priority, submitted_at) in restored {
        after.restore(position, priority, submitted_at);
    }
    assert_eq!((before.last(), before.seconds.len()), (after.last(), SECONDS_MAX));
    for priority in 0..=9 {
        let [before, after] = [&mut before, &mut after].map(|it| it.next(priority, at(1_200)));
        // Seconds with jobs of a priority alone are not known again.
        assert!(before.abs_diff(after) <= 2 * STEP, "{priority}: {before} {after}");
    }
}

proptest! {
    #[test]
    fn no_job_is_passed_by_one_that_comes_more_than_its_head_start_later(
        jobs in prop::collection::vec((0..40_u64, 0..10_u8), 1..80),
    ) {
        let mut now = 0;
        let jobs: Vec<_> = jobs
            .into_iter()
            .map(|(pause, priority)| {
                now += pause;
                (now, priority)
            })
            .collect();
        let order = order(&jobs);
        for (place, &first) in order.iter().enumerate() {
            for &second in &order[place + 1..] {
                let ((s1, p1), (s2, p2)) = (jobs[first], jobs[second]);
                prop_assert!(second > first || s1 <= s2 + HEAD_START_S * u64::from(p1));
                prop_assert!(p1 != p2 || first < second, "equal priorities keep their order");
            }
        }
    }
}
