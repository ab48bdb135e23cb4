//! Slow clients of one and several owners: who is disconnected, who is refused, and what counts.

use super::*;

/// The budget of a host with several owners, and its tenancy.
fn of_several_owners() -> (Arc<ResponseBudget>, Tenancy) {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    (Arc::new(ResponseBudget::new(tenancy.clone())), tenancy)
}

fn owner(name: &str) -> Option<OwnerId> {
    Some(OwnerId::new(name).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_slowest_client_is_disconnected_beyond_the_budget() {
    const HALF: usize = BYTES_MAX / 2;
    let all = Arc::new(ResponseBudget::default());
    let only = owner("only");
    let whole =
        |connection: &CancellationToken| all.reserve_whole(HALF as u64, only.as_ref(), connection);
    let connections: [_; 3] = std::array::from_fn(|_| CancellationToken::new());
    let has_gone = || connections.each_ref().map(CancellationToken::is_cancelled);
    let mut quick = whole(&connections[0]).unwrap().unwrap();
    tokio::time::advance(GRACE / 2).await;
    let slow = all.reserve_piece(HALF, only.as_ref(), &connections[1]);
    tokio::time::advance(GRACE).await;
    quick.record_progress();
    let third = whole(&connections[2]).unwrap().unwrap();
    assert_eq!(has_gone(), [false, true, false]);
    let another = CancellationToken::new();
    let refused = whole(&another);
    assert_eq!(refused.err(), Some(OverBudget), "the others have taken something");
    let piece = all.reserve_piece(HALF, only.as_ref(), &another);
    assert_eq!(has_gone(), [false, true, false]);
    drop((slow, quick, third, piece));
    let waiting = all.answers.lock();
    assert_eq!((waiting.bytes, waiting.answers.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_clients_read_slowly_leaves_room_to_others() {
    const ANSWER: u64 = 10 << 20;
    let (all, tenancy) = of_several_owners();
    let [busy, other] = ["busy", "other"].map(owner);
    let first = CancellationToken::new();
    let reserve = |owner: &Option<OwnerId>, connection: &CancellationToken| {
        all.reserve_whole(ANSWER, owner.as_ref(), connection).ok().flatten()
    };
    let mut slow: Vec<_> = reserve(&busy, &first).into_iter().collect();
    slow.extend(std::iter::from_fn(|| reserve(&busy, &CancellationToken::new())));
    assert_eq!(slow.len(), 19, "three quarters of the budget");
    for _ in 0..3 {
        let answer = reserve(&other, &CancellationToken::new());
        assert!(answer.is_some(), "another owner has room");
    }
    // The busy owner's own slowest client gives way to its next one.
    tokio::time::advance(GRACE).await;
    slow.iter_mut().skip(1).for_each(BudgetPermit::record_progress);
    let next = reserve(&busy, &CancellationToken::new());
    assert!(next.is_some() && first.is_cancelled());
    assert!(reserve(&busy, &CancellationToken::new()).is_none(), "all others read");
    tenancy.set_several_owners(false);
    assert!(reserve(&busy, &CancellationToken::new()).is_some(), "of the only owner");
}

/// Pieces cannot be refused, so that the owner's own slowest client gives way to the next
/// piece.
#[tokio::test(start_paused = true)]
async fn an_owner_whose_streams_are_read_steadily_leaves_room_to_others() {
    const PAGE: usize = 9 << 20;
    let (all, tenancy) = of_several_owners();
    let [busy, other] = ["busy", "other"].map(owner);
    let readers: [_; 32] = std::array::from_fn(|_| CancellationToken::new());
    let gone = || -> Vec<_> {
        let numbered = readers.iter().enumerate();
        numbered.filter(|(_, reader)| reader.is_cancelled()).map(|(number, _)| number).collect()
    };
    let read = |reader: &CancellationToken| all.reserve_piece(PAGE, busy.as_ref(), reader);
    let mut pages: Vec<_> = readers[..21].iter().map(read).collect();
    assert!(gone().is_empty(), "189 MiB are within the share");
    tokio::time::advance(GRACE / 2).await;
    for (number, page) in pages.iter_mut().enumerate() {
        if number != 5 {
            page.record_progress();
        }
    }
    pages.push(read(&readers[21]));
    assert_eq!(gone(), [5], "the slowest");
    pages.extend(readers[22..].iter().map(read));
    assert_eq!(gone(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let connection = CancellationToken::new();
    let whole = || all.reserve_whole(20 << 20, other.as_ref(), &connection);
    assert!(whole().is_ok_and(|held| held.is_some()), "another owner has room");
    drop(pages);
    tenancy.set_several_owners(false);
    let alone: [_; 32] = std::array::from_fn(|_| CancellationToken::new());
    let pages: Vec<_> = alone.iter().map(read).collect();
    assert!(!alone.iter().any(CancellationToken::is_cancelled), "of the only owner");
    assert_eq!(pages.len(), alone.len());
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_closed_for_an_answer_that_is_refused() {
    let (all, tenancy) = of_several_owners();
    let [busy, other] = ["busy", "other"].map(owner);
    let (slow, quick) = (CancellationToken::new(), CancellationToken::new());
    let whole = |owner: &Option<OwnerId>, mib: u64, connection: &CancellationToken| {
        all.reserve_whole(mib << 20, owner.as_ref(), connection).map(Option::unwrap)
    };
    let _slow = whole(&busy, 10, &slow).unwrap();
    tokio::time::advance(GRACE).await;
    let _quick = whole(&busy, 170, &quick).unwrap();
    // One connection is not enough for the share, and then for the room.
    assert_eq!(whole(&busy, 30, &quick).err(), Some(OverBudget));
    assert_eq!(whole(&other, 90, &quick).err(), Some(OverBudget));
    tenancy.set_several_owners(false);
    assert_eq!(whole(&busy, 90, &quick).err(), Some(OverBudget));
    assert!(!slow.is_cancelled());
    tenancy.set_several_owners(true);
    let next = whole(&busy, 15, &quick);
    assert!(next.is_ok() && slow.is_cancelled(), "here it is enough");
    assert!(!quick.is_cancelled());
}

/// Streams may exceed the budget, and the first answer of an owner only needs room.
#[test]
fn the_first_answer_of_an_owner_needs_only_room() {
    let (all, _) = of_several_owners();
    let connection = CancellationToken::new();
    let stream = owner("stream");
    let piece = |bytes| all.reserve_piece(bytes, stream.as_ref(), &connection);
    let _pieces = piece(BYTES_MAX - (20 << 20));
    let whole = |name, mib: u64| {
        let held = all.reserve_whole(mib << 20, owner(name).as_ref(), &connection);
        held.map(|held| held.is_some())
    };
    assert_eq!(whole("a", 20), Ok(true));
    let _held = all.reserve_whole(12 << 20, owner("a").as_ref(), &connection).unwrap();
    assert_eq!(whole("a", 8), Err(OverBudget), "its second one");
    assert_eq!(whole("b", 8), Ok(true));
    let _more = piece(BYTES_MAX);
    assert_eq!(whole("b", 1), Err(OverBudget), "no room");
}

#[test]
fn clients_without_a_key_leave_room_to_the_only_owner() {
    const ANSWER: u64 = 10 << 20;
    let all = Arc::new(ResponseBudget::default());
    let connection = CancellationToken::new();
    let reserve =
        |owner: Option<&OwnerId>| all.reserve_whole(ANSWER, owner, &connection).ok().flatten();
    let unauthenticated: Vec<_> = std::iter::from_fn(|| reserve(None)).collect();
    assert_eq!(unauthenticated.len(), 19, "three quarters of the budget");
    let only = owner("only");
    let own: Vec<_> = std::iter::from_fn(|| reserve(only.as_ref())).collect();
    assert_eq!(own.len(), 6, "all the rest");
}

#[test]
fn small_answers_are_not_counted() {
    let all = Arc::new(ResponseBudget::default());
    let connection = CancellationToken::new();
    assert!(all.reserve_whole(SMALL_ANSWER_BYTES as u64, None, &connection).unwrap().is_none());
    assert!(all.reserve_whole(SMALL_ANSWER_BYTES as u64 + 1, None, &connection).unwrap().is_some());
}

/// Each look at all answers takes time for each of them.
#[test]
fn small_pieces_count_as_64_kib() {
    let all = Arc::new(ResponseBudget::default());
    let connection = CancellationToken::new();
    let piece = all.reserve_piece(1, None, &connection);
    assert_eq!(all.answers.lock().bytes, SMALL_ANSWER_BYTES);
    drop(piece);
    assert_eq!(all.answers.lock().bytes, 0);
}
