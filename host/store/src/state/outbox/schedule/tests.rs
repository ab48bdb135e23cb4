//! Compares the schedule with a model that examines all deliveries for each attempt.

use proptest::prelude::*;

use super::*;

/// One delivery that is ready or under way.
#[derive(Debug)]
struct Entry {
    id: DeliveryId,
    path: Path<u8>,
    is_under_way: bool,
}

/// The groups of the schedule that a path goes through, as its first so many steps.
type Steps = usize;
const OWNER: Steps = 1;
const ENDPOINT: Steps = 2;
const TARGET: Steps = 3;

fn is_same(a: &Path<u8>, b: &Path<u8>, steps: Steps) -> bool {
    (steps < OWNER || a.owner == b.owner)
        && (steps < ENDPOINT || a.endpoint == b.endpoint)
        && (steps < TARGET || a.target == b.target)
}

#[derive(Debug, Default)]
struct Model {
    entries: Vec<Entry>,
    failing: Vec<Path<u8>>,
    /// For each number of steps: the groups that had a turn, the most recent last.
    turns: [Vec<Path<u8>>; 4],
}

impl Model {
    fn in_flight(&self, path: &Path<u8>, steps: Steps) -> usize {
        self.entries.iter().filter(|e| e.is_under_way && is_same(&e.path, path, steps)).count()
    }

    fn owner_may_begin(&self, path: &Path<u8>) -> bool {
        let (held, all) = (self.in_flight(path, OWNER), self.in_flight(path, 0));
        held == 0 || held < 3 * (ATTEMPTS_MAX - all - 1)
    }

    fn may_begin(&self, entry: &Entry) -> bool {
        let path = &entry.path;
        !entry.is_under_way
            && self.in_flight(path, 0) < ATTEMPTS_MAX
            && self.owner_may_begin(path)
            && self.in_flight(path, ENDPOINT) < ATTEMPTS_PER_ENDPOINT_MAX
            && self.in_flight(path, TARGET) < ATTEMPTS_PER_TARGET_MAX
    }

    /// Whether the receiver failed, the attempts under way, and the last turn: the least is next.
    fn rank(&self, path: &Path<u8>, steps: Steps) -> (bool, usize, Option<usize>) {
        let fails = steps == TARGET && self.failing.contains(path);
        let turn = self.turns[steps].iter().rposition(|turn| is_same(turn, path, steps));
        (fails, self.in_flight(path, steps), turn)
    }

    /// Checks a choice of the schedule, and follows it.
    fn begin(&mut self, chosen: Option<DeliveryId>) -> Result<(), TestCaseError> {
        let candidates: Vec<_> = self.entries.iter().filter(|e| self.may_begin(e)).collect();
        let Some(chosen) = chosen else {
            prop_assert!(candidates.is_empty(), "left waiting: {candidates:?}");
            return Ok(());
        };
        let found = candidates.iter().find(|entry| entry.id == chosen);
        prop_assert!(found.is_some(), "{chosen:?} may not begin");
        let path = found.unwrap().path.clone();
        for steps in [OWNER, ENDPOINT, TARGET] {
            // Of those that agree so far.
            let others = candidates.iter().filter(|e| is_same(&e.path, &path, steps - 1));
            let best = others.map(|e| self.rank(&e.path, steps)).min();
            prop_assert_eq!(best, Some(self.rank(&path, steps)), "{} steps", steps);
        }
        let own = candidates.iter().filter(|e| e.path == path);
        prop_assert_eq!(own.map(|e| e.id).min(), Some(chosen), "the oldest of its receiver");
        self.entries.iter_mut().find(|e| e.id == chosen).unwrap().is_under_way = true;
        for turns in &mut self.turns {
            turns.push(path.clone());
        }
        Ok(())
    }

    /// A group with no delivery ready or under way is dropped, and starts again without a turn.
    fn forget_idle(&mut self) {
        let entries = &self.entries;
        let lives = |path: &Path<u8>, steps| entries.iter().any(|e| is_same(&e.path, path, steps));
        self.failing.retain(|path| lives(path, TARGET));
        for steps in [OWNER, ENDPOINT, TARGET] {
            self.turns[steps].retain(|path| lives(path, steps));
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// So many deliveries become ready.
    Add(Path<u8>, usize, bool),
    /// Attempts start until none may.
    BeginAll,
    /// The oldest attempt of the `n`th delivery's receiver ends.
    End(prop::sample::Index, Option<bool>),
    /// A delivery that is ready is deleted.
    Remove(prop::sample::Index),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let path = (0_u8..4, 0_u8..3, 0_u8..6).prop_map(|(owner, endpoint, target)| Path {
        // One in four is of an endpoint without an owner.
        owner: (owner > 0).then(|| OwnerId::new(&format!("o{owner}")).unwrap()),
        endpoint: owner * 10 + endpoint,
        target: format!("t{target}").into(),
    });
    let event = prop_oneof![
        3 => (path, 1_usize..12, any::<bool>()).prop_map(|(p, n, fails)| Event::Add(p, n, fails)),
        2 => Just(Event::BeginAll),
        5 => (any::<prop::sample::Index>(), any::<Option<bool>>())
            .prop_map(|(which, end)| Event::End(which, end)),
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
    ];
    prop::collection::vec(event, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Shares are respected, no delivery that may begin waits, and groups take turns.
    #[test]
    fn attempts_start_in_the_order_of_the_model(events in events()) {
        let (mut schedule, mut model) = (Schedule::default(), Model::default());
        let mut last_id = 0;
        for event in events {
            match event {
                Event::Add(path, count, has_failed) => {
                    for _ in 0..count {
                        last_id += 1;
                        let id = DeliveryId(last_id);
                        schedule.add(&path, id, has_failed);
                        model.entries.push(Entry { id, path: path.clone(), is_under_way: false });
                    }
                    if has_failed {
                        model.failing.push(path);
                    }
                }
                Event::BeginAll => loop {
                    let chosen = schedule.begin();
                    model.begin(chosen)?;
                    if chosen.is_none() {
                        break;
                    }
                },
                Event::End(which, was_received) => {
                    let in_flight: Vec<_> =
                        model.entries.iter().filter(|e| e.is_under_way).map(|e| e.id).collect();
                    if in_flight.is_empty() {
                        continue;
                    }
                    let id = *which.get(&in_flight);
                    let position = model.entries.iter().position(|e| e.id == id).unwrap();
                    let path = model.entries.remove(position).path;
                    schedule.end(&path, was_received);
                    if let Some(was_received) = was_received {
                        model.failing.retain(|failing| *failing != path);
                        if !was_received {
                            model.failing.push(path);
                        }
                    }
                }
                Event::Remove(which) => {
                    let ready: Vec<_> =
                        model.entries.iter().filter(|e| !e.is_under_way).map(|e| e.id).collect();
                    if ready.is_empty() {
                        continue;
                    }
                    let id = *which.get(&ready);
                    let position = model.entries.iter().position(|e| e.id == id).unwrap();
                    let path = model.entries.remove(position).path;
                    schedule.remove(&path, id);
                }
            }
            model.forget_idle();
        }
        for entry in model.entries {
            if entry.is_under_way {
                schedule.end(&entry.path, None);
            } else {
                schedule.remove(&entry.path, entry.id);
            }
        }
        prop_assert!(schedule.is_empty());
    }
}
