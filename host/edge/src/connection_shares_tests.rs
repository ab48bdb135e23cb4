//! Connections of several owners: shares, exempt keys, and the ends of refused and revoked ones.

use futures::FutureExt as _;

use super::*;

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn key(name: &str) -> KeyId {
    KeyId::new(name).unwrap()
}

struct Listener {
    shares: Arc<ConnectionShares>,
}

impl Listener {
    fn new(connections_max: u32) -> Self {
        Self { shares: ConnectionShares::new(connections_max) }
    }

    /// A connection with a call of the owner, unless the call is refused.
    fn open(&self, name: &str) -> Option<Arc<ConnectionAuth>> {
        self.open_with(name, "k")
    }

    fn open_with(&self, name: &str, of_key: &str) -> Option<Arc<ConnectionAuth>> {
        let connection = self.shares.connection();
        connection.record_key(&owner(name), &key(of_key)).ok().map(|()| connection)
    }

    /// The owners with connections, and how many.
    fn held(&self) -> Vec<(String, u64)> {
        let held = self.shares.held.lock();
        let mut all: Vec<_> =
            held.of_owners.iter().map(|(owner, held)| (owner.to_string(), held)).collect();
        all.sort();
        all
    }

    fn open_all(&self, name: &str) -> Vec<Arc<ConnectionAuth>> {
        std::iter::from_fn(|| self.open(name)).collect()
    }
}

#[test]
fn an_owner_leaves_a_quarter_of_the_connections_to_the_next() {
    let listener = Listener::new(64);
    let first = listener.open_all("a");
    let second = listener.open_all("b");
    let third = listener.open_all("c");
    assert_eq!([first.len(), second.len(), third.len()], [48, 12, 3]);
    drop(first);
    assert_eq!(listener.open_all("c").len(), 36, "what `a` held is free again");
    drop((second, third));
    assert_eq!(listener.held(), []);
}

#[test]
fn a_connection_counts_for_the_owner_of_its_last_valid_key() {
    let listener = Listener::new(8);
    let connection = listener.open("a").unwrap();
    connection.record_key(&owner("b"), &key("k")).unwrap();
    connection.record_key(&owner("b"), &key("l")).unwrap();
    assert_eq!(listener.held(), [("b".to_owned(), 1)]);
    assert!(connection.has_key() && connection.ends().now_or_never().is_none());
    connection.lose_key();
    assert!(connection.is_ending() && connection.ends().now_or_never().is_some());
    assert_eq!(listener.held(), [("b".to_owned(), 1)], "it may have long calls");
    drop(connection);
    assert_eq!(listener.held(), []);
}

#[test]
fn a_key_without_a_connection_gets_one_although_its_owner_is_at_the_share() {
    let listener = Listener::new(40);
    let held = listener.open_all("a");
    let (first, second) = (listener.shares.connection(), listener.shares.connection());
    assert_eq!(first.record_key(&owner("a"), &key("admin")), Ok(()));
    assert!(second.record_key(&owner("a"), &key("admin")).is_err());
    drop((held, first));
    assert_eq!(listener.held(), []);
}

#[test]
fn keys_that_take_turns_on_a_connection_open_no_way_to_further_ones() {
    let listener = Listener::new(64);
    let opened = std::iter::from_fn(|| {
        let connection = listener.open_with("a", "first")?;
        connection.record_key(&owner("a"), &key("second")).unwrap();
        Some(connection)
    });
    let held: Vec<_> = opened.take(64).collect();
    assert_eq!(held.len(), 48);
    let second = listener.open_with("a", "second");
    assert!(second.is_some(), "it was the second key on its connections");
    assert!(listener.open_with("a", "second").is_none());
    drop((held, second));
    assert_eq!(listener.held(), []);
}

#[test]
fn the_exempt_connections_of_an_owner_with_many_keys_are_bounded() {
    let listener = Listener::new(64);
    let open = |number| listener.open_with("a", &format!("k{number}"));
    let mut held: Vec<_> = (0..100).map_while(open).collect();
    assert_eq!(held.len(), 48 + 8);
    assert!(listener.open("b").is_some());
    // The place of an exempt connection is free again after its end.
    held.pop();
    let next = open(100);
    assert!(next.is_some() && open(101).is_none());
    drop((held, next));
    assert_eq!(listener.held(), []);
}

#[test]
fn a_call_without_a_key_ends_a_connection_whose_key_was_revoked() {
    let listener = Listener::new(4);
    let connection = listener.open("a").unwrap();
    connection.check_key(|of| *of == key("k"));
    assert!(!connection.is_ending());
    connection.check_key(|_| false);
    assert!(connection.is_ending());
    let without_key = listener.shares.connection();
    without_key.check_key(|_| false);
    assert!(!without_key.is_ending(), "its address bounds it");
}

#[test]
fn a_refused_connection_ends_and_counts_for_no_owner() {
    let listener = Listener::new(4);
    let held = listener.open_all("a");
    assert_eq!(held.len(), 3);
    let refused = listener.shares.connection();
    assert_eq!(refused.record_key(&owner("a"), &key("k")), Err(OwnerAtShare { held: 3 }));
    assert!(refused.is_ending() && !refused.has_key());
    assert_eq!(listener.held(), [("a".to_owned(), 3)]);
    drop(held);
    assert_eq!(listener.held(), []);
}

#[test]
fn a_connection_that_never_had_a_key_does_not_end_for_a_wrong_one() {
    let listener = Listener::new(4);
    let connection = listener.shares.connection();
    connection.lose_key();
    assert!(connection.ends().now_or_never().is_none());
}
