//! The gauge near its reserve: granted and owed bytes, inodes, writers, and the return of work.

use super::*;

#[test]
fn new_work_stops_at_the_reserve_and_waiting_jobs_later() {
    let disk_space = DiskSpaceGauge::default();
    assert!(disk_space.admits_work() && disk_space.may_start_jobs());
    // (free, admits work, may start jobs)
    let looks = [
        (8_000, true, true),
        (800, true, true),
        (799, false, true),
        (899, false, true),
        (200, false, true),
        (199, false, false),
        (299, false, false),
        (300, false, true),
        (899, false, true),
        (900, true, true),
        (800, true, true),
        (0, false, false),
    ];
    for (free, admits, starts) in looks {
        disk_space.set(free, 800);
        assert_eq!(
            (disk_space.admits_work(), disk_space.may_start_jobs()),
            (admits, starts),
            "{free}"
        );
        assert_eq!((disk_space.free_bytes(), disk_space.reserve_bytes()), (free, 800));
    }
    disk_space.set(0, 0);
    assert!(disk_space.admits_work() && disk_space.may_start_jobs(), "without a reserve");
}

#[test]
fn bytes_that_were_granted_since_the_measurement_are_not_free() {
    let disk_space = DiskSpaceGauge::default();
    disk_space.set(1_000, 800);
    disk_space.grant(200);
    assert!(disk_space.admits_work());
    disk_space.grant(1);
    assert_eq!((disk_space.free_bytes(), disk_space.admits_work()), (799, false));
    assert!(disk_space.may_start_jobs(), "running jobs may use the reserve");
    disk_space.grant(599);
    assert!(disk_space.admits_chunks() && disk_space.free_bytes() == 200);
    disk_space.grant(1);
    assert!(disk_space.may_start_jobs() && !disk_space.admits_chunks());
    disk_space.take_back(600);
    // Bytes that are granted during a measurement count until the next one.
    let granted = disk_space.granted_bytes();
    disk_space.grant(50);
    disk_space.set_measured(1_000, 800, granted);
    assert_eq!((disk_space.free_bytes(), disk_space.admits_work()), (950, true));
    // Bytes that were granted before the measurement are not subtracted twice.
    disk_space.take_back(60);
    assert_eq!(disk_space.free_bytes(), 1_000);
}

/// The bound of the return (900 here) is for measurements that were below the reserve, and no
/// measurement was. Otherwise a stream of small writes near the reserve would refuse all work.
#[test]
fn granted_bytes_do_not_raise_the_bound_of_the_return() {
    let disk_space = DiskSpaceGauge::default();
    disk_space.set(1_000, 800);
    disk_space.grant(201);
    assert!(!disk_space.admits_work());
    disk_space.set(850, 800);
    assert!(disk_space.admits_work());
}

#[test]
fn owed_bytes_are_not_free_until_they_are_settled() {
    let disk_space = DiskSpaceGauge::default();
    disk_space.owe(1 << 40);
    assert!(!disk_space.is_tight(), "a disk that was not measured has space");
    disk_space.settle(1 << 40);
    disk_space.set(1_100, 800);
    assert!(disk_space.admits_work() && !disk_space.is_tight());
    disk_space.owe(200);
    assert!(disk_space.admits_work() && disk_space.is_tight());
    disk_space.owe(101);
    assert_eq!((disk_space.free_bytes(), disk_space.admits_work()), (799, false));
    // A measurement contains granted bytes, and never owed ones.
    disk_space.set(1_100, 800);
    assert!(!disk_space.admits_work() && disk_space.may_start_jobs());
    disk_space.owe(600);
    assert!(!disk_space.may_start_jobs() && !disk_space.admits_chunks());
    disk_space.settle_written(801);
    assert_eq!(disk_space.free_bytes(), 1_100 - 901, "the measurement is older than these bytes");
    disk_space.settle(100);
    disk_space.set(1_100, 800);
    assert!(disk_space.admits_work() && disk_space.may_start_again());
    assert_eq!(disk_space.bytes_above_reserve(), 300);
    disk_space.owe(900);
    assert!(disk_space.admits_results() && disk_space.free_bytes() == 200);
    disk_space.owe(101);
    assert!(!disk_space.admits_results() && disk_space.bytes_above_reserve() == 0);
    disk_space.settle(1_001);
    disk_space.set(2_800, 800);
    disk_space.owe(1_000);
    assert!(!disk_space.is_tight());
    disk_space.owe(1);
    assert!(disk_space.is_tight(), "half of the space above the reserve is owed");
}

#[test]
fn inodes_have_a_reserve_of_their_own() {
    let disk_space = DiskSpaceGauge::default();
    // (free bytes, free inodes, admits work, may start jobs, what is short)
    let looks = [
        (8_000, 800, true, true, Shortage::Bytes),
        (8_000, 79, false, true, Shortage::Inodes),
        (8_000, 19, false, false, Shortage::Inodes),
        (799, 19, false, false, Shortage::Bytes),
        (8_000, 89, false, true, Shortage::Inodes),
        (8_000, 90, true, true, Shortage::Bytes),
    ];
    for (bytes, inodes, admits, starts, short) in looks {
        disk_space.set(bytes, 800);
        disk_space.set_inodes(inodes, 80);
        assert_eq!(
            (disk_space.admits_work(), disk_space.may_start_jobs()),
            (admits, starts),
            "{inodes}"
        );
        assert_eq!((disk_space.free_inodes(), disk_space.reserve_inodes()), (inodes, 80));
        assert_eq!(disk_space.shortage(), short, "{bytes}, {inodes}");
    }
    disk_space.set_inodes(0, 0);
    assert!(disk_space.admits_work(), "a file system without a fixed number of inodes");
}

#[test]
fn no_space_is_reported_while_a_writer_waits() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let first = disk_space.wait_for_space();
    let second = disk_space.wait_for_space();
    drop(first);
    assert!(
        disk_space.has_waiting_writers()
            && !disk_space.admits_work()
            && !disk_space.may_start_jobs()
    );
    drop(second);
    assert!(
        !disk_space.has_waiting_writers()
            && disk_space.admits_work()
            && disk_space.may_start_jobs()
    );
    assert!(disk_space.may_start_again(), "jobs were refused before");
    assert!(!disk_space.may_start_again(), "once");
}
