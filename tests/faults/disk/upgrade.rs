//! An upgrade that a crash or a full disk interrupts: the directory keeps its version until the
//! copy for the way back is complete, and the next start upgrades it. This program has only one
//! version, so the starts are those of a process of this test that opens the store under a
//! fictitious second one.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use gristmill_core::signals::Signals;
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_store::{Schema, SchemaUpgrade, Settings, Store};
use gristmill_tests::disk_shim;
use gristmill_tests::recorded::{content, tables_and_journal, unpack};
use rusqlite::{Connection, OpenFlags};

const ARCHIVE: &str = "version-1-killed.tar.gz";
const COPY: &str = "before-upgrade-1";

/// The schema of a later program.
const LATER: Schema = Schema {
    newest: 2,
    migrations: &[
        Schema::PRODUCT.migrations[0],
        (
            "V2__weight",
            "ALTER TABLE job ADD COLUMN weight INTEGER; UPDATE job SET weight = seq; \
             PRAGMA user_version = 2",
        ),
    ],
    ..Schema::PRODUCT
};

/// Opens the store in a directory, writes a line, and waits for its end.
#[test]
#[ignore = "a process of its own, which another test starts"]
fn later_program() {
    let data = std::env::var_os("STORE_DIR").unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    let (signals, settings) = (Arc::new(Signals::default()), Settings::default());
    match Store::open_with_schema(Path::new(&data), clock, signals, settings, LATER) {
        Ok((_store, recovery)) => {
            match recovery.upgraded {
                Some(SchemaUpgrade { from, to }) => println!("upgraded from schema {from} to {to}"),
                None => println!("opened"),
            }
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

/// The later program on `data`, with the shim.
fn later(data: &Path) -> Command {
    let mut later = Command::new(std::env::current_exe().unwrap());
    later.args(["--exact", "upgrade::later_program", "--ignored", "--nocapture"]);
    later
        .env("STORE_DIR", data)
        .env("LD_PRELOAD", disk_shim())
        .env("DISK_DIR", data.canonicalize().unwrap());
    later.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    later
}

/// Waits for the line of a program, or for its end. Then it has ended.
fn line_of(mut program: Child) -> Option<String> {
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The test harness writes lines before it.
    let line = lines.find(|line| line.contains("upgraded") || line.contains("opened"));
    program.kill().unwrap();
    let status = program.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{status}");
    line
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

/// Kills a program at its `n`th sync, for each `n` up to the upgrade and some more, and starts
/// another one on what is left.
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
        let killed = later(&data).env("DISK_KILL", format!("sync:{n}")).spawn().unwrap();
        assert_eq!(line_of(killed), None, "the program has fewer syncs than {n}");
        let is_upgraded = version(&data) == LATER.newest;
        let copy = data.join(COPY);
        assert!(copy.exists() || !is_upgraded, "no way back after sync {n}");
        let left = tables_and_journal(&data);
        assert!(copy.exists() || left == recorded, "changed before the copy, at sync {n}");
        *if is_upgraded { &mut after } else { &mut before } += 1;
        assert!(!copy.exists() || content(&copy) == recorded, "an incomplete copy at sync {n}");
        // Every few kills, and right after the upgrade.
        if n % 4 == 0 || after == 1 {
            let line = line_of(later(&data).spawn().unwrap()).unwrap();
            assert_eq!(line.contains("upgraded from schema 1 to 2"), !is_upgraded, "{line}");
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
        let refused = later(&data).env("DISK_FAULT", full).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("has schema version 1, and is not upgraded to version 2"), "{said}");
        assert!(said.contains("copies its tables and its journal, which takes 28 MiB"), "{said}");
        let after = content(&data);
        assert!(before == after, "{:?}", after.keys());
    }
    let line = line_of(later(&data).spawn().unwrap()).unwrap();
    assert!(line.contains("upgraded from schema 1 to 2"), "{line}");
}
