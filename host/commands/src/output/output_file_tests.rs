//! Output files in real directories: completion, links, permissions, and paths that are refused.

use std::io::Write as _;

use super::*;

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut new = OutputFile::begin(path, 0o666)?.like_older()?;
    new.file().write_all(text.as_bytes())?;
    new.complete()
}

#[test]
fn a_file_appears_once_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut first = OutputFile::begin(&path, 0o600).unwrap();
    let mut second = OutputFile::begin(&path, 0o600).unwrap();
    first.file().write_all(b"rye").unwrap();
    second.file().write_all(b"oats").unwrap();
    assert!(!path.exists());
    second.complete().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "oats");
    first.complete_durably().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "rye");
    drop(OutputFile::begin(&path, 0o600).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_in_which_no_file_can_be_created_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let said = OutputFile::begin(&missing.join("a"), 0o600).unwrap_err().to_string();
    assert_eq!(said, format!("the directory {} does not exist", missing.display()));
    fs::write(&missing, "").unwrap();
    let said = OutputFile::begin(&missing.join("a"), 0o600).unwrap_err().to_string();
    assert!(said.contains(missing.to_str().unwrap()) && !said.contains(".gristmill-"), "{said}");
}

#[test]
fn links_and_permissions_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&file, "rye").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("a", &link).unwrap();
    write(&link, "oats").unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "oats");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & MODE_BITS, 0o640);

    fs::remove_file(&file).unwrap();
    let error = write(&link, "oats").unwrap_err().to_string();
    assert!(error.contains("link to a path that does not exist"), "{error}");
    assert!(link.is_symlink());
}

#[test]
fn only_files_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(write(dir.path(), "a").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = write(&socket, "a").unwrap_err().to_string();
    assert!(error.contains("not a file"), "{error}");

    // Its name leads to a file.
    let file = File::create(dir.path().join("log")).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), &link).unwrap();
    for path in [format!("/dev/fd/{number}").into(), link] {
        let error = write(&path, "a").unwrap_err().to_string();
        assert!(error.contains("an open file of a process"), "{error}");
    }
}
