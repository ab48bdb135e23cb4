//! Turns of handshakes: addresses, bounds, and polls that wait.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

fn turns(at_one_time: usize) -> Arc<HandshakeTurns> {
    Arc::new(HandshakeTurns(Permits::for_work(at_one_time)))
}

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

#[tokio::test]
async fn a_client_that_sends_nothing_more_holds_no_turn() {
    for at_one_time in [1, 4] {
        let turns = turns(at_one_time);
        let mut all = JoinSet::new();
        for _ in 0..100 {
            let turns = turns.clone();
            all.spawn(async move { turns.run(address(1), pending::<()>()).await });
        }
        let ended = timeout(Duration::from_secs(60), async {
            while turns.0.taken() + turns.0.waiting() > 0 {
                yield_now().await;
            }
            turns.run(address(1), async { 7 }).await
        });
        assert_eq!(ended.await, Ok(7), "{at_one_time}");
    }
}

#[tokio::test]
async fn a_newcomer_waits_for_one_step_of_each_address_and_not_for_all_handshakes() {
    for at_one_time in [1, 4] {
        let turns = turns(at_one_time);
        let steps = Arc::new(Mutex::new(vec![]));
        let mut all = JoinSet::new();
        let flood = (0..500).flat_map(|_| [1, 2]);
        for from in flood.chain([9]) {
            let (turns, steps) = (turns.clone(), steps.clone());
            let step = async move { steps.lock().push(from) };
            all.spawn(async move { turns.run(address(from), step).await });
        }
        all.join_all().await;
        let at = steps.lock().iter().position(|from| *from == 9).unwrap();
        assert!(at <= 2 + at_one_time, "{at} steps of two addresses came first");
    }
}

/// Wake-ups come from other threads, while the task moves between those of the runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn few_steps_are_computed_at_one_time_and_no_message_is_lost() {
    const AT_ONE_TIME: usize = 2;
    static COMPUTING: AtomicUsize = AtomicUsize::new(0);
    let turns = turns(AT_ONE_TIME);
    let mut all = JoinSet::new();
    for number in 0..200 {
        let turns = turns.clone();
        let mut steps = 0;
        let handshake = poll_fn(move |context| {
            assert!(COMPUTING.fetch_add(1, Ordering::SeqCst) < AT_ONE_TIME);
            steps += 1;
            let client = context.waker().clone();
            let step = match steps {
                1 | 3 => {
                    client.wake();
                    Poll::Pending
                }
                2 => {
                    thread::spawn(move || client.wake());
                    Poll::Pending
                }
                _ => Poll::Ready(steps),
            };
            COMPUTING.fetch_sub(1, Ordering::SeqCst);
            step
        });
        all.spawn(async move { turns.run(address(number % 7), handshake).await });
    }
    let ended = timeout(Duration::from_secs(60), all.join_all()).await.unwrap();
    assert!(ended.iter().all(|steps| *steps == 4));
    assert_eq!(turns.0.taken(), 0);
}
