//! Database files in real directories: interrupted creations, moved tables, unused pages, copies.

use std::io::Read as _;

use super::*;

fn open(dir: &Path) -> Result<Db, OpenError> {
    Db::open(dir, None, Schema::PRODUCT)
}

#[test]
fn a_creation_that_was_interrupted_is_continued() {
    for has_tables in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Connection::open(dir.path().join("store.db")).unwrap();
        if has_tables {
            schema::create(&mut file).unwrap();
        }
        file.execute_batch(&format!("CREATE TABLE {} (version INTEGER)", schema::HISTORY)).unwrap();
        drop(file);
        let db = open(dir.path()).unwrap();
        assert!(db.was_clean && db.upgrade.is_none());
        drop(db);
        assert!(open(dir.path()).is_ok());
    }
}

#[test]
fn a_directory_whose_tables_were_moved_is_refused_and_left_alone() {
    let handler = format!("components/{}.wasm", "ab".repeat(32));
    for remains in [handler.as_str(), "before-upgrade-12/store.db"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(remains);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        for is_empty in [false, true] {
            if is_empty {
                fs::write(dir.path().join("store.db"), "").unwrap();
            }
            let refused = open(dir.path()).map(drop).unwrap_err().to_string();
            assert!(refused.contains("back") && refused.contains("--data-dir"), "{refused}");
            assert_eq!(dir.path().join("store.db").exists(), is_empty);
            assert!(!dir.path().join("secrets.key").exists());
        }
    }
    // A new host has the empty directory, and a copy belongs to tables that are there.
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("components")).unwrap();
    drop(open(dir.path()).unwrap());
    fs::write(dir.path().join(&handler), "").unwrap();
    fs::create_dir(dir.path().join("before-upgrade-12")).unwrap();
    assert!(open(dir.path()).is_ok());
}

#[test]
fn a_directory_whose_jobs_were_moved_to_a_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    let mark = dir.path().join(IMPORTED);
    fs::write(&mark, "").unwrap();
    let refused = open(dir.path()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("--database") && refused.contains(IMPORTED), "{refused}");
    fs::remove_file(mark).unwrap();
    assert!(open(dir.path()).is_ok());
}

/// Leaves 4,000 unused pages.
fn fill_and_delete(db: &Db) {
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 4000)
            INSERT INTO input (sum, body) SELECT 0, zeroblob(8000) FROM n";
    db.connection.execute(fill, ()).unwrap();
    db.connection.execute("DELETE FROM input", ()).unwrap();
}

#[test]
fn unused_space_is_released_step_by_step() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    fill_and_delete(&db);
    let mut steps = 1;
    while db.tidy(false).unwrap() {
        steps += 1;
    }
    assert_eq!(steps, 4, "three steps of 1,024 of 4,000 pages, and one to see that it is enough");
    let size = fs::metadata(&db.file).unwrap().len();
    assert!(size < 10 << 20, "{size} bytes are left of 32 MB");
}

/// A step is one transaction, which the write-ahead log takes before the file becomes smaller.
#[test]
fn steps_are_small_while_the_disk_is_nearly_full() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    fill_and_delete(&db);
    assert!(db.tidy(true).unwrap());
    let log = || fs::metadata(dir.path().join("store.db-wal")).unwrap().len();
    assert_eq!(log(), 0, "the log is cut");
    let mut steps = 1;
    while db.tidy(true).unwrap() {
        steps += 1;
    }
    assert!((62..70).contains(&steps), "{steps} steps of 64 of 4,000 pages");
    let size = fs::metadata(&db.file).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes are left of 32 MB");
}

#[test]
fn a_copy_is_cut_before_the_write_ahead_log_becomes_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path()).unwrap();
    let mut copy = db.freeze().unwrap().unwrap().unwrap();
    let mut piece = [0; 16];
    copy.read_exact(&mut piece).unwrap();
    for (pages, is_cut) in [(FROZEN_PAGES_MAX - 1, false), (FROZEN_PAGES_MAX, true)] {
        db.wal_pages.store(pages, Ordering::Relaxed);
        db.checkpoint_wal(false).unwrap();
        assert_eq!(db.wal_pages.load(Ordering::Relaxed) == 0, is_cut, "{pages}");
        assert_eq!(copy.read(&mut piece).is_err(), is_cut, "{pages}");
    }
    assert!(db.freeze().unwrap().is_some(), "the next copy does not wait for this one");
}
