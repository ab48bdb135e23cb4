//! Damage in a data directory: the host refuses to start, `check` lists the damage, and `repair`
//! saves the rest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gristmill_tests::recorded::{content, unpack};
use gristmill_tests::{PATIENCE, TestHost, command, guests};
use serde_json::json;

const JOBS: usize = 40;

fn run(arguments: &[&str], data_dir: &Path) -> Output {
    let mut command: Command = command();
    command.args(arguments).arg("--data-dir").arg(data_dir).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Flips a bit in the middle of the frames of the newest segment.
fn damage(data_dir: &Path) -> PathBuf {
    let entries = fs::read_dir(data_dir.join("journal")).unwrap();
    let file = entries.map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 4;
    fs::write(&file, bytes).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_refuses_damage_names_it_and_the_rest_can_be_repaired() {
    for is_orderly in [true, false] {
        let mut host = TestHost::start();
        host.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
        let mut jobs = Vec::new();
        for number in 0..JOBS {
            jobs.push(host.client().submit("parked", json!({ "number": number })).await);
        }
        let data_dir = host.data_dir();
        let refused = run(&["check"], &data_dir);
        assert!(text(&refused.stderr).contains("in use"), "{refused:?}");
        if is_orderly {
            host.ask_to_end();
            host.wait(PATIENCE);
        } else {
            host.kill9();
        }
        let whole = run(&["check"], &data_dir);
        assert!(whole.status.success(), "{whole:?}");
        let file = damage(&data_dir);
        for _ in 0..2 {
            let refused = run(&["serve", "--listen", "127.0.0.1:0"], &data_dir);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{said}");
            assert!(said.contains(file.to_str().unwrap()) && said.contains("at byte"), "{said}");
            assert!(said.contains("gristmill repair --data-dir"), "{said}");
        }
        let checked = run(&["check"], &data_dir);
        assert_eq!(checked.status.code(), Some(1), "{checked:?}");
        assert!(text(&checked.stdout).contains(file.to_str().unwrap()), "{checked:?}");

        let new = host.scratch().join("new");
        let repaired = run(&["repair", "--output", new.to_str().unwrap()], &data_dir);
        assert_eq!(repaired.status.code(), Some(1), "something is lost: {repaired:?}");
        let said = text(&repaired.stderr);
        assert!(said.contains("jobs saved"), "{said}");
        assert!(run(&["check"], &new).status.success());
        let again = run(&["repair", "--output", new.to_str().unwrap()], &data_dir);
        assert!(text(&again.stderr).contains("is not empty"), "{again:?}");

        fs::rename(&data_dir, host.scratch().join("damaged")).unwrap();
        fs::rename(&new, &data_dir).unwrap();
        host.start_again();
        let mut found = 0;
        for job in &jobs {
            found += usize::from(host.client().status("parked", job).await.status == 200);
        }
        assert!((JOBS - 2..JOBS).contains(&found), "{found} of {JOBS} jobs are left");
    }
}

/// The corrected command works, without any removal by hand.
#[test]
fn a_repair_with_wrong_arguments_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    unpack("version-1-closed.tar.gz", &data);
    let before = content(&data);
    let repair = |source: &Path, output: &Path, more: &[&str]| {
        let refused =
            run(&[&["repair", "--output", output.to_str().unwrap()], more].concat(), source);
        (refused.status.code(), text(&refused.stderr))
    };
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (source, sentence) in [(&empty, "is no data directory"), (&new, "there is no directory")] {
        let (code, said) = repair(source, &new, &[]);
        assert!(code == Some(1) && said.contains(sentence), "{said}");
        assert!(!new.exists(), "{said}");
    }
    std::os::unix::fs::symlink(&data, folder.path().join("link")).unwrap();
    let inside = ["data", "data/new", "data/volumes/a/b", "link/new", "empty/../data/new"];
    for output in inside.map(|name| folder.path().join(name)) {
        let (code, said) = repair(&data, &output, &[]);
        assert!(code == Some(1) && said.contains("is inside the damaged"), "{said}");
        assert!(content(&data) == before, "{}", output.display());
    }
    let key = folder.path().join("other.key");
    fs::write(&key, format!("{}\n", "ab".repeat(32))).unwrap();
    let (code, said) = repair(&data, &new, &["--secrets-key", key.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(!new.exists(), "{said}");
    let (code, said) = repair(&data, &new, &[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_handler_without_a_file_is_damage_and_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    unpack("version-1-closed.tar.gz", &data);
    let handler = fs::read_dir(data.join("components")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&handler).unwrap();
    for arguments in [&["check"][..], &["repair", "--output", new.to_str().unwrap()]] {
        let found = run(arguments, &data);
        let said = text(&found.stdout);
        assert_eq!(found.status.code(), Some(1), "{said}");
        let sentence = format!("`{}`: this handler is missing", handler.display());
        assert!(said.contains(&sentence) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}

#[test]
fn a_repair_refuses_a_directory_that_others_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    unpack("version-1-closed.tar.gz", &data);
    fs::create_dir(&new).unwrap();
    let permit = |mode| fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
    permit(0o755);
    let repair = ["repair", "--output", new.to_str().unwrap()];
    let refused = run(&repair, &data);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("has mode 0755"), "{said}");
    assert_eq!(content(&new).len(), 0);
    permit(0o700);
    let repaired = run(&repair, &data);
    assert!(repaired.status.success(), "{repaired:?}");
    let mode = fs::metadata(new.join("store.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

/// The page of the tables with the record of a component, whose name is its digest.
fn page_of_record(tables: &[u8], digest: &str) -> usize {
    const PAGE: usize = 8_192;
    let key = format!("component{digest}");
    let at = tables.windows(key.len()).position(|window| window == key.as_bytes());
    at.expect("the catalog has a record of the component") / PAGE * PAGE
}

/// A page of the tables has the whole catalog of a small host.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_without_any_record_keeps_the_jobs_and_the_files_of_handlers() {
    let mut host = TestHost::start();
    host.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
    let job = host.client().submit("parked", json!({ "number": 1 })).await;
    host.ask_to_end();
    host.wait(PATIENCE);
    let data_dir = host.data_dir();
    let handlers = fs::read_dir(data_dir.join("components")).unwrap();
    let files: Vec<_> = handlers.map(|entry| entry.unwrap().file_name()).collect();
    let [handler] = &files[..] else { panic!("{files:?}") };
    let digest = handler.to_str().unwrap().strip_suffix(".wasm").unwrap();
    let tables = data_dir.join("store.db");
    let mut bytes = fs::read(&tables).unwrap();
    let page = page_of_record(&bytes, digest);
    bytes[page] = 0x77;
    fs::write(&tables, bytes).unwrap();

    let new = host.scratch().join("new");
    let repaired = run(&["repair", "--output", new.to_str().unwrap()], &data_dir);
    let said = text(&repaired.stderr);
    let kept = new.join("unnamed-components").join(handler);
    assert!(said.contains("handlers that no record names (1)"), "{said}");
    assert!(said.contains(new.join("unnamed-components").to_str().unwrap()), "{said}");
    assert_eq!(fs::read(&kept).unwrap(), fs::read(guests::echo()).unwrap());
    fs::rename(&data_dir, host.scratch().join("damaged")).unwrap();
    fs::rename(&new, &data_dir).unwrap();
    host.start_again();
    let unnamed = data_dir.join("unnamed-components").join(handler);
    assert!(unnamed.exists());
    // The key is lost too: the start has created another one.
    let key = fs::read_to_string(data_dir.join("admin.key")).unwrap();
    let client = host.client().with_key(key.trim());
    assert_eq!(client.status("parked", &job).await.ok()["status"], "IN_QUEUE");

    // A further repair keeps the file, unless it is damaged.
    host.ask_to_end();
    host.wait(PATIENCE);
    let again = host.scratch().join("again");
    let repaired = run(&["repair", "--output", again.to_str().unwrap()], &data_dir);
    assert!(repaired.status.success(), "{repaired:?}");
    assert!(again.join("unnamed-components").join(handler).exists());
    fs::write(&unnamed, "damaged").unwrap();
    let checked = run(&["check"], &data_dir);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(text(&checked.stdout).contains(unnamed.to_str().unwrap()), "{checked:?}");
}

/// The placeholder that a repair adds for a lost record can be deleted with its jobs.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_without_a_record_is_refused_repaired_and_deleted() {
    let mut host = TestHost::start();
    for name in ["kept", "deleted"] {
        host.deploy(&guests::echo(), name, json!({ "workersMax": 0 })).await;
    }
    let kept = host.client().submit("kept", json!({})).await;
    let deleted = host.client().submit("deleted", json!({})).await;
    host.ask_to_end();
    host.wait(PATIENCE);
    let data_dir = host.data_dir();
    let tables = rusqlite::Connection::open(data_dir.join("store.db")).unwrap();
    let sql = "DELETE FROM catalog WHERE kind = 'endpoint' AND name = 'deleted'";
    assert_eq!(tables.execute(sql, ()).unwrap(), 1);
    drop(tables);

    let refused = run(&["serve", "--listen", "127.0.0.1:0"], &data_dir);
    let said = text(&refused.stderr);
    for part in ["endpoint `deleted` has 1 jobs", "no record in the catalog", "repair"] {
        assert!(said.contains(part), "{said}");
    }
    let new = host.scratch().join("new");
    let repaired = run(&["repair", "--output", new.to_str().unwrap()], &data_dir);
    assert!(text(&repaired.stdout).contains("belongs to the operator"), "{repaired:?}");
    fs::rename(&data_dir, host.scratch().join("damaged")).unwrap();
    fs::rename(&new, &data_dir).unwrap();
    host.start_again();
    let client = host.client();
    client.status("deleted", &deleted).await.ok();
    assert_eq!(client.delete("/v1/endpoints/deleted").await.status, 204);
    client.status("deleted", &deleted).await.refused(404);
    assert_eq!(client.status("kept", &kept).await.ok()["status"], "IN_QUEUE");
}
