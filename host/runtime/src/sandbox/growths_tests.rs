//! Attempts that wait for memory: who takes all, who ends, and when nobody does.

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::tenancy::Tenancy;

use super::*;

const MIB: u64 = 1 << 20;

/// Waits of attempts that began one second after the other, and have 10 MiB of 40.
fn waits(acted: &[bool]) -> State {
    let (mut state, begun) = (State::default(), Instant::now());
    for (number, has_acted) in (0..).zip(acted) {
        let since = begun + Duration::from_secs(number);
        let (has, missing, memory_bytes_max) = (10 * MIB, MIB, 40 * MIB - SANDBOX_BASE_BYTES);
        let (level, has_acted) = (Level::CLIENT, *has_acted);
        let growth = Growth { level, since, has, missing, memory_bytes_max, has_acted };
        state.waiting.insert(number, Waiting { growth, order: oneshot::channel().0 });
    }
    state
}

/// The attempt that gets an order, and the order. The one that takes all waits again.
fn next(state: &mut State, still: Duration) -> Option<(u64, Order)> {
    let before: Vec<_> = state.waiting.keys().copied().collect();
    let (mut waiting, order) = state.next_order(still)?;
    let number = before.into_iter().find(|number| !state.waiting.contains_key(number))?;
    if order == Order::TakeAll {
        waiting.growth.missing = waiting.growth.missing_max();
        state.waiting.insert(number, waiting);
    }
    Some((number, order))
}

#[test]
fn the_oldest_takes_all_and_the_youngest_end() {
    let mut state = waits(&[false; 3]);
    assert_eq!(next(&mut state, STALL / 2), None);
    let (end, take_all) = (|number| Some((number, Order::End)), Some((0, Order::TakeAll)));
    assert_eq!([(); 3].map(|()| next(&mut state, STALL)), [take_all, end(2), end(1)]);
    assert_eq!(next(&mut state, STALL / 2), None, "it waits for others that run");
    assert_eq!(next(&mut state, STALL), end(0), "alone, the oldest ends too");
    // While others wait since then, the next one takes all at once.
    state.waiting.extend(waits(&[false; 2]).waiting);
    assert_eq!([(); 2].map(|()| next(&mut state, LOOK)), [take_all, None]);
}

#[test]
fn attempts_that_have_acted_end_later_and_after_the_others() {
    let mut state = waits(&[true, false, true, false]);
    let orders = [(); 4].map(|()| next(&mut state, STALL).map(|(number, _)| number));
    assert_eq!(orders, [Some(0), Some(3), Some(1), None]);
    assert_eq!(next(&mut state, STALL_OF_ACTORS), Some((2, Order::End)));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_ended_while_others_get_memory() {
    let permits = Permits::new(9, 100, Tenancy::default());
    let growths = Growths::new(permits.clone(), || {});
    let share = permits.owner_share(&OwnerId::operator());
    let other = permits.owner_share(&OwnerId::new("other").unwrap());
    let mut held = share.try_take(100, Level::CLIENT).unwrap();
    let growth = |missing: u64| {
        let (level, since) = (Level::CLIENT, Instant::now());
        Growth { level, since, has: 0, missing, memory_bytes_max: 90, has_acted: false }
    };
    let small = async {
        for left in (80..100).rev() {
            tokio::time::sleep(STALL / 2).await;
            held.shrink_to(left);
            drop(growths.wait(&other, growth(1)).await);
        }
    };
    let mut wait = Box::pin(growths.wait(&share, growth(30)));
    tokio::select! {
        ended = wait.as_mut() => panic!("{ended:?}"),
        () = small => {}
    }
    assert_eq!(wait.await.unwrap_err(), NoMemory, "20 of 30 are free, and no more come");
    assert!(growths.0.state.lock().waiting.is_empty());
}
