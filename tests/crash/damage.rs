//! Damage in a data directory: the host refuses to start, `check` lists the damage, and `repair`
//! saves the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
