//! An upgrade that a crash or a full disk interrupts: the directory keeps its version until the copy
//! for the way back is complete, and the next start upgrades it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gristmill_tests::recorded::{content, tables_and_journal, unpack};
use gristmill_tests::{command, disk_shim};
use rusqlite::{Connection, OpenFlags};

const ARCHIVE: &str = "version-6-killed.tar.gz";
const COPY: &str = "before-upgrade-6";

/// The schema version that this host writes.
const SCHEMA_VERSION: i64 = 14;

/// A host on `data`, with the shim.
fn host(data: &Path) -> Command {
    let mut host = command();
    host.args(["serve", "--listen", "127.0.0.1:0", "--manual-clock", "--data-dir"]).arg(data);
    host.env("LD_PRELOAD", disk_shim()).env("DISK_DIR", data.canonicalize().unwrap());
    host.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    host
}

/// Waits for the ready line, or for the end of the host. Then the host has ended.
fn ready_line(mut host: Child) -> Option<String> {
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    host.kill().unwrap();
    let status = host.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{status}");
    (!line.is_empty()).then_some(line)
}

/// The schema version of a directory that no process has open. Reads a copy, since SQLite may write
/// to the file.
fn version(data: &Path) -> i64 {
    let folder = tempfile::tempdir().unwrap();
    for name in ["store.db", "store.db-wal"] {
        std::fs::copy(data.join(name), folder.path().join(name)).unwrap();
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(folder.path().join("store.db"), flags).unwrap();
    db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// Kills a host at its `n`th sync, for each `n` up to the upgrade and some more, and starts another
/// one on what is left.
#[test]
fn an_upgrade_that_a_crash_interrupts_is_made_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    unpack(ARCHIVE, &folder.path().join("data"));
    let recorded = tables_and_journal(&folder.path().join("data"));
    let (mut before, mut after) = (0, 0);
    for n in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        unpack(ARCHIVE, &data);
        let killed = host(&data).env("DISK_KILL", format!("sync:{n}")).spawn().unwrap();
        assert_eq!(ready_line(killed), None, "the host has fewer syncs than {n}");
        let is_upgraded = version(&data) == SCHEMA_VERSION;
        let copy = data.join(COPY);
        assert!(copy.exists() || !is_upgraded, "no way back after sync {n}");
        let left = tables_and_journal(&data);
        assert!(copy.exists() || left == recorded, "changed before the copy, at sync {n}");
        *if is_upgraded { &mut after } else { &mut before } += 1;
        assert!(!copy.exists() || content(&copy) == recorded, "an incomplete copy at sync {n}");
        // Every few kills, and right after the upgrade.
        if n % 4 == 0 || after == 1 {
            let line = ready_line(host(&data).spawn().unwrap()).unwrap();
            assert_eq!(line.contains("upgraded from schema 6 to 14"), !is_upgraded, "{line}");
            // The next start makes the copy again, unless the upgrade was made.
            let expected = if is_upgraded { &recorded } else { &left };
            assert!(content(&copy) == *expected, "the copy after sync {n}");
        }
        if after == 3 {
            break;
        }
    }
    // At least one sync for each file of the copy.
    assert!(before > recorded.len(), "{before} kills before the upgrade");
}

#[test]
fn a_directory_is_not_upgraded_while_the_disk_has_no_room_for_the_way_back() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    unpack(ARCHIVE, &data);
    let before = content(&data);
    for write in [1, 2, 5] {
        let full = format!("write:{}:{write}:{COPY}", libc::ENOSPC);
        let refused = host(&data).env("DISK_FAULT", full).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("has schema version 6, and is not upgraded to version 14"), "{said}");
        assert!(said.contains("copies its tables and its journal, which takes 28 MiB"), "{said}");
        let after = content(&data);
        assert!(before == after, "{:?}", after.keys());
    }
    let line = ready_line(host(&data).spawn().unwrap()).unwrap();
    assert!(line.contains("upgraded from schema 6 to 14"), "{line}");
}
