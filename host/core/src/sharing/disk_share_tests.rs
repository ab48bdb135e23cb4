//! Shares of one, two and many owners on a disk, by cases and for any additions and removals.

use proptest::prelude::*;

use super::*;
use crate::sharing::tenancy::Tenancy;

const GIB: u64 = 1 << 30;

fn disk(is_shared: bool) -> Arc<DiskSpaceGauge> {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(is_shared);
    Arc::new(DiskSpaceGauge::new(tenancy))
}

fn account(room: &Arc<DiskSpaceGauge>, owner: &str) -> DiskAccount {
    DiskAccount::new(room, &OwnerId::new(owner).unwrap())
}

/// Adds work until it is refused, and returns the owner's bytes.
fn fill(room: &Arc<DiskSpaceGauge>, free: &mut u64, account: &DiskAccount) -> u64 {
    const STEP: u64 = 1 << 20;
    room.set(*free, 0);
    while *free >= STEP && account.admits_work(STEP) {
        account.add(STEP);
        *free -= STEP;
        room.set(*free, 0);
    }
    account.bytes()
}

#[test]
fn an_owner_leaves_a_quarter_of_the_disk_to_the_next() {
    let (room, mut free) = (disk(true), 4 * GIB);
    let [first, second] = ["a", "b"].map(|owner| account(&room, owner));
    assert_eq!(fill(&room, &mut free, &first), 3 * GIB);
    assert!(first.admits_results(1 << 20), "accepted jobs have room for their results");
    assert_eq!(fill(&room, &mut free, &second), 3 * GIB / 4);
    assert!(!first.admits_results(GIB / 4));
    first.remove(2 * GIB);
    free += 2 * GIB;
    assert!(fill(&room, &mut free, &second) > GIB);
}

#[test]
fn an_owner_that_is_alone_has_the_whole_disk_and_a_small_one_is_never_refused() {
    let (room, mut free) = (disk(false), GIB);
    let all = account(&room, "a");
    assert_eq!(fill(&room, &mut free, &all), GIB);
    let (room, mut free) = (disk(true), 2 * SMALL_BYTES);
    room.set(GIB, GIB);
    let small = account(&room, "b");
    assert!(small.admits_work(SMALL_BYTES) && !small.admits_work(SMALL_BYTES + 1));
    assert!(fill(&room, &mut free, &small) >= SMALL_BYTES);
}

#[test]
fn an_owner_cannot_exceed_the_share_between_two_measurements() {
    const MIB: u64 = 1 << 20;
    let room = disk(true);
    room.set(5 * GIB, GIB);
    let [first, second] = ["a", "b"].map(|owner| account(&room, owner));
    let fill = |account: &DiskAccount| {
        while account.admits_work(MIB) && account.disk_space().admits_work() {
            account.add(MIB);
        }
        account.bytes()
    };
    assert_eq!(fill(&first), 3 * GIB);
    assert_eq!(fill(&second), 3 * GIB / 4);
    // Files that shrink free space at once; deleted jobs free it until the next measurement.
    first.remove(2 * GIB);
    assert_eq!(fill(&second), 3 * GIB / 4);
    room.take_back(GIB);
    assert!(fill(&second) > GIB);
    // Bytes that were found on the disk are in the measurement.
    let free = room.free_bytes();
    second.add_existing(GIB);
    assert_eq!(room.free_bytes(), free);
}

#[test]
fn files_that_are_not_counted_yet_take_room_from_files_only() {
    let room = disk(true);
    room.set(4 * GIB, 0);
    let [first, other] = ["a", "b"].map(|owner| account(&room, owner));
    let uncounted = first.charge_uncounted(20 * GIB);
    let small = first.charge_uncounted(GIB);
    assert!(!first.admits_files(0) && other.admits_files(2 * GIB));
    assert!(first.admits_work(2 * GIB) && first.admits_results(2 * GIB) && first.bytes() == 0);
    drop(uncounted);
    assert!(first.admits_files(2 * GIB) && !first.admits_files(29 * GIB / 10));
    drop(small);
    assert!(first.admits_files(29 * GIB / 10));
}

#[test]
fn accounts_of_one_owner_count_the_same_bytes() {
    let room = disk(true);
    let [first, same, other] = ["a", "a", "b"].map(|owner| account(&room, owner));
    first.add(7);
    same.replace(4, 2);
    assert_eq!((first.bytes(), same.bytes(), other.bytes()), (5, 5, 0));
    let mut charge = first.charge(3);
    assert_eq!(same.bytes(), 8);
    for bytes in [7, 2] {
        charge.resize(bytes);
        assert_eq!(same.bytes(), 5 + bytes);
    }
    drop(charge);
    assert_eq!(same.bytes(), 5);
}

proptest! {
    /// For any additions and removals: an owner's last addition has left a third of its bytes
    /// free, and an owner without any finds room for three quarters of what is free.
    #[test]
    fn every_owner_leaves_room_for_the_next(
        events in prop::collection::vec((0..3_usize, any::<bool>(), 1..256_u64), 1..200),
    ) {
        let room = disk(true);
        let mut free = 4 * GIB;
        let accounts = ["a", "b", "c"].map(|owner| account(&room, owner));
        let next = account(&room, "next");
        for (who, adds, mib) in events {
            room.set(free, 0);
            let (account, bytes) = (&accounts[who], mib << 20);
            prop_assert!(next.admits_work(free / 4 * 3));
            if adds && account.admits_work(bytes) && bytes <= free {
                account.add(bytes);
                free -= bytes;
                let held = account.bytes();
                prop_assert!(held <= 3 * free || held <= SMALL_BYTES, "{held} {free}");
            } else {
                let bytes = bytes.min(account.bytes());
                account.remove(bytes);
                free += bytes;
            }
        }
    }
}
