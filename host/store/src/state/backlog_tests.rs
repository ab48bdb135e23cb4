use proptest::prelude::*;

use super::*;
use crate::state::slab::Slab;

fn keys() -> [JobKey; 3] {
    let mut slab = Slab::new();
    [slab.insert(1), slab.insert(2), slab.insert(3)]
}

fn pop(backlog: &mut Backlog, now: Instant) -> Option<JobKey> {
    let mut round = backlog.begin_round(false, now);
    match backlog.pop(&mut round, |_| false) {
        Some(Write::Job(key)) => Some(key),
        _ => None,
    }
}

#[test]
fn a_lingering_change_is_not_written_with_an_urgent_one() {
    let [first, second, third] = keys();
    let mut backlog = Backlog::default();
    assert_eq!(backlog.due(), None);
    let begin = Instant::now();
    let (mut queued_first, mut queued_second, mut queued_third) = (None, None, None);
    backlog.push_job(first, &mut queued_first, Urgency::Deferred);
    backlog.push_job(second, &mut queued_second, Urgency::Deferred);
    backlog.push_job(third, &mut queued_third, Urgency::Now);
    // The second job has an urgent change, and keeps its position behind the third.
    backlog.push_job(second, &mut queued_second, Urgency::Now);
    backlog.push_job(second, &mut queued_second, Urgency::Deferred);
    assert_eq!(queued_second, Some(Urgency::Now));
    assert_eq!(backlog.due(), Some(Due::Now));
    assert_eq!(pop(&mut backlog, begin), Some(third));
    assert_eq!(pop(&mut backlog, begin), Some(second));
    assert_eq!(pop(&mut backlog, begin), None);
    assert!(matches!(backlog.due(), Some(Due::By(until)) if until >= begin + LINGER));
    assert_eq!(pop(&mut backlog, Instant::now() + LINGER), Some(first));
    backlog.drop_stale(|_| false);
    assert_eq!(backlog.due(), None);
}

#[test]
fn a_change_pushed_last_is_written_after_lingering_ones() {
    let [first, ..] = keys();
    let mut backlog = Backlog::default();
    backlog.push_job(first, &mut None, Urgency::Deferred);
    backlog.push_last(Write::Break);
    assert_eq!(pop(&mut backlog, Instant::now()), Some(first));
    let mut round = backlog.begin_round(false, Instant::now());
    assert!(matches!(backlog.pop(&mut round, |_| false), Some(Write::Break)));
    backlog.push_job(first, &mut None, Urgency::Deferred);
    let mut round = backlog.begin_round(true, Instant::now());
    assert!(backlog.pop(&mut round, |_| false).is_some());
}

/// Entries by their place in the order of the decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Small(usize),
    Large(usize),
    Last(usize),
}

/// A backlog whose entries are known.
struct Entries {
    backlog: Backlog,
    slab: Slab<()>,
    jobs: Vec<(JobKey, Entry)>,
    barriers: Vec<(Entry, oneshot::Receiver<()>)>,
    pushed: usize,
}

impl Entries {
    fn new() -> Self {
        let (backlog, slab) = (Backlog::default(), Slab::new());
        Self { backlog, slab, jobs: Vec::new(), barriers: Vec::new(), pushed: 0 }
    }

    fn push(&mut self, kind: u8) {
        let number = self.pushed;
        self.pushed += 1;
        if kind == 0 {
            let (ack, receiver) = oneshot::channel();
            self.barriers.push((Entry::Last(number), receiver));
            self.backlog.push_last(Write::Barrier(ack));
            return;
        }
        let entry = if kind < 4 { Entry::Small(number) } else { Entry::Large(number) };
        let key = self.slab.insert(());
        self.jobs.push((key, entry));
        self.backlog.push_job(key, &mut None, Urgency::Now);
    }

    fn entry(&self, key: JobKey) -> Entry {
        self.jobs.iter().find(|(job, _)| *job == key).unwrap().1
    }

    /// Takes a batch of `small_max` small jobs or one large job, like the bytes of a batch.
    fn batch(&mut self, small_max: usize) -> Vec<Entry> {
        let mut round = self.backlog.begin_round(false, Instant::now());
        let mut batch = Vec::new();
        let is_large = |jobs: &[(JobKey, Entry)], key| {
            jobs.iter().any(|(job, entry)| *job == key && matches!(entry, Entry::Large(_)))
        };
        while batch.len() < small_max && !batch.iter().any(|it| matches!(it, Entry::Large(_))) {
            let Some(write) = self.backlog.pop(&mut round, |key| is_large(&self.jobs, key)) else {
                break;
            };
            match write {
                Write::Job(key) => batch.push(self.entry(key)),
                Write::Barrier(ack) => {
                    let _ = ack.send(());
                    let answered =
                        self.barriers.iter_mut().position(|(_, it)| it.try_recv().is_ok());
                    batch.push(self.barriers.remove(answered.unwrap()).0);
                }
                other => panic!("{other:?}"),
            }
        }
        batch
    }
}

#[test]
fn a_small_change_waits_for_one_large_change_however_many_are_due() {
    use Entry::{Large, Small};
    let mut entries = Entries::new();
    for _ in 0..5 {
        entries.push(4);
    }
    assert_eq!(entries.batch(10), [Large(0)]);
    entries.push(1);
    assert_eq!(entries.batch(10), [Small(5)]);
    entries.push(1);
    assert_eq!(entries.batch(10), [Large(1)]);
    assert_eq!(entries.batch(10), [Small(6)]);
    assert_eq!(entries.batch(10), [Large(2)]);
    assert_eq!(entries.batch(10), [Large(3)], "no small change is due");
    assert_eq!(entries.batch(10), [Large(4)]);
    assert_eq!((entries.batch(10), entries.backlog.due()), (vec![], None));
}

#[test]
fn small_changes_do_not_starve_a_large_one() {
    use Entry::{Large, Small};
    let mut entries = Entries::new();
    [1, 4, 1, 1, 1].into_iter().for_each(|kind| entries.push(kind));
    assert_eq!(entries.batch(2), [Small(0), Small(2)]);
    assert_eq!(entries.batch(2), [Large(1)]);
    assert_eq!(entries.batch(2), [Small(3), Small(4)]);
}

proptest! {
    /// In any order of changes and batches, none is lost or comes twice, changes of a kind keep
    /// their order, a barrier is last of all before it, and no large change is left out twice.
    #[test]
    fn batches_have_turns(steps in prop::collection::vec(0_u8..9, 1..80), small_max in 1_usize..6) {
        let mut entries = Entries::new();
        let (mut taken, mut was_large) = (Vec::new(), true);
        let mut take = |entries: &mut Entries| {
            let has_large = !entries.backlog.large.is_empty();
            let batch = entries.batch(small_max);
            let is_large = batch.iter().any(|it| !matches!(it, Entry::Small(_)));
            assert!(was_large || is_large || !has_large, "the second batch without those left");
            assert!(!batch.is_empty() || entries.backlog.due().is_none());
            was_large = is_large;
            taken.extend(batch);
        };
        for step in steps {
            if step < 6 { entries.push(step) } else { take(&mut entries) }
        }
        while entries.backlog.due().is_some() {
            take(&mut entries);
        }
        let numbers = |of: &dyn Fn(&Entry) -> Option<usize>| taken.iter().filter_map(of).collect::<Vec<_>>();
        let small = numbers(&|it| if let Entry::Small(n) = it { Some(*n) } else { None });
        let large = numbers(&|it| if let Entry::Large(n) = it { Some(*n) } else { None });
        prop_assert!(small.is_sorted() && large.is_sorted());
        for (at, entry) in taken.iter().enumerate() {
            if let Entry::Last(number) = entry {
                let before = numbers(&|it| match it {
                    Entry::Small(n) | Entry::Large(n) | Entry::Last(n) => (n < number).then_some(*n),
                });
                let reached = taken[..at].iter().filter(|it| match it {
                    Entry::Small(n) | Entry::Large(n) | Entry::Last(n) => n < number,
                });
                prop_assert_eq!(reached.count(), before.len());
                prop_assert_eq!(before.len(), *number);
            }
        }
        prop_assert_eq!(taken.len(), entries.pushed);
    }
}
