//! Lives of issued secrets, which a use prolongs and a look does not, and those lost at a bound.

use gristmill_core::access::key::{NewKey, Scope};
use gristmill_core::id::OwnerId;
use gristmill_core::time::Timestamp;

use super::*;

const BOUNDS: Bounds = Bounds {
    idle: Duration::from_secs(10),
    life: Duration::from_secs(25),
    of_key_max: 3,
    all_max: 5,
};

fn key(owner: &str) -> Arc<ApiKey> {
    let new = NewKey {
        name: String::new(),
        owner: OwnerId::new(owner).unwrap(),
        scopes: vec![Scope::Read],
        endpoints: None,
        expires_at: None,
    };
    Arc::new(ApiKey::generate(new, Timestamp::from_millis(0)).0)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_secret_ends_when_it_is_not_used_and_at_the_end_of_its_life() {
    // (the times of uses, whether it is found)
    let cases: [&[(u64, bool)]; 5] = [
        &[(0, true), (9, true), (18, true), (24, true), (25, false)],
        &[(9, true), (19, false), (19, false)],
        &[(10, false), (1, false)],
        // A use at a time before the last one changes nothing for the worse.
        &[(9, true), (3, true), (12, true)],
        &[(u64::MAX, false)],
    ];
    for uses in cases {
        let mut issued = Issued::new(BOUNDS);
        let text = issued.issue(key("a"), at(0));
        for (now, expected) in uses {
            assert_eq!(issued.find(&text, at(*now)).is_some(), *expected, "{uses:?} at {now}");
        }
    }
}

#[test]
fn a_look_at_a_secret_is_no_use_of_it() {
    let mut issued = Issued::new(BOUNDS);
    let text = issued.issue(key("a"), at(0));
    let looks = [1, 9, 10].map(|now| issued.has(&hash(&text), at(now)));
    assert_eq!(looks, [true, true, false], "it ends ten seconds after it was issued");
    assert!(!issued.has(&hash("x"), at(1)));
    issued.take(&text, at(1)).unwrap();
    assert!(!issued.has(&hash(&text), at(1)));
}

#[test]
fn a_secret_is_taken_once_and_no_other_text_is_one() {
    let mut issued = Issued::new(BOUNDS);
    let text = issued.issue(key("a"), at(0));
    assert_eq!(text.len(), 43);
    for other in ["", "x", &text[1..], &text.to_lowercase(), &format!("{text}=")] {
        assert!(issued.take(other, at(1)).is_none(), "{other}");
    }
    assert!(issued.take(&text, at(1)).is_some());
    assert!(issued.take(&text, at(1)).is_none());
    let late = issued.issue(key("a"), at(0));
    assert!(issued.take(&late, at(10)).is_none());
}

#[test]
fn a_key_at_its_bound_loses_its_oldest_secret() {
    let (mut issued, a) = (Issued::new(BOUNDS), key("a"));
    let texts: Vec<_> = (0..4).map(|_| issued.issue(a.clone(), at(0))).collect();
    let found: Vec<_> = texts.iter().map(|text| issued.find(text, at(1)).is_some()).collect();
    assert_eq!(found, [false, true, true, true]);
}

#[test]
fn a_full_set_loses_the_secret_that_was_unused_for_longest() {
    let mut issued = Issued::new(BOUNDS);
    let texts: Vec<_> = (0..5).map(|_| issued.issue(key("a"), at(0))).collect();
    for text in texts.iter().take(4) {
        issued.find(text, at(2)).unwrap();
    }
    let next = issued.issue(key("b"), at(3));
    assert!(issued.find(&texts[4], at(3)).is_none());
    assert!(texts[..4].iter().chain([&next]).all(|text| issued.find(text, at(3)).is_some()));
    assert_eq!(issued.entries.len(), 5);
}

#[test]
fn ended_secrets_leave_no_memory() {
    let mut issued = Issued::new(BOUNDS);
    for minute in 0..10_000 {
        issued.issue(key("a"), at(60 * minute));
    }
    assert_eq!(issued.entries.len(), 1);
}
