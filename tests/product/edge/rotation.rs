//! `gristmill secrets rotate` on a working host.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gristmill_tests::{Client, PATIENCE, TestHost, disk_shim, eventually, guests};
use serde_json::json;

use crate::backup::{assert_done, back_up, gristmill, restore, said};

const TOKEN: &str = "token-of-the-endpoint";

fn keys(data_dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(data_dir.join("secrets.key")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A submission with a secret; some inputs are large enough to stay in the journal's files.
async fn submit(client: &Client, number: usize) -> String {
    let s3 = json!({
        "accessId": "id", "accessSecret": format!("secret-{number}"), "bucketName": "b",
        "endpointUrl": "https://s3.example",
    });
    let text = "grain ".repeat(if number.is_multiple_of(3) { 20_000 } else { 2 });
    let body = json!({ "input": { "op": "echo", "value": [number, text] }, "s3Config": s3 });
    client.post("/v2/parked/run", &body).await.ok()["id"].as_str().unwrap().to_owned()
}

async fn assert_secrets_are_readable(host: &TestHost) {
    let endpoint = host.client().get("/v1/endpoints/parked").await.ok();
    assert_eq!(endpoint["env"]["TOKEN"], TOKEN);
}

/// Runs all waiting jobs. A job whose settings cannot be decrypted would fail.
async fn assert_all_jobs_end(host: &TestHost, jobs: &[String]) {
    let client = host.client();
    client.patch("/v1/endpoints/parked", &json!({ "workersMax": 4 })).await.ok();
    for (number, job) in jobs.iter().enumerate() {
        let document = client.finished("parked", job).await;
        assert_eq!(document["status"], "COMPLETED", "{document}");
        assert_eq!(document["output"]["echo"][0], number);
    }
}

async fn start_with_a_job_of_each_kind() -> (TestHost, Vec<String>) {
    let host = TestHost::start();
    let settings = json!({ "workersMax": 0, "env": { "TOKEN": TOKEN } });
    host.deploy(&guests::playground(), "parked", settings).await;
    let client = host.client();
    let mut jobs = vec![];
    for number in 0..9 {
        jobs.push(submit(&client, number).await);
    }
    (host, jobs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_replaces_the_key_of_a_working_host() {
    let (mut host, mut jobs) = start_with_a_job_of_each_kind().await;
    let before = back_up(&host, &[]).await;
    let old_backup = host.scratch().join("old.tar");
    fs::rename(before, &old_backup).unwrap();
    let old = keys(&host.data_dir());
    assert_eq!(old.len(), 1);

    let manager = host.client().with_scopes(&["manage", "submit"]).await;
    manager.post_empty("/v1/secrets/rotate").await.refused(401);
    assert_eq!(keys(&host.data_dir()), old);

    let rotated = gristmill(&host, &["secrets", "rotate"]).await;
    assert_done(&rotated);
    let printed = String::from_utf8_lossy(&rotated.stdout).into_owned();
    assert!(printed.contains("s3Config of 9 jobs"), "{printed}");
    assert!(said(&rotated).contains("need the old key"), "{}", said(&rotated));
    let new = keys(&host.data_dir());
    assert!(new.len() == 1 && new != old);
    // The host writes its log apart from its answers.
    let says = "the key of stored secrets was replaced";
    eventually("the line in the log", async || host.log().contains(says).then_some(())).await;
    assert!(new.iter().chain(&old).all(|key| !host.log().contains(key)), "a key in the log");
    assert_secrets_are_readable(&host).await;
    jobs.push(submit(&host.client(), jobs.len()).await);

    // A link cannot be replaced, and nothing changes.
    let (file, elsewhere) = (host.data_dir().join("secrets.key"), host.scratch().join("key"));
    fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    let refused = host.client().post_empty("/v1/secrets/rotate").await.refused(400);
    assert!(refused.contains("symbolic link"), "{refused}");
    fs::rename(&elsewhere, &file).unwrap();
    assert_eq!(keys(&host.data_dir()), new);

    // The old key alone opens nothing any more.
    host.kill9();
    fs::write(&file, &old[0]).unwrap();
    let data_dir = host.data_dir();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir.to_str().unwrap()];
    let refused = gristmill(&host, &arguments).await;
    assert!(!refused.status.success() && said(&refused).contains("not the key"), "{refused:?}");
    fs::write(&file, &new[0]).unwrap();
    assert_done(&gristmill(&host, &["check", "--data-dir", data_dir.to_str().unwrap()]).await);
    host.start_again();
    assert_secrets_are_readable(&host).await;
    let new_backup = back_up(&host, &["--with-secrets-key"]).await;
    assert_all_jobs_end(&host, &jobs).await;

    // Each backup opens with the key of its time.
    for (backup, key) in [(&old_backup, Some(&old[0])), (&new_backup, None)] {
        host.kill9();
        fs::remove_dir_all(host.data_dir()).unwrap();
        assert_done(&restore(&host, backup, &host.data_dir()).await);
        if let Some(key) = key {
            fs::write(host.data_dir().join("secrets.key"), key).unwrap();
        }
        host.start_again();
        assert_secrets_are_readable(&host).await;
        assert_all_jobs_end(&host, &jobs[..9]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_killed_during_a_rotation_completes_it() {
    let (mut host, mut jobs) = start_with_a_job_of_each_kind().await;
    // Each sync takes 20 ms, so that a rotation lasts longer than the time until the kill, however
    // fast the disk of this machine is.
    let directory = host.data_dir().canonicalize().unwrap();
    let slow_disk = [
        ("LD_PRELOAD", disk_shim().as_os_str()),
        ("DISK_DIR", directory.as_os_str()),
        ("DISK_SYNC_MS", OsStr::new("20")),
    ];
    host.start_again_in(&slow_disk);
    let mut interrupted = 0;
    for round in 0..8 {
        let old = keys(&host.data_dir());
        let client = host.client();
        let rotating = tokio::spawn(async move {
            client.try_send(client.request(reqwest::Method::POST, "/v1/secrets/rotate")).await
        });
        if round % 2 == 0 {
            // The kill comes right after the file has the new key, or a little later.
            let begun = Instant::now();
            while keys(&host.data_dir()) == old {
                assert!(begun.elapsed() < PATIENCE, "the file gets no new key");
                tokio::task::yield_now().await;
            }
        }
        // The subject: a kill at another time in each round.
        tokio::time::sleep(Duration::from_millis(round * 2)).await;
        host.kill9();
        let _ = rotating.await;
        let left = keys(&host.data_dir());
        interrupted += usize::from(left.len() > 1);
        assert!(left == old || left.len() == 1 || left[1] == old[0], "{left:?} after {old:?}");
        host.start_again_in(&slow_disk);
        assert_secrets_are_readable(&host).await;
        let one = async || (keys(&host.data_dir()).len() == 1).then_some(());
        eventually("the end of the rotation", one).await;
        assert_eq!(keys(&host.data_dir())[0], left[0]);
        jobs.push(submit(&host.client(), jobs.len()).await);
    }
    assert!(interrupted > 0, "no kill was in time");
    assert_all_jobs_end(&host, &jobs).await;
}
