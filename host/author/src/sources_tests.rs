//! Sources among other files: by path, by time, reports of tests, and a search that is cut short.

use std::time::Duration;

use super::*;

#[test]
fn sources_are_distinguished_from_build_outputs() {
    for path in ["src/lib.rs", "Cargo.toml", "gristmill.toml", "src/build/a.rs", "handler.ts"] {
        assert!(is_source(Path::new(path)), "{path}");
    }
    for path in [
        "build/a.wasm",
        "target/release/a",
        "a.wasm",
        "a.options.json",
        "node_modules/a/b.js",
        ".venv/bin/python",
        "vendor/gristmill-sdk/python/src/gristmill/__pycache__/a.pyc",
        ".git/index",
        "src/.lib.rs.swp",
        "src/lib.rs~",
        "src/#lib.rs#",
        "handler.py.bak",
        "handler.py.orig",
        "dev.log",
        "a.egg-info/PKG-INFO",
    ] {
        assert!(!is_source(Path::new(path)), "{path}");
    }
}

#[test]
fn a_source_is_found_by_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let write = |path: &str, seconds: u64| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        let changed = now + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(changed).unwrap();
    };
    let built = now + Duration::from_secs(1);
    write("src/lib.rs", 0);
    for path in ["gristmill.toml", "tests.json", "README.md", "target/a", "build/a.json", ".git/a"]
    {
        write(path, 99);
    }
    assert_eq!(newer_than(root, built), Search::AllOlder);
    let deep = Search::Newer("src/deep/mod.rs".into());
    for seconds in [2, 1] {
        write("src/deep/mod.rs", seconds);
        assert_eq!(newer_than(root, built), deep, "an equal time is not older");
    }
    assert_eq!(newer_than(root, built + Duration::from_nanos(1)), Search::AllOlder);
}

#[test]
fn a_report_of_the_tests_is_no_source() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let report = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"gristmill\">";
    write("out.xml", report);
    write("results", report);
    let built = SystemTime::UNIX_EPOCH;
    assert_eq!(newer_than(dir.path(), built), Search::AllOlder);
    write("grain.xml", "<?xml version=\"1.0\"?>\n<grain/>");
    assert_eq!(newer_than(dir.path(), built), Search::Newer("grain.xml".into()));
}

#[test]
fn a_search_that_cannot_visit_all_entries_does_not_count_the_others_as_older() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.rs", "b.rs", "c.rs"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    let changed = fs::metadata(dir.path().join("c.rs")).unwrap().modified().unwrap();
    let built = changed + Duration::from_secs(60);
    assert_eq!(newer_within(dir.path(), built, 3), Search::AllOlder);
    assert_eq!(newer_within(dir.path(), built, 2), Search::TooManyEntries);
    let built = changed - Duration::from_secs(60);
    let newer = newer_within(dir.path(), built, 1);
    assert!(matches!(newer, Search::Newer(_)), "{newer:?}");
}
