//! Changes of a real directory as the watch reports them: new, deleted, ignored and repeated files.

use std::fs;

use notify::event::Flag;

use super::*;

#[tokio::test]
async fn changes_are_reported_in_every_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("src")).unwrap();
    fs::create_dir_all(root.join("target")).unwrap();
    let mut changes = Changes::of(root, &root.join("data")).unwrap();
    let mut told = async |path: &str| {
        fs::write(root.join(path), path).unwrap();
        timeout(Duration::from_secs(30), changes.next(true)).await.unwrap().unwrap()
    };
    assert_eq!(told("src/lib.rs").await, Path::new("src/lib.rs"));
    fs::write(root.join("target/a"), "a").unwrap();
    fs::create_dir(root.join("src/new")).unwrap();
    assert_eq!(told("Cargo.toml").await, Path::new("src/new"), "the first of them");
    assert_eq!(told("src/new/mod.rs").await, Path::new("src/new/mod.rs"));
}

#[tokio::test]
async fn a_directory_that_is_deleted_meanwhile_needs_no_watch() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let mut changes = Changes::of(&root, &root.join("data")).unwrap();
    changes.watch(&root.join("src/gone")).unwrap();
    fs::write(root.join("a.rs"), "").unwrap();
    let told = timeout(Duration::from_secs(30), changes.next(true)).await.unwrap().unwrap();
    assert_eq!(told, Path::new("a.rs"));

    // Without the project there is nothing to watch.
    dir.close().unwrap();
    let error = changes.watch(&root).unwrap_err().to_string();
    assert!(error.starts_with("cannot watch "), "{error}");
}

#[tokio::test]
async fn what_git_ignores_is_no_source() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let made = std::process::Command::new("git").args(["init", "-q"]).current_dir(root).status();
    assert!(made.unwrap().success());
    fs::write(root.join(".gitignore"), "/grain.csv\nflour/\n").unwrap();
    fs::create_dir(root.join("flour")).unwrap();
    let mut changes = Changes::of(root, &root.join("data")).unwrap();
    for path in ["grain.csv", "flour/a.txt", "dev.log", "sub.csv"] {
        fs::write(root.join(path), "x").unwrap();
        // Each in a batch of its own, as far as it is one.
        tokio::time::sleep(2 * QUIET).await;
    }
    let told = timeout(Duration::from_secs(30), changes.next(true)).await.unwrap().unwrap();
    assert_eq!(told, Path::new("sub.csv"));

    // The project itself is in an ignored directory.
    let inner = root.join("flour");
    let mut changes = Changes::of(&inner, &root.join("data")).unwrap();
    fs::write(inner.join("handler.py"), "x").unwrap();
    let told = timeout(Duration::from_secs(30), changes.next(true)).await.unwrap().unwrap();
    assert_eq!(told, Path::new("handler.py"));
}

#[tokio::test]
async fn a_file_starts_no_second_build_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let mut changes = Changes::of(root, &root.join("data")).unwrap();
    let mut told = async |paths: &[&str], had_effect| {
        for path in paths {
            fs::write(root.join(path), "x").unwrap();
            tokio::time::sleep(2 * QUIET).await;
        }
        timeout(Duration::from_secs(30), changes.next(had_effect)).await.unwrap().unwrap()
    };
    assert_eq!(told(&["out.txt"], true).await, Path::new("out.txt"));
    assert_eq!(told(&["out.txt", "lib.rs"], false).await, Path::new("lib.rs"));
    assert_eq!(told(&["lib.rs"], false).await, Path::new("lib.rs"), "it has code");
    assert_eq!(told(&["out.txt", "more.txt"], false).await, Path::new("more.txt"));
    assert_eq!(told(&["out.txt"], true).await, Path::new("out.txt"), "after an effect");
}

#[tokio::test]
async fn missing_events_are_a_change_of_the_project() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let mut changes = Changes::of(&root, &root.join("data")).unwrap();
    let (send, events) = unbounded_channel();
    changes.events = events;
    send.send(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))).unwrap();
    let told = timeout(Duration::from_secs(30), changes.next(true)).await.unwrap().unwrap();
    assert_eq!(told, root);
}
