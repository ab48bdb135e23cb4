//! Recorded data directories are imported into a database, and a host with that database returns
//! the recorded documents.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use gristmill_tests::command;
use gristmill_tests::recorded::{content, unpack};
use serde_json::Value;

use super::Recorded;
use crate::postgres::Database;

recorded! {
    a_directory_of_version_1_is_imported_after_an_orderly_end: "version-1-closed";
    a_directory_of_version_1_is_imported_after_a_crash: "version-1-killed";
}

async fn loses_nothing(archive: &str) {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("data");
    unpack(archive, &source);
    let before = content(&source);
    let imported = import(&source, &database);
    let said = String::from_utf8(imported.stderr).unwrap();
    assert!(imported.status.success(), "{archive}: {said}");
    let counts: Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert!(counts["jobs"].as_u64().unwrap() > 50, "{counts}");
    assert!(counts["pendingWebhooks"].as_u64().unwrap() > 0, "{counts}");
    let mut after = content(&source);
    assert!(after.remove(Path::new(".imported")).is_some(), "a mark against a start");
    assert!(after == before, "the import changed the directory");
    // An import does not mix data.
    let again = import(&source, &database);
    let said = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(1), "{said}");
    let sentence = format!("the database is not empty, it has {} jobs", counts["jobs"]);
    assert!(said.contains(&sentence), "{said}");

    let key = source.join("secrets.key");
    let url = database.url();
    let further = ["--database", &url, "--secrets-key", key.to_str().unwrap()];
    let recorded = Recorded::start_further(archive, &further.map(str::to_owned), |data| {
        // The rest is in the database; volumes are files.
        DirBuilder::new().mode(0o700).create(data).unwrap();
        fs::copy(source.join("admin.key"), data.join("admin.key")).unwrap();
        copy_dir(&source.join("volumes"), data);
    })
    .await;
    assert_eq!(recorded.host.ready()["role"], "active");
    recorded.has_same_documents().await;
    recorded.submissions_are_remembered().await;
    recorded.streams_are_delivered_from_their_start().await;
    recorded.secrets_and_files_are_used().await;
    recorded.failed_jobs_have_their_inputs().await;
    recorded.waiting_jobs_run().await;
    recorded.pending_webhooks_arrive().await;
    recorded.credentials_are_sent().await;
    let log = recorded.host.log();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    drop(recorded);
}

fn import(source: &Path, database: &Database) -> Output {
    let mut import = command();
    import.args(["import", "--json", "--database", &database.url(), "--data-dir"]).arg(source);
    import.stdin(Stdio::null()).output().unwrap()
}

/// Copies a directory into another one.
fn copy_dir(from: &Path, into: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(into).status().unwrap().success());
}
