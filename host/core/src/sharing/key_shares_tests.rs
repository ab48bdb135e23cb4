//! Parts of one, two and many keys in a cap, and a property for any behaviour of the keys.

use proptest::prelude::*;

use super::*;

fn key(number: usize) -> KeyId {
    KeyId::new(&format!("k{number}")).unwrap()
}

/// A call of the key, which is admitted if `cap` allows it.
fn take_permit(shares: &mut KeyShares, number: usize, now_ms: u64, cap: u32) -> bool {
    let me = shares.find(&key(number), Duration::from_millis(now_ms));
    let used: u32 = shares.keys.iter().map(|k| k.permits.load(Ordering::Relaxed)).sum();
    let has_permit = used + shares.permits_of_others(me, cap) < cap;
    if has_permit {
        shares.permits(me).unwrap().fetch_add(1, Ordering::Relaxed);
    } else {
        shares.permit_refused(me);
    }
    has_permit
}

fn return_permit(shares: &mut KeyShares, number: usize) {
    let sharer = shares.keys.iter().find(|sharer| sharer.key == Some(key(number)));
    sharer.unwrap().permits.fetch_sub(1, Ordering::Relaxed);
}

fn held(shares: &KeyShares, number: usize) -> u32 {
    let sharer = shares.keys.iter().find(|sharer| sharer.key == Some(key(number)));
    sharer.map_or(0, |sharer| sharer.permits.load(Ordering::Relaxed))
}

#[test]
fn a_single_key_may_use_the_whole_limit() {
    let mut shares = KeyShares::default();
    let taken = (0..500).filter(|_| take_permit(&mut shares, 0, 0, 400)).count();
    assert_eq!(taken, 400);
    let me = shares.find(&key(0), Duration::ZERO);
    assert_eq!(shares.calls_of_others(me, 1_000), 0);
}

#[test]
fn a_second_key_gets_its_half_as_permits_are_returned() {
    let mut shares = KeyShares::default();
    while take_permit(&mut shares, 0, 0, 400) {}
    for _ in 0..400 {
        // Both keys continue to call; the first one calls first.
        return_permit(&mut shares, 0);
        for number in [0, 1] {
            while take_permit(&mut shares, number, 0, 400) {}
        }
    }
    assert_eq!((held(&shares, 0), held(&shares, 1)), (200, 200));
}

#[test]
fn other_keys_may_use_what_a_modest_key_does_not_request() {
    let mut shares = KeyShares::default();
    assert!(take_permit(&mut shares, 1, 0, 400));
    return_permit(&mut shares, 1);
    let taken = (0..500).filter(|_| take_permit(&mut shares, 0, 0, 400)).count();
    assert_eq!(taken, 399, "one is kept for the key that took one before");
    assert!(take_permit(&mut shares, 1, 0, 400));
    return_permit(&mut shares, 1);
    // Two periods later nothing is reserved for it any more.
    assert!(take_permit(&mut shares, 0, 20_000, 400));
}

#[test]
fn calls_are_reserved_for_a_key_up_to_its_requests() {
    let mut shares = KeyShares::default();
    let admit = |shares: &mut KeyShares, number, calls, now_ms| {
        let me = shares.find(&key(number), Duration::from_millis(now_ms));
        (0..calls).for_each(|_| shares.admitted(me));
        me
    };
    for _ in 0..30 {
        shares.find(&key(1), Duration::ZERO);
    }
    let me = admit(&mut shares, 0, 499, 0);
    assert_eq!(shares.calls_of_others(me, 1_000), 0, "it has not had its own half yet");
    let me = admit(&mut shares, 0, 1, 0);
    assert_eq!(shares.calls_of_others(me, 1_000), 30);
    assert_eq!(shares.calls_of_others(me, 40), 20, "a half at most");
    admit(&mut shares, 1, 10, 0);
    let me = shares.find(&key(0), Duration::from_millis(9_999));
    assert_eq!(shares.calls_of_others(me, 1_000), 21);
    // The next period knows the requests of the last one.
    let me = admit(&mut shares, 0, 500, 10_000);
    assert_eq!(shares.calls_of_others(me, 1_000), 31);
    let me = admit(&mut shares, 0, 500, 20_000);
    assert_eq!(shares.calls_of_others(me, 1_000), 0);
}

#[test]
fn keys_beyond_the_bound_count_as_one() {
    let mut shares = KeyShares::default();
    for number in 0..10_000 {
        shares.find(&key(number), Duration::ZERO);
    }
    assert_eq!(shares.keys.len(), KEYS_MAX + 1);
}

proptest! {
    /// For any behaviour of the keys: there are never more concurrent calls than the cap, and a
    /// key without any gets the next free one before a key that has its part.
    #[test]
    fn the_cap_holds_and_every_key_is_served(
        events in prop::collection::vec((0_usize..4, any::<bool>(), 0_u64..3_000), 1..400),
        cap in 1_u32..30,
    ) {
        let mut shares = KeyShares::default();
        let mut now = 0;
        for (number, takes, gap) in events {
            now += gap;
            if takes {
                take_permit(&mut shares, number, now, cap);
            } else if held(&shares, number) > 0 {
                return_permit(&mut shares, number);
            }
            let used: u32 = (0..4).map(|number| held(&shares, number)).sum();
            prop_assert!(used <= cap);
        }
        if cap < 5 {
            return Ok(());
        }
        // A key without any calls twice, while another one ends a call and begins another at
        // once.
        while take_permit(&mut shares, 0, now, cap) {}
        let is_left_out = held(&shares, 4) == 0 && !take_permit(&mut shares, 4, now, cap);
        let used: u32 = (0..5).map(|number| held(&shares, number)).sum();
        let part = cap / u32::try_from(shares.keys.len()).unwrap();
        if is_left_out && used == cap && held(&shares, 0) > part {
            return_permit(&mut shares, 0);
            prop_assert!(!take_permit(&mut shares, 0, now, cap));
            prop_assert!(take_permit(&mut shares, 4, now, cap));
        }
    }
}
