//! Bodies in memory: the share of a key, the order of waiting bodies, and slow bodies.

use futures::FutureExt as _;
use futures::future::join_all;
use tokio::time::sleep;

use super::*;

const MIB: usize = 1 << 20;

fn key(name: &str) -> KeyId {
    KeyId::new(name).unwrap()
}

fn used(pool: &InFlight) -> usize {
    usize::try_from(pool.0.lock().held.all()).unwrap()
}

/// A body that brings all of its `bytes` at once.
async fn whole(pool: &InFlight, name: &str, bytes: usize) -> Result<Share, ApiError> {
    let mut share = pool.share(&key(name), bytes, SMALL_BODY_BYTES);
    share.cover(bytes).await.map(|_| share)
}

#[tokio::test(start_paused = true)]
async fn an_announced_body_holds_nothing_before_its_bytes_arrive() {
    let pool = InFlight::of_bodies();
    let mut silent: Vec<_> =
        (0..1_000).map(|_| pool.share(&key("a"), 20 * MIB, SMALL_BODY_BYTES)).collect();
    for share in &mut silent {
        share.cover(SMALL_BODY_BYTES).await.unwrap();
    }
    assert_eq!(used(&pool), 0);
    let other = whole(&pool, "a", 20 * MIB).await.unwrap();
    assert_eq!(used(&pool), 20 * MIB);
    drop(other);
    assert_eq!(used(&pool), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_holds_only_the_bytes_that_it_has_sent() {
    let pool = InFlight::of_bodies();
    let mut share = pool.share(&key("a"), 20 * MIB, SMALL_BODY_BYTES);
    share.cover(100 << 10).await.unwrap();
    assert_eq!(used(&pool), 20 * MIB, "the rest of a quick body is set aside");
    share.meanwhile(100 << 10, sleep(Duration::from_millis(900))).await;
    assert_eq!(used(&pool), 20 * MIB);
    share.meanwhile(100 << 10, sleep(Duration::from_millis(200))).await;
    assert_eq!(used(&pool), 128 << 10, "the bytes that were sent, in steps of 64 KiB");
    // Many small parts are slow as well, however short the pauses are.
    share.cover(3 * MIB).await.unwrap();
    assert_eq!(used(&pool), 3 * MIB);
    let mut dripping = pool.share(&key("a"), 20 * MIB, SMALL_BODY_BYTES);
    for second in 1..=10_usize {
        for tenth in 0..10 {
            let bytes = SMALL_BODY_BYTES + second * 10_000 + tenth * 1_000;
            dripping.cover(bytes).await.unwrap();
            dripping.meanwhile(bytes, sleep(Duration::from_millis(100))).await;
        }
    }
    assert!(used(&pool) <= 3 * MIB + (256 << 10), "{}", used(&pool));
    dripping.ended(100 << 10);
    share.ended(2 * MIB);
    assert_eq!(used(&pool), 2 * MIB + (100 << 10));
}

#[tokio::test(start_paused = true)]
async fn a_quick_body_keeps_the_memory_for_its_rest() {
    let pool = InFlight::of_bodies();
    let mut share = pool.share(&key("a"), 20 * MIB, SMALL_BODY_BYTES);
    for mib in 1..=20 {
        share.cover(mib * MIB).await.unwrap();
        assert_eq!(used(&pool), 20 * MIB);
        share.meanwhile(mib * MIB, sleep(Duration::from_millis(500))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_leaves_memory_for_every_further_key() {
    let pool = InFlight::of_bodies();
    let mut held = vec![];
    for name in ["a", "b", "c", "d"] {
        let before = held.len();
        while let Some(Ok(share)) = whole(&pool, name, MIB).now_or_never() {
            held.push(share);
        }
        let mib = held.len() - before;
        let expected = match name {
            "a" => 192,
            "b" => 48,
            "c" => 12,
            _ => 3,
        };
        assert_eq!(mib, expected, "of key {name}, behind keys that took all they could");
    }
    assert!(used(&pool) < BODIES_IN_FLIGHT_BYTES_MAX);
    assert!(whole(&pool, "e", MIB).now_or_never().is_none(), "nothing would be left");
    assert!(whole(&pool, "e", SMALL_BODY_BYTES).now_or_never().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_key_that_holds_the_least_is_served_first_and_small_bodies_pass_large_ones() {
    let pool = InFlight::of_bodies();
    let mut greedy = vec![];
    for name in ["a", "b", "c"] {
        while let Some(Ok(share)) = whole(&pool, name, 8 * MIB).now_or_never() {
            greedy.push((name, share));
        }
    }
    // A large body of a fourth key does not fit, and waits; so do more bodies of the greedy keys.
    let mut large = Box::pin(whole(&pool, "d", 20 * MIB));
    let mut more: Vec<_> = (0..50).map(|_| Box::pin(whole(&pool, "a", 8 * MIB))).collect();
    for waiting in &mut more {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    assert!(large.as_mut().now_or_never().is_none());
    // Neither another key nor a small body of the same key waits behind them.
    for name in ["d", "e"] {
        assert!(whole(&pool, name, 100 << 10).now_or_never().unwrap().is_ok(), "{name}");
    }
    // Released memory is for the fourth key first.
    while large.as_mut().now_or_never().is_none() {
        let next = greedy.iter().position(|(name, _)| *name == "a").unwrap();
        greedy.remove(next);
    }
    let passed = more.iter_mut().filter_map(|waiting| waiting.as_mut().now_or_never()).count();
    assert_eq!(passed, 0, "a key that holds more does not pass a body that waits");
}

#[tokio::test(start_paused = true)]
async fn a_body_without_memory_is_refused_after_ten_seconds_and_leaves_nothing() {
    let pool = InFlight::of_bodies();
    let held: Vec<_> = join_all((0..9).map(|_| whole(&pool, "a", 20 * MIB))).await;
    let started = Instant::now();
    let refused = whole(&pool, "a", 20 * MIB).await.unwrap_err();
    assert_eq!((started.elapsed(), refused.code()), (TURN_WAIT, ErrorCode::Unavailable));
    // A call that is dropped while it waits leaves nothing behind.
    assert!(whole(&pool, "a", 20 * MIB).now_or_never().is_none());
    assert_eq!((used(&pool), pool.0.lock().waiting), (180 * MIB, 0));
    drop(held);
    let pool = pool.0.lock();
    assert_eq!((pool.held.all(), pool.bodies.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn when_slow_bodies_wait_for_each_other_one_is_refused_and_the_others_end() {
    let pool = InFlight::of_bodies();
    // Ten slow bodies have sent 19 of their 20 MiB. All of them have room for 2 MiB more.
    let mut bodies = vec![];
    for _ in 0..10 {
        let mut share = pool.share(&key("a"), 20 * MIB, SMALL_BODY_BYTES);
        share.cover(19 * MIB).await.unwrap();
        share.meanwhile(19 * MIB, sleep(SECOND * 2)).await;
        bodies.push(share);
    }
    assert_eq!(used(&pool), 190 * MIB);
    let ends = bodies.into_iter().map(async |mut share| {
        for step in 1..=16 {
            share.cover(19 * MIB + step * STEP_BYTES).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, ApiError>(())
    });
    let ended = join_all(ends).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(ended, 9);
    assert_eq!(used(&pool), 0);
}

/// Bodies of four keys begin, grow, pause and end in any order: the bounds hold at each step, and
/// no memory is left in use at the end.
#[tokio::test(start_paused = true)]
async fn the_bounds_hold_in_any_order_of_events() {
    use rand::{RngExt as _, SeedableRng as _};

    for seed in 0..20 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let pool = InFlight::of_bodies();
        let names = ["a", "b", "c", "d"];
        let mut shares: Vec<(Share, usize)> = vec![];
        for _ in 0..2_000 {
            match random.random_range(0..4) {
                0 => {
                    let name = names[random.random_range(0..4_usize)];
                    let bytes = random.random_range(1..=20 * MIB);
                    shares.push((pool.share(&key(name), bytes, SMALL_BODY_BYTES), 0));
                }
                1 if !shares.is_empty() => {
                    let at = random.random_range(0..shares.len());
                    shares.swap_remove(at);
                }
                2 if !shares.is_empty() => {
                    let at = random.random_range(0..shares.len());
                    let (share, bytes) = &mut shares[at];
                    let more = (*bytes + random.random_range(0..4 * MIB)).min(share.wanted);
                    match share.cover(more).now_or_never() {
                        Some(Ok(_)) => *bytes = more,
                        // A call whose body has to wait is dropped.
                        Some(Err(_)) | None => drop(shares.swap_remove(at)),
                    }
                }
                _ => tokio::time::advance(Duration::from_millis(300)).await,
            }
            for (share, bytes) in &mut shares {
                share.look(*bytes);
            }
            let now = pool.0.lock();
            assert!(now.held.all() <= BODIES_IN_FLIGHT_BYTES_MAX as u64);
            let of_bodies: usize = now.bodies.values().map(|body| body.bytes).sum();
            assert_eq!(now.held.all(), of_bodies as u64);
            assert_eq!(now.waiting, 0);
        }
        shares.clear();
        assert_eq!(used(&pool), 0, "seed {seed}");
    }
}

/// Eight large results of one key are requested at one time: three are assembled, the others wait.
/// Another key does not wait for them, and small results need no memory.
#[tokio::test(start_paused = true)]
async fn large_results_are_joined_a_few_at_a_time_and_every_key_gets_a_turn() {
    let pool = InFlight::of_results();
    let of = |name: &str, bytes| {
        let (pool, key) = (pool.clone(), key(name));
        Box::pin(async move { pool.result(&key, bytes).await.unwrap() })
    };
    let mut asked: Vec<_> = (0..8).map(|_| of("a", 28 * MIB)).collect();
    let mut begun = vec![];
    asked.retain_mut(|result| match result.as_mut().now_or_never() {
        Some(share) => {
            begun.push(share.unwrap());
            false
        }
        None => true,
    });
    assert_eq!((begun.len(), asked.len()), (3, 5));
    let other = of("b", 28 * MIB).now_or_never();
    assert!(other.is_some_and(|share| share.is_some()), "another key has room at once");
    let small = of("a", SMALL_BODY_BYTES).now_or_never();
    assert!(small.is_some_and(|share| share.is_none()), "a small result needs no room");
    // Each complete result lets the next one begin, until all have been assembled.
    while let Some(done) = begun.pop() {
        drop(done);
        let next = asked.iter_mut().position(|result| {
            result.as_mut().now_or_never().is_some_and(|share| {
                begun.push(share.unwrap());
                true
            })
        });
        assert_eq!(next.is_some(), !asked.is_empty());
        next.map(|next| asked.remove(next));
    }
    assert_eq!(used(&pool), 0);
}

#[tokio::test]
async fn small_bodies_of_a_connection_that_carries_many_are_counted() {
    let pool = InFlight::new(8 * SMALL_BODY_BYTES, "too many");
    let mut held = vec![];
    for _ in 0..100 {
        let mut share = pool.share(&key("a"), SMALL_BODY_BYTES, 0);
        if share.cover(60_000).now_or_never().is_some() {
            held.push(share);
        }
    }
    assert_eq!(held.len(), 6, "three quarters of the memory");
    let mut other = pool.share(&key("b"), SMALL_BODY_BYTES, 0);
    assert!(other.cover(60_000).now_or_never().is_some(), "the next key has its share");
}
