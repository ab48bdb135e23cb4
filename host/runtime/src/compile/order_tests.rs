//! The line of compiles: owners, jobs before uploads, bounds, and waiters that leave.

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::*;

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

/// The waiters, by name.
#[derive(Default)]
struct Waits {
    turns: CompileTurns,
    waiting: Vec<(&'static str, BoxFuture<'static, CompileTurn>)>,
}

impl Waits {
    fn join(
        &mut self,
        name: &'static str,
        who: &str,
        purpose: Purpose,
    ) -> Result<(), TooManyUploads> {
        self.waiting.push((name, self.turns.join(&owner(who), purpose)?.boxed()));
        Ok(())
    }

    /// Each compiles as soon as it has its turn.
    fn order(&mut self) -> Vec<&'static str> {
        let mut order = vec![];
        loop {
            let ready = self
                .waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (_, wait))| wait.now_or_never().map(|turn| (at, turn)));
            let Some((at, turn)) = ready else { return order };
            order.push(self.waiting.remove(at).0);
            let others = self.waiting.iter_mut().filter_map(|(_, wait)| wait.now_or_never());
            assert_eq!(others.count(), 0, "one at a time");
            drop(turn);
        }
    }
}

#[test]
fn owners_take_turns_and_jobs_come_first() {
    let mut waits = Waits::default();
    let first = waits.turns.join(&owner("evil"), Purpose::Upload).unwrap().now_or_never();
    for name in ["evil 1", "evil 2", "evil 3", "evil 4"] {
        waits.join(name, "evil", Purpose::Upload).unwrap();
    }
    waits.join("good 1", "good", Purpose::Upload).unwrap();
    waits.join("good 2", "good", Purpose::Upload).unwrap();
    waits.join("evil job", "evil", Purpose::Job).unwrap();
    waits.join("good job", "good", Purpose::Job).unwrap();
    assert!(waits.order().is_empty(), "the first one compiles");
    drop(first);
    let order =
        ["evil job", "good job", "evil 1", "good 1", "evil 2", "good 2", "evil 3", "evil 4"];
    assert_eq!(waits.order(), order);
}

#[test]
fn an_upload_does_not_wait_for_jobs_without_end() {
    let mut waits = Waits::default();
    let first = waits.turns.join(&owner("o"), Purpose::Upload).unwrap().now_or_never();
    waits.join("upload", "o", Purpose::Upload).unwrap();
    for name in ["1", "2", "3", "4", "5", "6"] {
        waits.join(name, "o", Purpose::Job).unwrap();
    }
    drop(first);
    assert_eq!(waits.order(), ["1", "2", "3", "4", "upload", "5", "6"]);
}

#[test]
fn a_bounded_number_of_an_owners_uploads_wait() {
    let mut waits = Waits::default();
    let compiling = waits.turns.join(&owner("o"), Purpose::Upload).unwrap().now_or_never();
    for _ in 0..UPLOADS_WAITING_MAX {
        waits.join("upload", "o", Purpose::Upload).unwrap();
    }
    assert_eq!(waits.join("one more", "o", Purpose::Upload), Err(TooManyUploads));
    waits.join("upload", "other", Purpose::Upload).unwrap();
    waits.join("job", "o", Purpose::Job).unwrap();
    drop(waits.waiting.remove(0));
    waits.join("upload", "o", Purpose::Upload).unwrap();
    drop(compiling);
}

#[test]
fn a_waiter_that_leaves_the_line_makes_room_and_loses_no_turn() {
    let mut waits = Waits::default();
    let first = waits.turns.join(&owner("o"), Purpose::Upload).unwrap().now_or_never();
    for name in ["1", "2", "3", "4"] {
        waits.join(name, "o", Purpose::Upload).unwrap();
    }
    drop(waits.waiting.remove(0));
    waits.join("5", "o", Purpose::Upload).unwrap();
    drop(first);
    // The turn was granted to the second one, which leaves before it looks.
    drop(waits.waiting.remove(0));
    assert_eq!(waits.order(), ["3", "4", "5"]);
    assert!(waits.turns.join(&owner("o"), Purpose::Upload).unwrap().now_or_never().is_some());
}
