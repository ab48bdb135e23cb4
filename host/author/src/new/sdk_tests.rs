//! A copy of the SDK that is renewed, and what someone has changed in it.

use super::*;

fn file(path: &str, content: &'static str) -> File {
    File { path: path.to_owned(), content: content.as_bytes().into() }
}

/// An SDK of these files, with its list.
fn sdk(files: &[(&str, &'static str)]) -> Vec<File> {
    let mut sdk: Vec<_> = files.iter().map(|(path, content)| file(path, content)).collect();
    let line = |file: &File| format!("{}  {}\n", hash(&file.content), file.path);
    let sums: String = sdk.iter().map(line).collect();
    sdk.push(File { path: SUMS.to_owned(), content: sums.into_bytes().into() });
    sdk
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_copy_becomes_that_of_this_program() {
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &str| fs::read_to_string(dir.path().join(path)).ok();
    let old = sdk(&[("a/same", "1"), ("a/other", "1"), ("gone", "1")]);
    let all =
        Changes { written: old.iter().map(|it| it.path.clone()).collect(), ..Changes::default() };
    write(dir.path(), &old, &all).unwrap();
    let none = Changes { has_list: true, ..Changes::default() };
    assert_eq!(changes(dir.path(), &old).unwrap(), none);
    fs::write(dir.path().join("mine"), "mine").unwrap();

    let new = sdk(&[("a/same", "1"), ("a/other", "2"), ("more/new", "2")]);
    let found = changes(dir.path(), &new).unwrap();
    assert_eq!(found.written, names(&["a/other", "more/new", SUMS]));
    assert_eq!((found.removed.clone(), &found.by_hand), (names(&["gone"]), &vec![]));
    write(dir.path(), &new, &found).unwrap();
    assert_eq!(changes(dir.path(), &new).unwrap(), none);
    assert_eq!((read("a/other"), read("gone")), (Some("2".to_owned()), None));
    assert_eq!(read("mine").as_deref(), Some("mine"), "it is no part of the copy");
}

#[test]
fn files_that_were_changed_by_hand_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let old = sdk(&[("edited", "1"), ("removed", "1"), ("gone", "1"), ("new-already", "1")]);
    for File { path, content } in &old {
        files::write(&dir.path().join(path), content).unwrap();
    }
    let new = sdk(&[("edited", "2"), ("removed", "2"), ("new-already", "2"), ("own", "2")]);
    fs::write(dir.path().join("edited"), "mine").unwrap();
    fs::write(dir.path().join("gone"), "mine").unwrap();
    fs::write(dir.path().join("own"), "mine").unwrap();
    fs::write(dir.path().join("new-already"), "2").unwrap();
    fs::remove_file(dir.path().join("removed")).unwrap();
    let found = changes(dir.path(), &new).unwrap();
    assert_eq!(found.by_hand, names(&["edited", "removed", "own", "gone"]));

    // Without the list each file may be the user's.
    fs::remove_file(dir.path().join(SUMS)).unwrap();
    let found = changes(dir.path(), &new).unwrap();
    assert_eq!(found.by_hand, names(&["edited", "own"]));
    assert!(
        !found.has_list && found.removed.is_empty(),
        "nothing says that a file belongs to the copy"
    );
}

#[test]
fn a_long_list_is_cut() {
    let files: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    assert_eq!(listed(&files[..8]), "0, 1, 2, 3, 4, 5, 6, 7");
    assert_eq!(listed(&files), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

#[test]
fn no_line_of_the_list_leads_out_of_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let vendor = dir.path().join("vendor");
    let outside = dir.path().join("outside");
    fs::create_dir(&vendor).unwrap();
    fs::write(&outside, "mine").unwrap();
    let line = format!("{0}  ../outside\n{0}  {1}\n", hash(b"mine"), outside.display());
    fs::write(vendor.join(SUMS), line).unwrap();
    assert_eq!(changes(&vendor, &sdk(&[])).unwrap().removed, names(&[]));
}
