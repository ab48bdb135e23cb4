//! Attempts that wait for memory: which takes all, which ends, and when none does.

use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::sharing::tenancy::Tenancy;

use super::*;

const MIB: u64 = 1 << 20;

/// Waits of attempts of these endpoints that began one second after the other, and have 10 MiB of
/// 40.
fn waits(attempts: &[(&str, bool)]) -> State {
    let permits = Permits::new(9, 100, Tenancy::default());
    let (mut state, begun) = (State::default(), Instant::now());
    for (number, &(endpoint, has_acted)) in (0..).zip(attempts) {
        let share = permits.share(&OwnerId::operator(), &EndpointId::new(endpoint).unwrap());
        let since = begun + Duration::from_secs(number);
        let (has, missing, memory_bytes_max) = (10 * MIB, MIB, 40 * MIB - SANDBOX_BASE_BYTES);
        let level = Level::CLIENT;
        let growth = Growth { level, since, has, missing, memory_bytes_max, has_acted };
        state.waiting.insert(number, Waiting { share, growth, order: oneshot::channel().0 });
    }
    state
}

/// The attempts that get an order, and the order. Those that take all wait again.
fn next(state: &mut State, still: Duration) -> Option<(Vec<u64>, Order)> {
    let before: Vec<_> = state.waiting.keys().copied().collect();
    let orders = state.orders(still);
    let left: Vec<_> = before.into_iter().filter(|n| !state.waiting.contains_key(n)).collect();
    let order = orders.first()?.1;
    if order == Order::TakeAll {
        // In the order in which they were taken.
        let since = |waiting: &Waiting| waiting.growth.since;
        let mut taken: Vec<_> = orders.into_iter().map(|(waiting, _)| waiting).collect();
        taken.sort_by_key(since);
        for (number, mut waiting) in left.iter().zip(taken) {
            waiting.growth.missing = waiting.growth.missing_max();
            state.waiting.insert(*number, waiting);
        }
    }
    Some((left, order))
}

fn end(numbers: &[u64]) -> Option<(Vec<u64>, Order)> {
    Some((numbers.to_vec(), Order::End))
}

fn take_all(numbers: &[u64]) -> Option<(Vec<u64>, Order)> {
    Some((numbers.to_vec(), Order::TakeAll))
}

#[test]
fn the_oldest_takes_all_and_the_youngest_end() {
    let mut state = waits(&[("e", false); 6]);
    assert_eq!(next(&mut state, STALL / 2), None);
    assert_eq!(next(&mut state, STALL), take_all(&[0, 1, 2, 3, 4, 5]));
    assert_eq!(next(&mut state, STALL), end(&[3, 4, 5]), "as many as the oldest needs");
    assert_eq!(next(&mut state, STALL), end(&[1, 2]));
    assert_eq!(next(&mut state, STALL / 2), None, "it waits for others that run");
    assert_eq!(next(&mut state, STALL), end(&[0]), "alone, the oldest ends too");
    // While others wait since then, the next one takes all at once.
    state.waiting.extend(waits(&[("e", false); 2]).waiting);
    assert_eq!([(); 2].map(|()| next(&mut state, LOOK)), [take_all(&[0, 1]), None]);
}

#[test]
fn the_attempts_of_an_endpoint_with_several_take_all() {
    let mut state = waits(&[("a", false), ("b", false), ("b", false), ("c", false)]);
    let [of_a, of_b] = [0, 1].map(|number| state.waiting[&number].share.clone());
    assert!(!state.is_tight_for(&of_b));
    assert_eq!(next(&mut state, STALL), take_all(&[0, 1, 2]));
    assert!(state.is_tight_for(&of_b));
    state.waiting.remove(&0);
    assert!(!state.is_tight_for(&of_a), "no other one of the endpoint waits");
}

#[test]
fn attempts_that_have_acted_end_later_and_after_the_others() {
    let mut state = waits(&[("e", true), ("e", false), ("e", true), ("e", false)]);
    let orders = [(); 3].map(|()| next(&mut state, STALL));
    assert_eq!(orders, [take_all(&[0, 1, 2, 3]), end(&[1, 3]), None]);
    assert_eq!(next(&mut state, STALL_OF_ACTORS), end(&[2]));
}

/// 20 attempts have 5 of 100 MiB each, and need 40 in steps of one. They end one after the other
/// instead of sharing what each of them frees.
#[tokio::test(start_paused = true)]
async fn attempts_that_all_wait_end_soon() {
    let permits = Permits::new(20, 100 * MIB, Tenancy::default());
    let growths = Growths::new(permits.clone(), || {});
    let share = permits.owner_share(&OwnerId::operator());
    let (begun, start) = (Clock::now(), Instant::now());
    let attempts = (0..20).map(|number| {
        let mut held = share.try_take(5 * MIB, Level::CLIENT).unwrap();
        let (growths, since) = (&growths, start + Duration::from_millis(number));
        async move {
            while held.amount().bytes < 40 * MIB {
                let has = held.amount().bytes;
                let memory_bytes_max = 50 * MIB - SANDBOX_BASE_BYTES;
                let (level, missing, has_acted) = (Level::CLIENT, MIB, false);
                let growth = Growth { level, since, has, missing, memory_bytes_max, has_acted };
                let Ok(more) = growths.wait(held.share(), growth).await else { return false };
                held.absorb(more);
                tokio::task::yield_now().await;
            }
            true
        }
    });
    let ended = futures::future::join_all(attempts).await;
    let completed = ended.iter().filter(|is_complete| **is_complete).count();
    assert!(completed >= 10, "{completed} of 20");
    assert!(begun.elapsed() < 3 * STALL, "{:?}", begun.elapsed());
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
