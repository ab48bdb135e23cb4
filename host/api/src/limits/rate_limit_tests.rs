//! Limits of keys, endpoints and owners: concurrent calls, inherited tables, and bounded entries.

use gristmill_core::access::key::NewKey;
use gristmill_core::id::TemplateId;
use gristmill_core::time::{ManualClock, Timestamp};

use super::*;

/// The concurrent calls of all owners.
const CALLS_MAX: u64 = 80_000;

fn limiter(calls_per_10s: u32, concurrent: u32) -> RateLimiter {
    let run = RateLimit { calls_per_10s, concurrent: Some(concurrent), calls_per_worker: 5 };
    RateLimiter::new(
        RateLimits { run, ..RateLimits::default() },
        CALLS_MAX,
        Arc::new(ManualClock::new(Timestamp::from_millis(0))),
    )
}

fn key(owner: &str) -> ApiKey {
    let (name, owner) = (owner.to_owned(), OwnerId::new(owner).unwrap());
    let scopes = vec![Scope::Submit];
    let new = NewKey { name, owner, scopes, endpoints: None, expires_at: None };
    ApiKey::generate(new, Timestamp::from_millis(0)).0
}

fn call(
    limiter: &RateLimiter,
    key: &ApiKey,
    operation: Operation,
    workers: u64,
) -> Result<Option<ConcurrencyPermit>, ApiError> {
    let template = TemplateId::new("t").unwrap();
    let id = EndpointId::new("e").unwrap();
    let endpoint = Endpoint::new(id, key.owner.clone(), template, Timestamp::from_millis(0));
    limiter.admit(key, &endpoint, operation, || workers)
}

fn admit(
    limiter: &RateLimiter,
    owner: &str,
    workers: u64,
) -> Result<Option<ConcurrencyPermit>, ApiError> {
    call(limiter, &key(owner), Operation::Run, workers)
}

#[test]
fn a_key_that_holds_all_concurrent_calls_does_not_block_the_next_key() {
    let (limiter, [one, two]) = (limiter(10_000, 200), ["a", "a"].map(key));
    let admit = |key| call(&limiter, key, Operation::Run, 0);
    let held: Vec<_> = (0..300).map_while(|_| admit(&one).ok()).collect();
    assert_eq!(held.len(), 200, "one key alone has the whole limit, and no more");
    let first: Vec<_> = (0..300).map_while(|_| admit(&two).ok()).collect();
    assert_eq!(first.len(), 3, "a sixty-fourth of it");
    let more: Vec<_> =
        (0..40).map_while(|_| call(&limiter, &key("a"), Operation::Run, 0).ok()).collect();
    assert_eq!(held.len() + first.len() + more.len(), 225, "at most an eighth beyond it");
    drop(first);
    assert!(admit(&two).is_ok());
}

#[test]
fn a_limit_of_nothing_admits_nothing() {
    assert!(admit(&limiter(10, 0), "a", 0).is_err());
}

#[test]
fn waiting_calls_leave_a_quarter_of_the_permits_to_quick_reads() {
    let limiter = limiter(1_000, 20);
    let key = key("a");
    let admit = |operation| call(&limiter, &key, operation, 0);
    let waits: Vec<_> = (0..400).map_while(|_| admit(Operation::StatusSync).ok()).collect();
    assert_eq!(waits.len(), 300);
    let reads: Vec<_> = (0..400).map_while(|_| admit(Operation::Status).ok()).collect();
    assert_eq!(reads.len(), 100);
    drop(waits);
    let more: Vec<_> = (0..400).map_while(|_| admit(Operation::Status).ok()).collect();
    assert_eq!(more.len(), 300, "without waits, quick reads have all the permits");
    let limits = RateLimits::default();
    for (cap, waits_max) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (400, 300)] {
        let status = RateLimit { concurrent: Some(cap), ..limits.status };
        let limiter = RateLimiter::new(
            RateLimits { status, ..limits.clone() },
            CALLS_MAX,
            Arc::new(ManualClock::new(Timestamp::from_millis(0))),
        );
        let admit = |_| call(&limiter, &key, Operation::StatusSync, 0).ok();
        let waits: Vec<_> = (0..400).map_while(admit).collect();
        assert_eq!(waits.len(), waits_max, "of {cap}");
    }
}

#[test]
fn a_second_key_of_an_owner_gets_permits_and_calls_beside_a_greedy_one() {
    let limiter = limiter(100, 20);
    let (greedy, modest) = (key("a"), key("a"));
    let admit = |key| call(&limiter, key, Operation::Run, 0);
    let mut held: Vec<_> = (0..20).map(|_| admit(&greedy).unwrap()).collect();
    let first = admit(&modest).expect("the first call of a key is admitted");
    assert!(admit(&modest).is_err(), "the total is the owner's");
    // The greedy key calls again as soon as one of its calls has ended.
    held.truncate(18);
    assert!(admit(&greedy).is_err(), "the next permit is reserved for the other key");
    let permit = admit(&modest).unwrap();
    assert!(admit(&greedy).is_err());
    drop((first, permit, held));
    // The greedy key uses all remaining calls, except those that the other one has requested.
    for _ in 0..10 {
        assert!(admit(&modest).is_ok());
    }
    while admit(&greedy).is_ok() {}
    assert_eq!(admit(&greedy).unwrap_err().code(), ErrorCode::RateLimited);
    assert!(admit(&modest).is_ok(), "it asked for more calls than it was given");
}

/// An owner sets the limits of its endpoints, and may have 10,000 of them.
#[test]
fn the_calls_of_an_owner_are_bounded_whatever_its_limits_are() {
    let runsync = RateLimit { calls_per_10s: u32::MAX, concurrent: None, calls_per_worker: 0 };
    let limits = RateLimits { runsync, ..RateLimits::default() };
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    let limiter = RateLimiter::new(limits, 400, clock);
    let (one, other) = (key("a"), key("b"));
    let fill = |key| -> Vec<_> {
        let next = || call(&limiter, key, Operation::RunSync, 0).ok();
        std::iter::from_fn(next).collect()
    };
    let held = fill(&one);
    assert_eq!(held.len(), 300);
    let refused = call(&limiter, &one, Operation::Status, 0).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ConcurrencyLimited, "another operation");
    assert!(limiter.enter_stream(&one).is_err());
    assert!(limiter.enter_management(&one).is_ok(), "the endpoint can be deleted");
    assert!(fill(&other).len() > 70, "another owner has calls");
}

#[test]
fn the_greatest_limit_of_concurrent_calls_admits_calls() {
    let limiter = limiter(100, u32::MAX);
    let (one, other) = (key("a"), key("a"));
    let admit = |key| call(&limiter, key, Operation::Run, 0);
    let _held = (admit(&one).unwrap(), admit(&other).unwrap());
    assert!(admit(&one).is_ok());
}

#[test]
fn a_table_in_the_file_inherits_what_it_does_not_name() {
    let read = |text: &str| serde_json::from_str::<RateLimits>(text);
    let default = RateLimits::default();
    assert_eq!(read("{}").unwrap(), default);
    let file = r#"{"run":{"calls-per-10s":7},"retry":{"concurrent":"unlimited"}}"#;
    let limits = read(file).unwrap();
    assert_eq!(limits.run, RateLimit { calls_per_10s: 7, ..default.run });
    assert_eq!(limits.run.concurrent, Some(200));
    assert_eq!(limits.retry, RateLimit { concurrent: None, ..default.retry });
    assert_eq!(limits.status, default.status);
    for wrong in ["\"none\"", "-1", "4294967296", "1.5", "true"] {
        let file = format!("{{\"run\":{{\"concurrent\":{wrong}}}}}");
        let complaint = read(&file).unwrap_err();
        assert!(complaint.to_string().contains("\"unlimited\""), "{wrong}: {complaint}");
    }
    assert!(read(r#"{"run":{"calls":7}}"#).unwrap_err().to_string().contains("unknown field"));
}

#[test]
fn running_workers_raise_the_limit_at_once() {
    let limiter = limiter(2, 100);
    assert!(admit(&limiter, "a", 0).is_ok());
    assert!(admit(&limiter, "a", 0).is_ok());
    assert!(admit(&limiter, "a", 0).is_err());
    assert!(admit(&limiter, "a", 1).is_ok());
    assert!(admit(&limiter, "b", 0).is_ok(), "owners are counted apart");
}

#[test]
fn a_permit_is_returned_when_the_call_has_ended() {
    let limiter = limiter(100, 2);
    let key = key("a");
    let admit = || call(&limiter, &key, Operation::Run, 0);
    let permits = [admit().unwrap(), admit().unwrap()];
    assert!(admit().is_err());
    drop(permits);
    assert!(admit().is_ok());
}

#[test]
fn calls_of_the_management_api_count_for_their_owner() {
    let management = RateLimit { calls_per_10s: 3, concurrent: Some(2), calls_per_worker: 0 };
    let limiter = RateLimiter::new(
        RateLimits { management, ..RateLimits::default() },
        CALLS_MAX,
        Arc::new(ManualClock::new(Timestamp::from_millis(0))),
    );
    let (a, b) = (key("a"), key("b"));
    let held = [limiter.enter_management(&a).unwrap(), limiter.enter_management(&a).unwrap()];
    let refused = |key| limiter.enter_management(key).unwrap_err().code();
    assert_eq!(refused(&a), ErrorCode::ConcurrencyLimited);
    drop(held);
    assert!(limiter.enter_management(&a).is_ok());
    assert_eq!(refused(&a), ErrorCode::RateLimited);
    assert!(limiter.enter_management(&b).is_ok());
    assert!(call(&limiter, &a, Operation::Run, 0).is_ok(), "other calls count apart");
}

#[test]
fn entries_are_bounded_and_forgotten() {
    let (mut shard, calls) = (Shard::default(), CallShares::new(CALLS_MAX));
    let subject = |owner: usize| subject(&format!("o{owner}"), 0);
    for i in 0..SHARD_ENTRIES_MAX {
        shard.entry(subject(i), at(0), &calls).unwrap().rate.admit(at(0), 1, 0).unwrap();
    }
    assert!(shard.entry(subject(SHARD_ENTRIES_MAX), at(5_000), &calls).is_err());
    assert!(shard.entry(subject(0), at(5_000), &calls).is_ok(), "a known caller goes on");
    assert!(shard.entry(subject(SHARD_ENTRIES_MAX), at(20_000), &calls).is_ok());
    assert_eq!((shard.entries.len(), shard.held.all()), (1, 1));
}

#[test]
fn an_owner_leaves_entries_to_other_owners() {
    let (mut shard, calls) = (Shard::default(), CallShares::new(CALLS_MAX));
    let fill = |shard: &mut Shard, owner: &str| {
        let enters = |i: &usize| match shard.entry(subject(owner, *i), at(5_000), &calls) {
            Ok(entry) => entry.rate.admit(at(5_000), 1, 0).is_ok(),
            Err(refused) => {
                assert_eq!(refused.code(), ErrorCode::Unavailable);
                assert!(refused.sentence().contains("of this owner"), "{refused:?}");
                false
            }
        };
        (0..SHARD_ENTRIES_MAX).take_while(enters).count()
    };
    // Nine operations of 9,990 endpoints are 5,620 entries of each shard on average.
    assert_eq!(fill(&mut shard, "greedy"), 6_144);
    assert!(shard.entry(subject("greedy", 0), at(5_000), &calls).is_ok(), "its known calls go on");
    assert_eq!(fill(&mut shard, "other"), 1_536);
    assert_eq!(fill(&mut shard, "third"), 384);
    // Entries of calls that count no more are dropped when an owner needs them.
    assert!(shard.entry(subject("greedy", 7_000), at(14_999), &calls).is_err());
    assert!(shard.entry(subject("greedy", 7_000), at(15_500), &calls).is_ok());
    assert_eq!((shard.entries.len(), shard.held.all()), (1, 1));
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn subject(owner: &str, endpoint: usize) -> Subject {
    let endpoint = EndpointId::new(&format!("e{endpoint}")).unwrap();
    Subject { owner: OwnerId::new(owner).unwrap(), calls: Calls::Queue(endpoint, Operation::Run) }
}
