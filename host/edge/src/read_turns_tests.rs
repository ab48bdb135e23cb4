//! Turns of addresses and of owners, by cases.

use std::net::Ipv4Addr;

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// How many of one address have a turn at one time.
const TURNS_OF_ADDRESS: usize = TURNS * 3 / 4;

#[test]
fn few_connections_of_an_address_have_a_turn_at_one_time_and_new_ones_have_their_own() {
    let turns = ReadTurns::default();
    let context = &mut Context::from_waker(Waker::noop());
    let busy: Vec<_> = (0..=TURNS).map(|_| turns.of_connection(ADDRESS)).collect();
    let begun: Vec<_> =
        busy.iter().map(|turn| turn.poll_begin(FIRST_CALLS + 1, context).is_ready()).collect();
    assert_eq!(begun.iter().filter(|begun| **begun).count(), TURNS_OF_ADDRESS);
    let other = turns.of_connection(IpAddr::from([192, 0, 2, 2]));
    assert!(other.poll_begin(FIRST_CALLS + 1, context).is_ready(), "its address has none");
    other.end();
    let new = turns.of_connection(ADDRESS);
    assert!(new.poll_begin(FIRST_CALLS, context).is_ready());
    new.read(FIRST_BYTES);
    new.end();
    assert!(new.poll_begin(FIRST_CALLS, context).is_pending(), "it has begun");
    busy[0].end();
    assert!(busy[TURNS_OF_ADDRESS].poll_begin(FIRST_CALLS + 1, context).is_ready());
    assert!(new.poll_begin(FIRST_CALLS, context).is_pending(), "others came first");
    drop(busy);
    assert!(new.poll_begin(FIRST_CALLS, context).is_ready());
    new.read(0);
    drop((other, new));
    assert_eq!((turns.first.taken(), turns.later.taken()), (0, 0));
}

#[test]
fn an_address_that_begins_many_connections_leaves_turns_to_the_next() {
    let turns = ReadTurns::default();
    let context = &mut Context::from_waker(Waker::noop());
    let flood: Vec<_> = (0..1_000).map(|_| turns.of_connection(ADDRESS)).collect();
    let begun = flood.iter().filter(|turn| turn.poll_begin(0, context).is_ready()).count();
    assert_eq!(begun, FIRST_TURNS * 3 / 4);
    let other = turns.of_connection(IpAddr::from([192, 0, 2, 2]));
    assert!(other.poll_begin(0, context).is_ready());
}

/// HTTP/2 begins calls, and shows keys, after the connection was queued for its next read.
#[test]
fn a_connection_that_reads_nothing_or_in_another_turn_leaves_its_place_to_others() {
    let turns = ReadTurns::default();
    let context = &mut Context::from_waker(Waker::noop());
    let busy: Vec<_> = (0..FIRST_TURNS).map(|_| turns.of_connection(ADDRESS)).collect();
    let begun = busy.iter().filter(|turn| turn.poll_begin(0, context).is_ready()).count();
    let waiting: Vec<_> = (0..4 * FIRST_TURNS).map(|_| turns.of_connection(ADDRESS)).collect();
    assert!(waiting.iter().all(|turn| turn.poll_begin(0, context).is_pending()));
    let owner = "owner".parse().unwrap();
    for (number, turn) in waiting.iter().enumerate() {
        match number % 4 {
            0 => turns.pass_to(turn, &owner),
            // Another thread has shown the key when the connection was about to ask.
            3 => {
                turns.pass_to(turn, &owner);
                assert!(turn.poll_begin(0, context).is_ready());
                turn.leave();
            }
            1 => drop(turn.poll_begin(FIRST_CALLS + 1, context).map(|_| turn.end())),
            _ => {
                turn.end();
                turn.ends_later(context);
            }
        }
    }
    drop(busy);
    let new: Vec<_> = (0..begun).map(|_| turns.of_connection(ADDRESS)).collect();
    assert!(new.iter().all(|turn| turn.poll_begin(0, context).is_ready()));
}

#[test]
fn the_connections_of_a_greedy_owner_leave_turns_to_other_owners_and_to_addresses() {
    let turns = ReadTurns::default();
    let context = &mut Context::from_waker(Waker::noop());
    let of_owner = |name: &str| {
        let turn = turns.of_connection(ADDRESS);
        turns.pass_to(&turn, &name.parse().unwrap());
        assert!(!turn.is_needed());
        turn.set_needed(true);
        turn
    };
    let flood: Vec<_> = (0..150).map(|_| of_owner("flood")).collect();
    let begun = flood.iter().filter(|turn| turn.poll_begin(0, context).is_ready()).count();
    assert_eq!(begun, TURNS * 3 / 4);
    assert_eq!(of_owner("other").poll_begin(0, context), Poll::Ready(TURN_BYTES));
    let new = turns.of_connection(ADDRESS);
    assert_eq!(new.poll_begin(0, context), Poll::Ready(FIRST_TURN_BYTES));
    drop(flood);
    assert_eq!(turns.of_owners.taken(), 0);
}
