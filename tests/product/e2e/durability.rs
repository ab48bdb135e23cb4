//! Submissions share their fsync, which makes acknowledged jobs cheap.

use std::ffi::OsStr;

use futures::future::join_all;
use gristmill_tests::{TestHost, disk_shim, guests};
use serde_json::json;

#[tokio::test]
async fn concurrent_submissions_are_committed_in_groups() {
    const SUBMITTERS: u32 = 64;
    const EACH: u32 = 12; // in all below the rate limit of /run
    let mut host = TestHost::start();
    // Each sync takes 20 ms, so that many submissions arrive meanwhile, however fast the disk of
    // this machine is.
    let directory = host.data_dir().canonicalize().unwrap();
    host.start_again_in(&[
        ("LD_PRELOAD", disk_shim().as_os_str()),
        ("DISK_DIR", directory.as_os_str()),
        ("DISK_SYNC_MS", OsStr::new("20")),
    ]);
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "grouped", json!({ "workersMax": 0 })).await;
    let before = client.metric("gristmill_store_commits_total").await;
    let begun = std::time::Instant::now();
    let submitter = async || {
        for i in 0..EACH {
            client.submit(&endpoint, json!({ "i": i })).await;
        }
    };
    join_all((0..SUBMITTERS).map(|_| submitter())).await;
    let took = begun.elapsed();
    let commits = client.metric("gristmill_store_commits_total").await - before;
    let jobs = u64::from(SUBMITTERS * EACH);
    println!(
        "{jobs} jobs in {took:?} took {commits} commits; fsyncs per job: {:.3}",
        commits as f64 / jobs as f64
    );
    assert!(commits * 4 < jobs, "{commits} commits for {jobs} jobs");
    assert_eq!(client.health(&endpoint).await["jobs"]["inQueue"], SUBMITTERS * EACH);
}
