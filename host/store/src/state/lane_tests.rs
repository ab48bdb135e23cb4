use proptest::prelude::*;

use super::*;
use crate::state::slab::Slab;

const A: Flow = Flow(1);
const B: Flow = Flow(2);

/// Claims all jobs, and returns their flows in turn.
fn claim_all(lane: &mut Lane, jobs: &[(Flow, u64, JobKey)]) -> Vec<Flow> {
    let mut flows = Vec::new();
    while let Some(first) = lane.first() {
        let (flow, position, key) = *jobs.iter().find(|(.., key)| *key == first).unwrap();
        lane.taken(flow);
        assert!(lane.remove(flow, position, key));
        flows.push(flow);
    }
    flows
}

fn keys(count: usize) -> Vec<JobKey> {
    let mut slab = Slab::new();
    (0..count).map(|_| slab.insert(())).collect()
}

#[test]
fn a_key_with_many_jobs_does_not_hold_up_the_others() {
    let (mut lane, keys) = (Lane::default(), keys(120));
    let flow = |n: usize| match n {
        0..100 => A,
        100..110 => B,
        _ => Flow::NONE,
    };
    let jobs: Vec<_> = keys.iter().enumerate().map(|(n, key)| (flow(n), n as u64, *key)).collect();
    for (flow, position, key) in &jobs {
        assert!(lane.insert((*flow, Admission::default()), *position, *key));
    }
    assert_eq!((lane.len(), lane.oldest()), (120, Some(keys[0])));
    let order = claim_all(&mut lane, &jobs);
    for thirds in order[..30].chunks(3) {
        for flow in [A, B, Flow::NONE] {
            assert!(thirds.contains(&flow), "{order:?}");
        }
    }
    assert!(order[30..].iter().all(|flow| *flow == A));
    assert!(lane.keyed.is_none());
}

#[test]
fn a_key_that_may_start_no_job_holds_up_no_other() {
    let (mut lane, keys) = (Lane::default(), keys(8));
    let admission = |starts, weight| Admission { starts, weight };
    let jobs: Vec<_> =
        keys.iter().enumerate().map(|(n, key)| ([A, B][n % 2], n as u64, *key)).collect();
    for (flow, position, key) in &jobs {
        let admitted = if *flow == A { admission(0, 1) } else { admission(2, 3) };
        assert!(lane.insert((*flow, admitted), *position, *key));
    }
    assert_eq!((lane.len(), lane.open(), lane.oldest()), (8, 2, Some(keys[1])));
    lane.admit(B, admission(0, 3));
    assert_eq!((lane.open(), lane.first()), (0, None));
    lane.admit(A, admission(u32::MAX, 1));
    lane.admit(B, admission(u32::MAX, 3));
    assert_eq!((lane.open(), lane.oldest()), (8, Some(keys[0])));
    let order = claim_all(&mut lane, &jobs);
    assert_eq!(order[..4].iter().filter(|flow| **flow == B).count(), 3, "by weight: {order:?}");
}

proptest! {
    /// Whatever comes and goes, each job is there once, and jobs of a key keep their order.
    #[test]
    fn no_job_is_lost(steps in proptest::collection::vec((0_u8..3, 0_u64..4, any::<prop::sample::Index>()), 1..300)) {
        let keys = keys(steps.len());
        let mut lane = Lane::default();
        let mut waiting: Vec<(Flow, u64, JobKey)> = Vec::new();
        for (position, ((step, flow, which), key)) in steps.into_iter().zip(keys).enumerate() {
            match step {
                0 if !waiting.is_empty() => {
                    let (flow, position, key) = waiting.remove(which.index(waiting.len()));
                    prop_assert!(lane.remove(flow, position, key));
                }
                1 => if let Some(first) = lane.first() {
                    let at = waiting.iter().position(|(.., key)| *key == first).unwrap();
                    let (flow, position, key) = waiting.remove(at);
                    prop_assert!(waiting.iter().all(|(of, later, _)| *of != flow || *later > position));
                    lane.taken(flow);
                    prop_assert!(lane.remove(flow, position, key));
                },
                _ => {
                    waiting.push((Flow(flow), position as u64, key));
                    prop_assert!(lane.insert((Flow(flow), Admission::default()), position as u64, key));
                }
            }
            prop_assert_eq!(lane.len(), waiting.len());
            prop_assert_eq!(lane.first().is_some(), !waiting.is_empty());
            prop_assert_eq!(lane.oldest(), waiting.iter().map(|(_, at, key)| (at, *key)).min().map(|(_, key)| key));
            prop_assert_eq!(lane.below(u64::MAX).count(), waiting.len());
        }
    }
}
