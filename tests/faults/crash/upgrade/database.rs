//! A host with a recorded database returns the recorded documents.

use std::fs;

use gristmill_tests::eventually;
use gristmill_tests::recorded::{member, unpack};
use reqwest::Method;

use super::Recorded;
use crate::postgres::{Database, run};

recorded! {
    a_database_of_version_1_is_opened_after_an_orderly_end: "postgres-1-closed";
    a_database_of_version_1_is_opened_after_a_crash: "postgres-1-killed";
}

async fn loses_nothing(archive: &str) {
    let Some(database) = Database::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [tables, key] = ["database.sql", "secrets.key"].map(|name| folder.path().join(name));
    for file in [&tables, &key] {
        fs::write(file, member(archive, file.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    let file = tables.to_str().unwrap();
    run(&database.server, "psql", &["-d", &database.name, "-v", "ON_ERROR_STOP=1", "-qf", file]);

    let url = database.url();
    let further = ["--database", &url, "--secrets-key", key.to_str().unwrap()];
    let further = further.map(str::to_owned);
    let recorded = Recorded::start_further(archive, &further, |data| unpack(archive, data)).await;
    // The host that was killed has not ended its session: its silence must last for a while.
    let client = recorded.host.client();
    eventually("the host to be active", async || {
        let answer = client.try_send(client.request(Method::GET, "/readyz")).await;
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    })
    .await;
    assert_eq!(database.sql("SELECT max(version) FROM schema_version"), "1");
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
