//! Lookups of names: which addresses may be used, and which callers a hanging lookup delays.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

const PUBLIC: &str = "1.1.1.1:0";
const PRIVATE: &str = "127.0.0.1:0";

async fn resolve(resolver: &Resolver) -> Result<Vec<SocketAddr>, String> {
    let found = resolver.resolve("rebound.example".parse().unwrap()).await;
    found.map(Iterator::collect).map_err(|error| error.to_string())
}

fn ids(owner: &str, endpoint: &str) -> (OwnerId, EndpointId) {
    (OwnerId::new(owner).unwrap(), EndpointId::new(endpoint).unwrap())
}

/// A request connects to the checked address, and the next request looks the name up and checks it
/// again: a name that resolves to the host's own network by then is refused.
#[tokio::test]
async fn a_name_that_is_bound_again_is_checked_again() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let lookups = Lookups::new(|_| {
        let answers = [PUBLIC, PRIVATE];
        let answer = answers[ASKED.fetch_add(1, Ordering::Relaxed)];
        Ok(vec![answer.parse().unwrap()])
    });
    let resolver = Resolver { addresses: Some(AddressPolicy::default()), lookups };
    assert_eq!(resolve(&resolver).await, Ok(vec![PUBLIC.parse().unwrap()]));
    let refused = "`rebound.example` has an address that is not public";
    assert_eq!(resolve(&resolver).await, Err(refused.to_owned()));
}

#[tokio::test]
async fn one_address_that_is_not_public_is_enough() {
    let lookups = Lookups::new(|_| Ok([PUBLIC, PRIVATE].map(|a| a.parse().unwrap()).into()));
    let resolver = Resolver { addresses: Some(AddressPolicy::default()), lookups: lookups.clone() };
    assert!(resolve(&resolver).await.is_err());
    let resolver = Resolver { addresses: None, lookups };
    assert_eq!(resolve(&resolver).await.unwrap().len(), 2);
}

#[tokio::test]
async fn addresses_that_were_found_before_are_used_once_and_checked() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let lookups = Lookups::new(|host| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        let answer = if host == "rebound.example" { PRIVATE } else { PUBLIC };
        Ok(vec![answer.parse().unwrap()])
    });
    let (owner, endpoint) = ids("o", "e");
    let found = lookups.look_up("rebound.example", &owner, &endpoint).await.unwrap();
    let addresses = found.permitted("rebound.example", None).unwrap();
    assert_eq!(*addresses, [PRIVATE.parse().unwrap()]);
    assert_eq!(ASKED.load(Ordering::Relaxed), 1, "not asked again");
    let refused = found.permitted("rebound.example", Some(&AddressPolicy::default()));
    assert!(matches!(refused, Err(SendError::Refused(_))), "checked nevertheless: {refused:?}");
    // The addresses of one name are never taken for those of another.
    let other = lookups.look_up("other.example", &owner, &endpoint).await.unwrap();
    for found in [other, Found::ADDRESS] {
        let refused = found.permitted("rebound.example", None);
        assert!(matches!(refused, Err(SendError::Invalid(_))), "{refused:?}");
    }
}

/// Hanging lookups use up the turns of their endpoints and their owners, and leave turns to a third
/// owner.
#[tokio::test]
async fn hanging_lookups_delay_no_other_names() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static HANGING: AtomicUsize = AtomicUsize::new(0);
    let lookups = Lookups::new(|host| {
        HANGING.fetch_add(usize::from(host == "hangs.example"), Ordering::Relaxed);
        while host == "hangs.example" && !IS_OVER.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(vec![PUBLIC.parse().unwrap()])
    });
    let mut hanging = Vec::new();
    for n in 0..400 {
        let lookups = lookups.clone();
        let (owner, endpoint) = ids(&format!("hostile{}", n % 2), &format!("e{}", n % 10));
        hanging.push(tokio::spawn(async move {
            lookups.look_up("hangs.example", &owner, &endpoint).await.map(drop)
        }));
    }
    // Each owner leaves a part free, so that some turns are left.
    let taken = async {
        while HANGING.load(Ordering::Relaxed) < LOOKUPS_MAX * 3 / 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken).await.unwrap();
    let others = async {
        for n in 0..40 {
            let (owner, endpoint) = ids("other", &format!("f{n}"));
            lookups.look_up("ok.example", &owner, &endpoint).await?;
        }
        Ok::<_, LookupError>(())
    };
    let others = tokio::time::timeout(Duration::from_secs(30), others).await;
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    IS_OVER.store(true, Ordering::Relaxed);
    others.expect("the third owner has turns of its own").unwrap();
}

/// The turns of one endpoint are fewer than those of its owner.
#[tokio::test]
async fn hanging_lookups_delay_no_other_endpoint_of_their_owner() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let lookups = Lookups::new(|host| {
        while host == "hangs.example" && !IS_OVER.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(vec![PUBLIC.parse().unwrap()])
    });
    let (owner, greedy) = ids("owner", "greedy");
    for _ in 0..LOOKUPS_MAX {
        let (lookups, owner, greedy) = (lookups.clone(), owner.clone(), greedy.clone());
        tokio::spawn(
            async move { lookups.look_up("hangs.example", &owner, &greedy).await.map(drop) },
        );
    }
    tokio::task::yield_now().await;
    let (_, other) = ids("owner", "other");
    let found = lookups.look_up("ok.example", &owner, &other);
    let found = tokio::time::timeout(Duration::from_secs(10), found).await;
    IS_OVER.store(true, Ordering::Relaxed);
    found.expect("the other endpoint has turns of its own").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_runs_is_not_waited_for_without_end() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    // The lookup takes real time: until the test has its error, or 10 s if there is none.
    let lookups = Lookups::new(|_| {
        let begun = Instant::now();
        while !IS_OVER.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(vec![])
    });
    let waiting = tokio::spawn(async move {
        let (owner, endpoint) = ids("o", "e");
        lookups.look_up("hangs.example", &owner, &endpoint).await
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(LOOKUP_TIMEOUT).await;
    let ended = waiting.await;
    IS_OVER.store(true, Ordering::Relaxed);
    let error = ended.unwrap().unwrap_err().to_string();
    assert_eq!(error, "the name `hangs.example` was not resolved within 10 s");
}
