//! Directories by which handlers lock files, as the SQLite of a guest does: they end with the
//! instance that created them, and with no other. docs/internals/security.md names these tests
//! beside the attacks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gristmill_core::deploy::volume::Volume;
use gristmill_core::id::{OwnerId, VolumeId};
use gristmill_core::runtime::AttemptEnd;
use gristmill_core::time::Timestamp;
use gristmill_tests::{eventually, guests};
use serde_json::json;

use super::bench::{Bench, Run};

/// Most such directories of an instance.
const LOCKS_MAX: usize = 32;

/// A run on the volume `v`, which acts on the directory at this path.
fn act<'a>(bench: &'a Bench, what: &str, path: &str, end: &str) -> Run<'a> {
    let job = json!({ "do": what, "path": format!("/workspace/{path}"), "text": end });
    on_volume(bench, &json!({ "op": "file", "file": job }).to_string())
}

fn on_volume<'a>(bench: &'a Bench, input: &str) -> Run<'a> {
    let mut run = bench.run(input);
    run.mount("v", 1);
    run
}

fn volume(bench: &Bench) -> PathBuf {
    bench.data_dir().join("volumes/v")
}

async fn is_released(path: &Path) {
    eventually("the lock is released", async || (!path.exists()).then_some(())).await;
}

async fn exists(path: &Path) {
    eventually("the lock is taken", async || path.exists().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_stopped_or_traps_leaves_no_lock() {
    let bench = Bench::open(&guests::playground()).await;
    let lock = volume(&bench).join("grain.db.lock");

    let mut run = act(&bench, "lock", "grain.db.lock", "spin");
    run.timeout = Duration::from_millis(300);
    assert!(matches!(run.perform().await.end, AttemptEnd::DeadlineReached));
    is_released(&lock).await;

    let run = act(&bench, "lock", "grain.db.lock", "spin");
    let cancel = async {
        exists(&lock).await;
        run.stop.cancel();
    };
    let (report, ()) = tokio::join!(run.perform(), cancel);
    assert!(matches!(report.end, AttemptEnd::Stopped), "{:?}", report.end);
    is_released(&lock).await;

    act(&bench, "lock", "grain.db.lock", "trap").perform().await.error();
    is_released(&lock).await;
    act(&bench, "lock", "grain.db.lock", "").perform().await.output();
    is_released(&lock).await;

    // The space is returned: the next process counts as much as this one.
    act(&bench, "make_dir", "deep/er", "").perform().await.output();
    let deep = volume(&bench).join("deep/er/a.lock");
    act(&bench, "lock", "deep/er/a.lock", "trap").perform().await.error();
    is_released(&deep).await;
}

#[tokio::test]
async fn only_empty_directories_with_the_name_of_a_lock_end_with_their_job() {
    let bench = Bench::open(&guests::playground()).await;
    for path in ["plain", "a.lock.d", "full.lock/inside", ".lockx"] {
        act(&bench, "make_dir", path, "").perform().await.output();
    }
    // Another name ends the lock.
    let input = |to: &str| {
        json!({ "op": "file", "file": {
            "do": "rename", "path": "/workspace/plain", "to": format!("/workspace/{to}") } })
    };
    on_volume(&bench, &input("renamed.lock").to_string()).perform().await.output();
    act(&bench, "lock", "last.lock", "").perform().await.output();
    is_released(&volume(&bench).join("last.lock")).await;
    for path in ["a.lock.d", "full.lock/inside", ".lockx", "renamed.lock"] {
        assert!(volume(&bench).join(path).is_dir(), "{path}");
    }
}

/// Inode numbers are used again at once, so neither the name nor the number of a directory
/// identifies its owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_another_job_has_taken_meanwhile_stays() {
    let bench = Bench::open(&guests::playground()).await;
    let lock = volume(&bench).join("a.lock");
    let first = act(&bench, "lock", "a.lock", "spin");
    let second = act(&bench, "lock", "a.lock", "spin");
    let (first_ended, has_first_ended) = tokio::sync::oneshot::channel();
    let first_runs = async {
        first.perform().await;
        first_ended.send(()).unwrap();
    };
    let others = async {
        exists(&lock).await;
        act(&bench, "unlock", "a.lock", "").perform().await.output();
        let check = async {
            exists(&lock).await;
            first.stop.cancel();
            has_first_ended.await.unwrap();
            // Releases run one after the other, so the first job's is over after this one.
            act(&bench, "lock", "b.lock", "").perform().await.output();
            is_released(&volume(&bench).join("b.lock")).await;
            let is_kept = lock.exists();
            second.stop.cancel();
            is_kept
        };
        tokio::join!(second.perform(), check).1
    };
    let ((), is_kept) = tokio::join!(first_runs, others);
    assert!(is_kept, "the second job's lock was removed with the first job");
    is_released(&lock).await;
}

#[tokio::test]
async fn an_instance_that_is_used_again_keeps_its_locks_until_it_ends() {
    let bench = Bench::open(&guests::playground()).await;
    let lock = volume(&bench).join("a.lock");
    let mut run = act(&bench, "lock", "a.lock", "");
    run.endpoint.settings.reuse.max_jobs = 2;
    let deployment = run.deployment();
    run.perform_on(&deployment).await.output();
    assert!(lock.exists(), "the idle instance may have a transaction open");
    // The instance cannot take its own lock twice, and ends after this job.
    run.perform_on(&deployment).await.error();
    is_released(&lock).await;
}

#[tokio::test]
async fn the_locks_of_a_process_that_was_killed_are_removed_by_the_next() {
    let mut bench = Bench::open(&guests::playground()).await;
    act(&bench, "make_dir", "deep", "").perform().await.output();
    // As `kill -9` leaves them: with the mark, and once with content.
    let marked = |path: &str| {
        let path = volume(&bench).join(path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1700)).unwrap();
    };
    ["a.lock", "deep/b.lock", "full.lock", "other"].into_iter().for_each(marked);
    fs::write(volume(&bench).join("full.lock/inside"), "rye").unwrap();
    fs::create_dir(volume(&bench).join("unmarked.lock")).unwrap();
    bench = bench.again(&guests::playground()).await;
    let listed = act(&bench, "list", "", "").perform().await.output();
    assert_eq!(listed, r#"{"names":["deep","full.lock","other","unmarked.lock"]}"#);
    assert_eq!(fs::read_dir(volume(&bench).join("deep")).unwrap().count(), 0);
}

/// As two shells with `gristmill run --volume` have.
#[tokio::test]
async fn a_directory_that_another_process_uses_keeps_its_locks() {
    let bench = Bench::open(&guests::playground()).await;
    fs::create_dir_all(volume(&bench).join("a.lock")).unwrap();
    fs::set_permissions(volume(&bench).join("a.lock"), fs::Permissions::from_mode(0o1700)).unwrap();
    let other = fs::File::open(volume(&bench)).unwrap();
    other.lock_shared().unwrap();
    assert_eq!(act(&bench, "list", "", "").perform().await.output(), r#"{"names":["a.lock"]}"#);
}

/// The host closes the directories of volumes beyond some hundred, of those that are not in use.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_shows_its_volume_as_used_while_hundreds_of_others_are_used() {
    let bench = Bench::open(&guests::playground()).await;
    let lock = volume(&bench).join("a.lock");
    let run = act(&bench, "lock", "a.lock", "spin");
    let others = async {
        exists(&lock).await;
        for number in 0..300 {
            let other = Volume {
                id: VolumeId::new(&format!("other{number}")).unwrap(),
                owner: OwnerId::operator(),
                name: "other".to_owned(),
                size_gb: 1,
                created_at: Timestamp::from_millis(0),
            };
            let listed = bench.runtime().volumes().list_files(&other, None, None, 1).await.unwrap();
            assert_eq!(listed, []);
        }
        let of_another_process = fs::File::open(volume(&bench)).unwrap();
        let is_shown = of_another_process.try_lock().is_err();
        run.stop.cancel();
        is_shown
    };
    let (_, is_shown) = tokio::join!(run.perform(), others);
    assert!(is_shown, "another process would remove the job's lock");
    is_released(&lock).await;
}

#[tokio::test]
async fn a_job_with_many_locks_has_a_bounded_number_of_them() {
    let bench = Bench::open(&guests::hostile()).await;
    let count = 1_000;
    let input = json!({ "op": "locks", "path": "/workspace", "count": count }).to_string();
    on_volume(&bench, &input).perform().await.output();
    let left = || fs::read_dir(volume(&bench)).unwrap().count();
    eventually("the locks are released", async || (left() == count - LOCKS_MAX).then_some(()))
        .await;
    // Its descriptors are free again.
    let open = on_volume(&bench, r#"{"op":"open","path":"/workspace"}"#).perform().await.output();
    assert!(!open.contains(":0"), "{open}");
}
