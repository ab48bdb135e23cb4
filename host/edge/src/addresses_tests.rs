//! Connections and bytes of callers without a key, by cases, and sums after any sequence of steps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

fn from(address: &str) -> PeerAddress {
    PeerAddress(address.parse().unwrap())
}

fn admit(addresses: &Arc<Addresses>, address: &str) -> Arc<Account> {
    addresses.admit(from(address))
}

fn bounded(connections_max: u32, is_for_loopback: bool) -> Arc<Addresses> {
    Addresses::new(AddressBound { connections_max, is_for_loopback }, of_all(10_000))
}

fn of_all(connections_max: u32) -> AllBound {
    AllBound { connections_max, bytes_max: 256 * MIB }
}

/// A bound for all connections, and none that matters for those of an address.
fn for_all(connections_max: u32) -> Arc<Addresses> {
    let of_address = AddressBound { connections_max: u32::MAX, is_for_loopback: true };
    Addresses::new(of_address, of_all(connections_max))
}

fn owner() -> OwnerId {
    "owner".parse().unwrap()
}

fn open_count(accounts: &[Arc<Account>]) -> usize {
    accounts.iter().filter(|one| is_open(one)).count()
}

fn is_open(account: &Arc<Account>) -> bool {
    !account.closing.is_cancelled()
}

fn is_empty(addresses: &Addresses) -> bool {
    let held = addresses.held.lock();
    let sums = held.bytes + held.closing_bytes + held.unknown + held.known;
    sums == 0 && held.by_address.is_empty() && held.by_bytes.is_empty() && held.closing.is_empty()
}

#[test]
fn one_address_takes_its_bound_and_closes_its_own_oldest_beyond_it() {
    let addresses = bounded(3, false);
    let neighbour = admit(&addresses, "192.0.2.9");
    let mut held: Vec<_> = (0..3).map(|_| admit(&addresses, "192.0.2.1")).collect();
    assert!(held.iter().all(is_open));
    for oldest in 0..1_000 {
        held.push(admit(&addresses, "192.0.2.1"));
        assert!(!is_open(&held[oldest]));
        assert_eq!(held.iter().filter(|one| is_open(one)).count(), 3);
    }
    assert!(is_open(&neighbour));
    drop((held, neighbour));
    assert!(is_empty(&addresses));
}

#[test]
fn connections_that_have_shown_a_key_do_not_count_and_are_not_closed() {
    let addresses = bounded(2, false);
    let keyed = || {
        let connection = admit(&addresses, "192.0.2.1");
        connection.show_key(&owner());
        connection
    };
    let held: Vec<_> = (0..100).map(|_| keyed()).collect();
    let silent: Vec<_> = (0..5).map(|_| admit(&addresses, "192.0.2.1")).collect();
    assert!(held.iter().all(is_open));
    assert_eq!(silent.iter().filter(|one| is_open(one)).count(), 2);
    drop((held, silent));
    assert!(is_empty(&addresses));
}

#[test]
fn a_network_of_ipv6_is_one_address_and_loopback_has_no_bound_by_itself() {
    let cases = [
        ("2001:db8::1", "2001:db8::2", false, true),
        ("2001:db8::1", "2001:db8:0:1::1", false, false),
        ("192.0.2.1", "::ffff:192.0.2.1", false, true),
        ("127.0.0.1", "127.0.0.1", false, false),
        ("::1", "::1", false, false),
        ("127.0.0.1", "127.0.0.1", true, true),
        ("::1", "::1", true, true),
    ];
    for (first, second, is_for_loopback, expected) in cases {
        // By the number of connections, and by their bytes.
        for connections_max in [1, 2] {
            let addresses = bounded(connections_max, is_for_loopback);
            let first = admit(&addresses, first);
            let _most = first.charge(ADDRESS_BYTES_MAX - CONNECTION_BYTES).unwrap();
            let other = admit(&addresses, second);
            let _more = other.charge(CONNECTION_BYTES + 1);
            assert_eq!(!is_open(&first), expected, "{second}, {is_for_loopback}");
        }
    }
}

#[test]
fn calls_of_an_address_close_its_largest_connection_and_no_small_one() {
    let addresses = bounded(1_000, false);
    let [small, large, larger] = [(); 3].map(|()| admit(&addresses, "192.0.2.1"));
    let neighbour = admit(&addresses, "192.0.2.9");
    let call = |account: &Arc<Account>, mib: usize| account.charge(mib * MIB);
    let held = [call(&large, 3).unwrap(), call(&larger, 4).unwrap()];
    let first = small.charge(CONNECTION_BYTES).expect("a call is a part of its connection");
    assert_eq!(call(&larger, 1).err(), Some(NoRoom), "it is the largest");
    assert_eq!(call(&small, 5).err(), Some(NoRoom), "it would be the largest");
    assert!([&small, &large, &larger, &neighbour].into_iter().all(is_open));
    let next = call(&small, 2);
    assert!(next.is_ok() && !is_open(&larger) && is_open(&large));
    assert_eq!(call(&larger, 0).err(), Some(NoRoom), "it must be closed");
    assert!(is_open(&small) && is_open(&neighbour));
    drop((held, first, next));
}

/// The bound of all holds for each address, also one without a bound of its own.
#[test]
fn a_newcomer_gets_in_while_others_hold_everything() {
    let addresses = bounded(100, false);
    let mut proxy: Vec<_> = (0..31).map(|_| admit(&addresses, "127.0.0.1")).collect();
    let strangers: Vec<_> =
        (0..32).map(|one| admit(&addresses, &format!("192.0.2.{one}"))).collect();
    let mut all: Vec<_> =
        proxy.iter().chain(&strangers).map(|one| one.charge(4 * MIB).unwrap()).collect();
    let newcomer = admit(&addresses, "198.51.100.1");
    all.push(newcomer.charge(3 * MIB).unwrap());
    assert!(proxy.iter().all(is_open));
    all.push(newcomer.charge(2 * MIB).unwrap());
    assert!(!is_open(&proxy[0]), "its address holds most");
    let late = admit(&addresses, "198.51.100.2");
    assert!(late.charge(CONNECTION_BYTES).is_ok());
    late.show_key(&owner());
    assert!(proxy[1..].iter().chain(&strangers).chain([&newcomer, &late]).all(is_open));
    let more = || strangers[0].charge(3 * MIB);
    assert_eq!(more().err(), Some(NoRoom), "the closed connection is still in memory");
    let (closed, charge) = (proxy.remove(0), all.remove(0));
    // It shows a key at the last moment, and stays.
    closed.show_key(&owner());
    all.push(more().unwrap());
    drop((closed, charge));
    assert!(!is_open(&proxy[0]) && proxy[1..].iter().all(is_open));
}

#[test]
fn calls_without_a_key_count_on_a_connection_with_one_which_stays_open() {
    let addresses = bounded(100, false);
    let keyed = admit(&addresses, "192.0.2.1");
    let before = keyed.charge(MIB).unwrap();
    keyed.show_key(&owner());
    let more = keyed.charge(7 * MIB).unwrap();
    assert_eq!(keyed.charge(1).err(), Some(NoRoom));
    let _silent = admit(&addresses, "192.0.2.1");
    assert!(is_open(&keyed));
    more.cancel();
    assert!(keyed.charge(7 * MIB - CONNECTION_BYTES).is_ok());
    drop(before);
    assert!(keyed.charge(7 * MIB).is_err(), "HTTP may hold the ended calls");
    keyed.flushed();
    assert!(keyed.charge(7 * MIB).is_ok());
}

#[test]
fn heads_and_buffers_count_until_the_connection_has_a_key() {
    let addresses = bounded(100, false);
    let [one, other] = [(); 2].map(|()| admit(&addresses, "192.0.2.1"));
    one.set_buffers(5 * MIB, CONNECTION_BYTES).unwrap();
    other.set_buffers(4 * MIB, CONNECTION_BYTES).unwrap();
    assert!(!is_open(&one) && is_open(&other));
    assert_eq!(other.set_buffers(9 * MIB, 0), Err(NoRoom), "no other connection is left to close");
    other.set_buffers(0, CONNECTION_BYTES).unwrap();
    let third = admit(&addresses, "192.0.2.1");
    third.set_buffers(8 * MIB - CONNECTION_BYTES, CONNECTION_BYTES).unwrap();
    third.show_key(&owner());
    assert!(is_open(&other) && other.set_buffers(0, 8 * MIB).is_ok(), "a key frees both");
    drop((one, other, third));
    assert!(is_empty(&addresses));
}

/// Fifteen addresses, each within its own bound, open as many as there may be of all.
#[test]
fn strangers_leave_a_quarter_of_the_connections_and_their_newest_ones_stay() {
    let addresses = for_all(400);
    let flood: Vec<_> =
        (0..3_000).map(|one| admit(&addresses, &format!("192.0.2.{}", one % 15))).collect();
    assert_eq!(open_count(&flood), 300);
    assert!(flood[2_715..].iter().all(is_open), "of each address the oldest are closed");
    let newcomer = admit(&addresses, "198.51.100.1");
    let more: Vec<_> =
        (0..3_000).map(|one| admit(&addresses, &format!("192.0.2.{}", one % 15))).collect();
    assert!(is_open(&newcomer), "it holds less than any address of the flood");
    drop((flood, more, newcomer));
    assert!(is_empty(&addresses));
}

/// With one connection for each address, the first one makes room.
#[test]
fn of_addresses_that_hold_the_same_the_one_known_longest_makes_room() {
    for newcomer in ["10.0.0.1", "203.0.113.1"] {
        let addresses = for_all(400);
        let from = |one: u32| {
            addresses.admit(PeerAddress(std::net::Ipv4Addr::from(0xC000_0200 + one).into()))
        };
        let mut all: Vec<_> = (0..300).map(from).collect();
        let newcomer = admit(&addresses, newcomer);
        all.extend((300..599).map(from));
        assert!(is_open(&newcomer) && open_count(&all) == 299);
        all.push(from(599));
        assert!(!is_open(&newcomer), "300 others came after it");
    }
}

#[test]
fn strangers_leave_a_quarter_of_what_connections_with_keys_leave() {
    let addresses = for_all(400);
    let keyed = |count| -> Vec<_> {
        let one = |_| {
            let connection = admit(&addresses, "203.0.113.1");
            connection.show_key(&owner());
            connection
        };
        (0..count).map(one).collect()
    };
    let flood = || -> Vec<_> {
        (0..900).map(|one| admit(&addresses, &format!("192.0.2.{}", one % 15))).collect()
    };
    let (mut all_keyed, mut of_strangers) = (vec![], vec![]);
    for (more, strangers) in [(0, 300), (200, 150), (196, 3), (2, 1), (2, 1)] {
        all_keyed.extend(keyed(more));
        of_strangers.extend(flood());
        assert_eq!(open_count(&of_strangers), strangers, "{} have keys", all_keyed.len());
        assert!(all_keyed.iter().all(is_open));
    }
    all_keyed.clear();
    let after = flood();
    assert_eq!(open_count(&after) + open_count(&of_strangers), 300);
    drop((after, of_strangers));
    assert!(is_empty(&addresses));
}

#[derive(Debug, Clone)]
enum Step {
    Admit(u8),
    Charge(usize, usize),
    Resize(usize, usize),
    DropCharge(usize),
    CancelCharge(usize),
    Buffers(usize, usize),
    ShowKey(usize),
    Flush(usize),
    DropConnection(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (which, bytes) = (0..64_usize, 0..3 * MIB);
    prop_oneof![
        (0..4_u8).prop_map(Step::Admit),
        (which.clone(), bytes.clone()).prop_map(|(at, bytes)| Step::Charge(at, bytes)),
        (which.clone(), bytes.clone()).prop_map(|(at, bytes)| Step::Resize(at, bytes)),
        (which.clone(), bytes).prop_map(|(at, bytes)| Step::Buffers(at, bytes)),
        which.clone().prop_map(Step::DropCharge),
        which.clone().prop_map(Step::CancelCharge),
        which.clone().prop_map(Step::ShowKey),
        which.clone().prop_map(Step::Flush),
        which.prop_map(Step::DropConnection),
    ]
}

proptest! {
    /// The sums are those of the connections and charges that live, within the bounds.
    #[test]
    fn whatever_happens_the_sums_are_what_is_held(steps in prop::collection::vec(step(), 1..200)) {
        let all_max = 20 * MIB;
        let bound = AddressBound { connections_max: 5, is_for_loopback: false };
        let all = AllBound { connections_max: 12, bytes_max: all_max };
        let addresses = Addresses::new(bound, all);
        let (mut accounts, mut charges): (Vec<Arc<Account>>, Vec<Charge>) = (vec![], vec![]);
        for step in steps {
            let (of, at) = (accounts.len().max(1), charges.len().max(1));
            match step {
                Step::Admit(0) => accounts.push(admit(&addresses, "127.0.0.1")),
                Step::Admit(one) => {
                    accounts.push(admit(&addresses, &format!("192.0.2.{one}")));
                }
                Step::Charge(which, bytes) => {
                    let charge = accounts.get(which % of).map(|account| account.charge(bytes));
                    charges.extend(charge.and_then(Result::ok));
                }
                Step::Resize(which, bytes) => {
                    let _ = charges.get_mut(which % at).map(|charge| charge.resize(bytes));
                }
                Step::DropCharge(which) if which < charges.len() => {
                    drop(charges.swap_remove(which));
                }
                Step::CancelCharge(which) if which < charges.len() => {
                    charges.swap_remove(which).cancel();
                }
                Step::Buffers(which, bytes) => {
                    let set = |account: &Arc<Account>| account.set_buffers(bytes / 2, bytes);
                    let _ = accounts.get(which % of).map(set);
                }
                Step::ShowKey(which) => {
                    let _ = accounts.get(which % of).map(|account| account.show_key(&owner()));
                }
                Step::Flush(which) => {
                    let _ = accounts.get(which % of).map(|account| account.flushed());
                }
                Step::DropConnection(which) if which < accounts.len() => {
                    drop(accounts.swap_remove(which));
                }
                Step::DropCharge(_) | Step::CancelCharge(_) | Step::DropConnection(_) => {}
            }
            let mut live: BTreeMap<u64, (Arc<Account>, usize, usize)> = BTreeMap::new();
            let known = accounts.iter().chain(charges.iter().map(|charge| &charge.account));
            for account in known {
                let unsent = account.unsent.load(Ordering::Relaxed);
                let mut held = addresses.held.lock();
                let connection = held.connection(account);
                let (head, buffers) =
                    connection.map_or((0, 0), |of| (of.head_bytes, of.buffer_bytes));
                let all = || (account.clone(), unsent + head, buffers);
                live.entry(account.number).or_insert_with(all);
            }
            for charge in &charges {
                live.get_mut(&charge.account.number).unwrap().1 += charge.bytes;
            }
            let counted = |(account, bytes, buffers): &(Arc<Account>, usize, usize)| {
                match account.has_key() {
                    true => *bytes,
                    false if is_open(account) => *bytes.max(buffers),
                    false => 0,
                }
            };
            let held = addresses.held.lock();
            prop_assert_eq!(held.bytes, live.values().map(counted).sum::<usize>());
            prop_assert_eq!(held.bytes, held.by_bytes.iter().map(|(bytes, ..)| bytes).sum::<usize>());
            let open: usize = held.by_address.values().map(|of| of.connections.len()).sum();
            let keyed = live.values().filter(|(account, ..)| account.has_key()).count();
            prop_assert_eq!((held.unknown, held.known), (open, keyed));
            prop_assert!(open <= 9, "three quarters of all");
            // A new connection is admitted in any case.
            prop_assert!(held.bytes <= all_max + live.len() * CONNECTION_BYTES);
            for (address, of) in &held.by_address {
                let sizes = of.connections.iter().map(|(at, of)| (of.counts_as(), Reverse(*at)));
                prop_assert_eq!(&of.by_bytes, &sizes.collect::<BTreeSet<_>>());
                let most = ADDRESS_BYTES_MAX + of.connections.len() * CONNECTION_BYTES;
                prop_assert!(address.is_loopback() || of.bytes <= most);
                prop_assert!(address.is_loopback() || of.connections.len() <= 5);
            }
            drop(held);
        }
        drop((accounts, charges));
        prop_assert!(is_empty(&addresses));
    }
}
