//! The accounts of mounts without files: blocks, full disks, shares, holes, and removed files.

use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;

use super::*;

fn account(disk_space: &Arc<DiskSpaceGauge>, owner: &str) -> DiskAccount {
    DiskAccount::new(disk_space, &OwnerId::new(owner).unwrap())
}

const KEY: FileKey = FileKey { device: 1, inode: 2 };

#[test]
fn files_count_by_blocks_and_one_by_one() {
    let cases = [(0, 16_384), (1, 20_480), (4_096, 20_480), (4_097, 24_576)];
    for (bytes, expected) in cases {
        assert_eq!(file_charge(bytes), expected);
    }
    assert_eq!(file_charge(u64::MAX), u64::MAX);
}

#[test]
fn no_more_space_is_taken_than_there_is() {
    let space = Space::new(10, 100, DiskAccount::default());
    assert_eq!(space.take(90), Ok(()));
    assert_eq!(space.take(1), Err(Errno::NOSPC));
    assert_eq!(space.take(u64::MAX), Err(Errno::NOSPC));
    space.set_max(50);
    assert_eq!(space.take(0), Ok(()), "what takes nothing always fits");
    space.give_back(51);
    assert_eq!(space.take(1), Ok(()));
    assert_eq!(space.take(1), Err(Errno::NOSPC));
    assert_eq!(space.used(), 50);
}

#[test]
fn no_space_is_taken_on_a_full_disk() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let space = Space::new(10, 100, account(&disk_space, "a"));
    disk_space.set(1, 2);
    assert_eq!(space.take(1), Err(Errno::NOSPC));
    assert_eq!(space.take(0), Ok(()));
    space.give_back(5);
    disk_space.set(9, 2);
    assert_eq!(space.take(1), Ok(()));
    assert_eq!(space.used(), 6);
}

#[test]
fn mounts_of_an_owner_leave_room_for_another_owner() {
    const GIB: u64 = 1 << 30;
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    let disk_space = Arc::new(DiskSpaceGauge::new(tenancy));
    disk_space.set(4 * GIB, 0);
    let mount = |owner| Space::new(0, 100 * GIB, account(&disk_space, owner));
    let [first, second] = ["a", "a"].map(mount);
    assert_eq!(first.take(2 * GIB), Ok(()));
    disk_space.set(2 * GIB, 0);
    assert_eq!(second.take(GIB), Ok(()));
    disk_space.set(GIB, 0);
    assert_eq!(first.take(1), Err(Errno::NOSPC));
    assert_eq!(second.take(0), Ok(()), "what takes nothing always fits");
    assert_eq!(mount("b").take(GIB / 2), Ok(()));
    drop(second);
    disk_space.set(2 * GIB, 0);
    assert_eq!(first.take(GIB / 2), Ok(()));
    first.give_back(u64::MAX);
    assert_eq!(account(&disk_space, "a").bytes(), 0);
}

#[test]
fn growth_counts_before_the_next_measurement_and_holes_have_no_room_beyond_the_share() {
    const GIB: u64 = 1 << 30;
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    let disk_space = Arc::new(DiskSpaceGauge::new(tenancy));
    disk_space.set(4 * GIB, 0);
    let space = Space::new(0, 100 * GIB, account(&disk_space, "a"));
    let grow = || space.take(GIB / 4).map(|()| space.reallocated(0, GIB / 4));
    let grown = (0..).take_while(|_| grow().is_ok()).count();
    assert_eq!(grown, 12, "three of four GiB, without a measurement");
    space.give_back(3 * GIB);
    space.reallocated(3 * GIB, 0);
    assert_eq!(space.take(3 * GIB), Ok(()), "smaller files make room at once");
    // A file without blocks. Its holes are filled, and the share is used up.
    space.reallocated(0, 3 * GIB);
    assert!(space.disk_has_room());
    space.reallocated(0, 1);
    assert!(!space.disk_has_room());
}

#[test]
fn a_removed_file_counts_until_it_is_closed() {
    let space = Space::new(40, 100, DiskAccount::default());
    space.opened(KEY);
    space.opened(KEY);
    space.removed(KEY, 30, 0);
    assert_eq!(space.used(), 40);
    assert!(!space.closed(KEY));
    assert!(space.closed(KEY), "the last one");
    assert_eq!(space.used(), 40, "closing it releases its space");
    space.removed(KEY, 30, 0);
    assert_eq!(space.used(), 10);
    space.opened(KEY);
    assert!(!space.closed(KEY), "it has its name");
}
