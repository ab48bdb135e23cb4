//! `gristmill volumes`, and how to give a volume to a handler.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::thread;

use gristmill_tests::{guests, shared_host};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::command::{on, run, run_args};

#[tokio::test]
async fn a_volume_is_made_shown_used_and_deleted() {
    let host = shared_host();
    let id = run(on(&host), "volumes create grain --size 1").succeeded();
    let id = id.line();
    let shown = run(on(&host), &format!("volumes get {id} --json")).succeeded().json();
    assert_eq!((&shown["name"], &shown["size"]), (&"grain".into(), &1.into()));
    let listed = run(on(&host), "volumes list").succeeded();
    let row = listed.stdout.lines().find(|line| line.starts_with(id)).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), [id, "1", "GB", "grain"]);

    let playground = guests::playground().display().to_string();
    let deploy = format!("deploy {playground} --name cli-volume");
    let mounted = format!("{deploy} --volume {id} --mount-path /grain --scratch-gb 1");
    run(on(&host), &mounted).succeeded();
    for path in ["/grain/a", "/tmp/a"] {
        let file = format!("{{\"do\":\"write\",\"path\":\"{path}\",\"text\":\"rye\"}}");
        let submit =
            format!("submit cli-volume --wait --input {{\"op\":\"file\",\"file\":{file}}}");
        run(on(&host), &submit).succeeded();
    }
    run(on(&host), &format!("volumes delete {id}")).failed(1, &["in use", "cli-volume"]);
    run(on(&host), &format!("{deploy} --volume=")).succeeded();
    run(on(&host), &format!("volumes delete {id}")).succeeded();
    run(on(&host), &format!("volumes get {id}")).failed(1, &["not found"]);
    run(on(&host), "volumes create --size 1").failed(2, &["<name>"]);
    run(on(&host), "volumes create grain --size 0").failed_with_any_code(&["from 1 to 4000"]);
    run(on(&host), &format!("{deploy} --mount-path a")).failed_with_any_code(&["absolute"]);
}

#[tokio::test]
async fn files_are_copied_to_a_volume_and_back() {
    let host = shared_host();
    let id = run(on(&host), "volumes create files --size 1").succeeded();
    let id = id.line();
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).display().to_string();
    fs::create_dir_all(path("models/deep")).unwrap();
    fs::write(path("models/a.bin"), vec![7; 700_000]).unwrap();
    fs::write(path("models/deep/b c"), "rye").unwrap();
    fs::create_dir_all(path("models/cache/empty")).unwrap();
    let cp = |from: &str, to: &str| run_args(on(&host), ["volumes", "cp", from, to], "");
    let cp_all = |from: &str, to: &str| run_args(on(&host), ["volumes", "cp", "-r", from, to], "");

    cp_all(&path("models"), &format!("{id}:")).succeeded();
    cp(&path("models/a.bin"), &format!("{id}:copy")).succeeded();
    cp(&path("models/a.bin"), &format!("{id}:sub/dir/")).succeeded();
    run_args(on(&host), ["volumes", "cp", "-", &format!("{id}:from-stdin")], "oats").succeeded();
    let listed = run(on(&host), &format!("volumes ls {id}")).succeeded();
    let names: Vec<_> =
        listed.stdout.lines().map(|line| line.split("  ").last().unwrap()).collect();
    assert_eq!(names, ["NAME", "copy", "from-stdin", "models/", "sub/"]);
    let json = run(on(&host), &format!("volumes ls {id}:models --json")).succeeded().json();
    assert_eq!((&json[0]["name"], &json[0]["size"]), (&"a.bin".into(), &700_000.into()));

    let shown = cp(&format!("{id}:from-stdin"), "-").succeeded();
    assert_eq!(shown.stdout, "oats");
    cp_all(&format!("{id}:models"), &path("back")).succeeded();
    assert_eq!(fs::read(path("back/a.bin")).unwrap(), vec![7; 700_000]);
    assert_eq!(fs::read_to_string(path("back/deep/b c")).unwrap(), "rye");
    assert_eq!(fs::read_dir(path("back/cache/empty")).unwrap().count(), 0);
    cp(&format!("{id}:sub/dir/a.bin"), &format!("{}/", path("new"))).succeeded();
    assert_eq!(fs::metadata(path("new/a.bin")).unwrap().len(), 700_000);
    // An existing file is replaced, and nothing else is left beside it.
    cp(&format!("{id}:from-stdin"), &path("new/a.bin")).succeeded();
    assert_eq!(fs::read_to_string(path("new/a.bin")).unwrap(), "oats");
    assert_eq!(fs::read_dir(path("new")).unwrap().count(), 1);

    for (from, to, words) in [
        (path("none"), format!("{id}:x"), "cannot read"),
        (format!("{id}:none"), path("x"), "no file or directory `none`"),
        (format!("{id}:models"), path("x"), "is a directory"),
        (path("models"), format!("{id}:x"), "--recursive"),
        (path("models/a.bin"), format!("{id}:models"), "is a directory"),
        (path("models/a.bin"), format!("{id}:a/../b"), "cannot have the part `..`"),
        (path("models/a.bin"), path("x"), "must be on a volume"),
        (format!("{id}:copy"), format!("{id}:x"), "must be on a volume"),
        ("-".to_owned(), format!("{id}:"), "name the file"),
        (path("models/a.bin"), "0123:x".to_owned(), "not found"),
    ] {
        cp(&from, &to).failed(1, &[words]);
    }
    assert!(!fs::exists(path("x")).unwrap());
    let rm = |path: &str| run(on(&host), &format!("volumes rm {id}:{path}"));
    rm("models").failed(1, &["not empty"]);
    rm("").failed(1, &["name a file"]);
    rm("copy").succeeded();
    rm("copy").failed(1, &["no file or directory"]);
    run(on(&host), &format!("volumes rm -r {id}:models")).succeeded();
    run(on(&host), &format!("volumes ls {id}:models")).failed(1, &["no file or directory"]);
}

#[tokio::test]
async fn a_copy_is_written_to_the_place_that_its_name_leads_to() {
    let host = shared_host();
    let id = run(on(&host), "volumes create places --size 1").succeeded();
    let id = id.line();
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name);
    let get = |to: &str| {
        let to = path(to).display().to_string();
        run_args(on(&host), ["volumes", "cp", &format!("{id}:oats"), &to], "")
    };
    run_args(on(&host), ["volumes", "cp", "-", &format!("{id}:oats")], "oats").succeeded();

    let pipe = path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    get("pipe").succeeded();
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(reader.join().unwrap(), "oats");

    fs::write(path("file"), "rye").unwrap();
    fs::set_permissions(path("file"), Permissions::from_mode(0o600)).unwrap();
    symlink("file", path("link")).unwrap();
    get("link").succeeded();
    assert!(path("link").is_symlink());
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "oats");
    assert_eq!(fs::metadata(path("file")).unwrap().permissions().mode() & 0o777, 0o600);
    symlink("nowhere", path("dangling")).unwrap();
    get("dangling").failed(1, &["dangling", "link to a path that does not exist"]);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 4);

    let root = format!("{id}:");
    let whole = |to: &str| run_args(on(&host), ["volumes", "cp", &root, to], "");
    whole("-").failed(1, &["name a file on the volume"]);
    whole(path("all").to_str().unwrap()).failed(1, &["is a directory", "--recursive"]);
}

#[tokio::test]
async fn the_deepest_directory_of_a_volume_is_copied() {
    let host = shared_host();
    let id = run(on(&host), "volumes create depths --size 1").succeeded();
    let root = format!("{}:", id.line());
    let here = tempfile::tempdir().unwrap();
    // The copy has the name of its source, and thus one level more.
    let levels = vec!["d"; 63].join("/");
    let [from, to] = ["from", "to"].map(|name| here.path().join(name));
    fs::create_dir_all(from.join(&levels)).unwrap();
    let [from, copy] = [&from, &to].map(|path| path.to_str().unwrap());
    run_args(on(&host), ["volumes", "cp", "-r", from, &root], "").succeeded();
    run_args(on(&host), ["volumes", "cp", "-r", &root, copy], "").succeeded();
    assert!(to.join("from").join(levels).is_dir());
}

#[tokio::test]
async fn a_recursive_copy_of_a_file_copies_the_file() {
    let host = shared_host();
    let id = run(on(&host), "volumes create one-file --size 1").succeeded();
    let file = format!("{}:grain/oats", id.line());
    run_args(on(&host), ["volumes", "cp", "-", &file], "oats").succeeded();
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let cp_all = |from: &str, to: &str| run_args(on(&host), ["volumes", "cp", "-r", from, to], "");

    cp_all(&file, &path("copy")).succeeded();
    assert_eq!(fs::read_to_string(path("copy")).unwrap(), "oats");
    cp_all(&file, &path("")).succeeded();
    assert_eq!(fs::read_to_string(path("oats")).unwrap(), "oats");
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    cp_all(&file, &path("pipe")).failed(1, &["is a device or a pipe", "without --recursive"]);
    cp_all(&format!("{file}/none"), &path("x")).failed(1, &["`grain/oats/none`"]);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 3);
}
