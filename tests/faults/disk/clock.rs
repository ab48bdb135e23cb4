//! A wall clock that jumps, before a start and while the host runs: no job is deleted before its
//! time.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gristmill_tests::{PATIENCE, TestHost, command, disk_shim, eventually, guests, set_clock_lead};
use serde_json::json;

const DAY_S: u64 = 86_400;

/// A part of the log line of a host that waits before it deletes jobs.
const WAITING: &str = "waiting up to 60 s for the clock";

/// A host whose wall clock is controlled by a file.
struct Jumping {
    host: TestHost,
    file: PathBuf,
}

impl Jumping {
    async fn start() -> Self {
        let host = TestHost::start();
        host.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
        let file = host.scratch().join("clock");
        let mut jumping = Self { host, file };
        jumping.set("0");
        jumping.start_again();
        jumping
    }

    /// The lead of the wall clock in seconds, and `+` when it is synchronised.
    fn set(&self, lead: &str) {
        set_clock_lead(&self.file, lead);
    }

    fn start_again(&mut self) {
        let environment =
            [("LD_PRELOAD", disk_shim().as_os_str()), ("CLOCK_FILE", self.file.as_os_str())];
        self.host.start_again_in(&environment);
    }

    async fn status(&self, job: &str) -> u16 {
        self.host.client().status("parked", job).await.status
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_while_the_host_runs_deletes_no_job() {
    let jumping = Jumping::start().await;
    let client = jumping.host.client();
    let job = client.submit("parked", json!({})).await;
    for lead in [10 * DAY_S as i64, -(10 * DAY_S as i64)] {
        jumping.set(&lead.to_string());
        // Another job expires after the jump, so the host has checked for expired jobs.
        let brief = client.submit("parked", json!({})).await;
        let two = client.metric("gristmill_jobs").await;
        assert_eq!(two, 2);
        client.status("parked", &format!("{brief}?ttl=500")).await.ok();
        eventually("the other job to expire", async || {
            (client.metric("gristmill_jobs").await == 1).then_some(())
        })
        .await;
        assert_eq!(jumping.status(&job).await, 200, "{lead}");
    }
    eventually("the jump to be reported, with the remedy", async || {
        let log = jumping.host.log();
        (log.contains("the machine's clock jumped") && log.contains("--accept-clock")).then_some(())
    })
    .await;
    jumping.set("0");
    eventually("the host follows again", async || {
        jumping.host.log().contains("clock is correct again").then_some(())
    })
    .await;
    assert_eq!(jumping.status(&job).await, 200);
    // A jump that the kernel confirms is followed.
    jumping.set(&format!("{}+", 10 * DAY_S));
    eventually("the job's time is over", async || {
        (jumping.status(&job).await == 404).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumped_before_a_start_is_waited_for_and_can_be_accepted() {
    let mut jumping = Jumping::start().await;
    let job = jumping.host.client().submit("parked", json!({})).await;
    jumping.host.kill9();
    // It is corrected while the host waits.
    jumping.set(&(10 * DAY_S).to_string());
    let (file, log) = (jumping.file.clone(), jumping.host.scratch().join("log"));
    let right = std::thread::spawn(move || {
        let waits = || String::from_utf8_lossy(&fs::read(&log).unwrap()).contains(WAITING);
        let begun = Instant::now();
        while !waits() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        set_clock_lead(&file, "0");
    });
    jumping.start_again();
    right.join().unwrap();
    assert_eq!(jumping.status(&job).await, 200, "nothing was deleted");
    let log = jumping.host.log();
    assert!(log.contains(WAITING), "{log}");
    jumping.host.kill9();
    // It is correct, as the operator confirms.
    jumping.set(&(10 * DAY_S).to_string());
    let mut host = command();
    host.args(["serve", "--listen", "127.0.0.1:0", "--accept-clock", "--data-dir"]);
    host.arg(jumping.host.data_dir()).env("LD_PRELOAD", disk_shim());
    host.env("CLOCK_FILE", OsStr::new(&jumping.file)).stdin(Stdio::null());
    let mut host = host.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(host.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    host.kill().unwrap();
    host.wait().unwrap();
    jumping.start_again();
    assert_eq!(jumping.status(&job).await, 404, "its time is over");
}
