//! The files of handlers: persistence, sizes, and paths outside. docs/internals/security.md
//! names these tests beside the attacks.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join_all;
use gristmill_core::id::VolumeId;
use gristmill_core::runtime::{AttemptEnd, Runtime as _};
use gristmill_tests::{eventually, guests};
use serde_json::{Value, json};

use super::bench::{Bench, Report, Run};

const GIB: u64 = 1 << 30;

/// What each file and directory counts.
const NODE_BYTES: u64 = 16 << 10;

/// What the size of a file is rounded up to.
const BLOCK_BYTES: u64 = 4 << 10;

/// The handler's error, or the host's for a handler that cannot know it.
const FULL: &str = "o space left on device";

/// A run on the volume `v` of one gigabyte.
fn on_volume<'a>(bench: &'a Bench, input: &Value) -> Run<'a> {
    let mut run = bench.run(&input.to_string());
    run.mount("v", 1);
    run
}

async fn file(bench: &Bench, what: &str, path: &str, more: &Value) -> Report {
    let mut job = json!({ "do": what, "path": format!("/workspace/{path}") });
    job.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    on_volume(bench, &json!({ "op": "file", "file": job })).perform().await
}

/// The `done` of its output.
fn number(report: &Report) -> u64 {
    let output: Value = serde_json::from_str(&report.output()).unwrap();
    output["done"].as_u64().unwrap()
}

/// Number of bytes of a new file that still fit.
async fn room(bench: &Bench) -> u64 {
    let filled = file(bench, "fill", "rest", &json!({ "bytes": 2 * GIB })).await;
    file(bench, "remove", "rest", &json!({})).await.output();
    number(&filled)
}

/// Fills the volume except for this many bytes: with a sparse file, which takes nothing on disk.
async fn leave(bench: &Bench, bytes: u64) {
    file(bench, "write", "hole", &json!({})).await.output();
    let size = GIB - NODE_BYTES - bytes;
    file(bench, "truncate", "hole", &json!({ "bytes": size })).await.output();
}

async fn attack(bench: &Bench, op: &str, more: &Value) -> Report {
    let mut input = json!({ "op": op, "path": "/workspace" });
    input.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    on_volume(bench, &input).perform().await
}

async fn done(bench: &Bench, op: &str, more: &Value) -> u64 {
    number(&attack(bench, op, more).await)
}

#[tokio::test]
async fn a_volume_persists_and_is_used_like_any_directory() {
    let bench = Bench::open(&guests::playground()).await;
    let none = json!({});
    let text = |text: &str| json!({ "text": text });
    file(&bench, "make_dir", "a/b", &none).await.output();
    file(&bench, "write", "a/b/file", &text("rye")).await.output();
    file(&bench, "append", "a/b/file", &text(" and oats")).await.output();
    assert_eq!(file(&bench, "read", "a/b/file", &none).await.output(), r#""rye and oats""#);
    let tail = file(&bench, "tail", "a/b/file", &json!({ "bytes": 4 })).await.output();
    assert_eq!(tail, r#""oats""#);
    file(&bench, "truncate", "a/b/file", &json!({ "bytes": 3 })).await.output();
    assert_eq!(file(&bench, "size", "a/b/file", &none).await.output(), r#"{"done":3}"#);
    let to = json!({ "to": "/workspace/moved" });
    file(&bench, "rename", "a/b/file", &to).await.output();
    for number in 0..150 {
        file(&bench, "write", &format!("a/{number:03}"), &none).await.output();
    }
    let listed = file(&bench, "list", "a", &none).await.output();
    let names = &serde_json::from_str::<Value>(&listed).unwrap()["names"];
    assert_eq!((names.as_array().unwrap().len(), &names[149]), (151, &json!("149")));
    file(&bench, "remove_dir", "a", &none).await.output();
    let listed = file(&bench, "list", "", &none).await.output();
    assert_eq!(listed, r#"{"names":["moved"]}"#);

    let bench = bench.again(&guests::playground()).await;
    assert_eq!(file(&bench, "read", "moved", &none).await.output(), r#""rye""#);
    let on_host = bench.data_dir().join("volumes/v/moved");
    assert_eq!(fs::read_to_string(on_host).unwrap(), "rye");
}

#[tokio::test]
async fn times_and_errors_are_those_of_posix() {
    let bench = Bench::open(&guests::playground()).await;
    let none = json!({});
    // The times of a new file are equal.
    let later = file(&bench, "new_times", "new", &none).await.output();
    assert_eq!(later, r#"{"done":0}"#);
    // A descriptor for reading is enough to set the times of one's own file.
    file(&bench, "touch", "new", &json!({ "bytes": 1_000_000_007 })).await.output();
    let on_host = bench.data_dir().join("volumes/v/new");
    let modified = fs::metadata(&on_host).unwrap().modified().unwrap();
    let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since, Duration::from_secs(1_000_000_007));
    // An existing file that is truncated has changed, also an empty one.
    file(&bench, "write", "new", &none).await.output();
    assert!(fs::metadata(&on_host).unwrap().modified().unwrap() > modified);
    // A file cannot have the name of a directory, whether there is one or not.
    file(&bench, "make_dir", "there", &none).await.output();
    for path in ["nowhere/", "there/", "new/"] {
        let error = file(&bench, "create_error", path, &none).await.output();
        assert!(error.contains("Is a directory"), "{path}: {error}");
    }
    assert!(!bench.data_dir().join("volumes/v/nowhere").exists());
}

#[tokio::test]
async fn a_handler_without_mounts_has_no_files_and_makes_none() {
    let bench = Bench::open(&guests::playground()).await;
    for path in ["/workspace/a", "/tmp/a", "a"] {
        let input = json!({ "op": "file", "file": { "do": "write", "path": path } });
        let error = bench.run(&input.to_string()).perform().await.error();
        assert!(error.starts_with(path), "{error}");
    }
    assert!(!bench.data_dir().join("volumes").exists());
    assert!(!bench.data_dir().join("scratch").exists());
}

#[tokio::test]
async fn the_size_holds_in_whatever_way_it_is_filled() {
    let bench = Bench::open(&guests::playground()).await;
    let all = GIB - NODE_BYTES;
    file(&bench, "write", "a", &json!({})).await.output();
    let error = file(&bench, "truncate", "a", &json!({ "bytes": all + 1 })).await.error();
    assert!(error.contains(FULL), "{error}");
    let error = file(&bench, "truncate", "a", &json!({ "bytes": u64::MAX })).await.error();
    assert!(!error.contains("host failed"), "{error}");
    file(&bench, "truncate", "a", &json!({ "bytes": all })).await.output();
    for (what, path) in [("append", "a"), ("write", "b"), ("make_dir", "c")] {
        let error = file(&bench, what, path, &json!({ "text": "x" })).await.error();
        assert!(error.contains(FULL), "{what}: {error}");
    }
    // Existing files can still be read, overwritten and removed.
    let tail = file(&bench, "tail", "a", &json!({ "bytes": 1 })).await.output();
    assert_eq!(tail, r#""\u0000""#);
    file(&bench, "truncate", "a", &json!({ "bytes": 1 })).await.output();
    file(&bench, "truncate", "a", &json!({ "bytes": all })).await.output();
    file(&bench, "remove", "a", &json!({})).await.output();

    let megabytes = 3 << 20;
    leave(&bench, megabytes + NODE_BYTES).await;
    assert_eq!(room(&bench).await, megabytes);
    let error = file(&bench, "truncate", "hole", &json!({ "bytes": GIB })).await.error();
    assert!(error.contains(FULL), "{error}");
    // A larger volume has more room at once.
    let input = json!({ "op": "file", "file": {
        "do": "truncate", "path": "/workspace/hole", "bytes": 3 * GIB / 2 } });
    let mut run = bench.run(&input.to_string());
    run.mount("v", 2);
    run.perform().await.output();
}

#[tokio::test]
async fn below_the_disks_reserve_no_hole_is_filled_and_blocks_are_overwritten_in_place() {
    let bench = Bench::open(&guests::playground()).await;
    let on_host = bench.data_dir().join("volumes/v/sparse");
    // One block of data, a hole, one block of data, and a hole that ends within a block.
    let (second, size) = (GIB / 4, GIB / 2 + 10);
    file(&bench, "write", "sparse", &json!({ "text": "rye" })).await.output();
    file(&bench, "truncate", "sparse", &json!({ "bytes": size })).await.output();
    let write_at = async |offset: u64, text: &str| {
        file(&bench, "write_at", "sparse", &json!({ "bytes": offset, "text": text })).await
    };
    write_at(second, "oats").await.output();
    fs::File::open(&on_host).unwrap().sync_all().unwrap();
    let blocks = || fs::metadata(&on_host).unwrap().blocks();
    let before = blocks();

    bench.disk_space.set(1, 2);
    let block = "x".repeat(BLOCK_BYTES as usize);
    let into_holes = [
        (BLOCK_BYTES, "x"),
        (second - 1, "xy"),
        (second - BLOCK_BYTES, block.as_str()),
        (1, block.as_str()),
        (GIB / 2, "x"),
        (size, "x"),
        (size + GIB / 8, "x"),
    ];
    for (offset, text) in into_holes {
        let error = write_at(offset, text).await.error();
        assert!(error.contains(FULL), "{offset}: {error}");
    }
    let error = file(&bench, "truncate", "sparse", &json!({ "bytes": GIB - NODE_BYTES })).await;
    assert!(error.error().contains(FULL));
    assert_eq!((blocks(), fs::metadata(&on_host).unwrap().len()), (before, size));

    for offset in [0, 1, BLOCK_BYTES - 1, second, second + 100] {
        write_at(offset, "x").await.output();
    }
    write_at(second, &block).await.output();
    assert_eq!(blocks(), before);
    // A file can grow within its last block, and shrink.
    file(&bench, "truncate", "sparse", &json!({ "bytes": second + 10 })).await.output();
    file(&bench, "append", "sparse", &json!({ "text": "x" })).await.output();
    assert_eq!(file(&bench, "size", "sparse", &json!({})).await.output(), r#"{"done":268435467}"#);
    assert_eq!(blocks(), before);

    bench.disk_space.set(9, 2);
    write_at(GIB / 8, "x").await.output();
    assert!(blocks() > before);
}

#[tokio::test]
async fn empty_files_and_directories_count() {
    let bench = Bench::open(&guests::hostile()).await;
    let nodes = 500;
    leave_hostile(&bench, nodes * NODE_BYTES);
    assert_eq!(done(&bench, "fill", &json!({ "bytes": 0 })).await, nodes);
    let error = attack(&bench, "deep", &json!({})).await.error();
    assert!(error.contains("insufficient-space"), "{error}");
    // The next start counts the existing files: the same files can be created again, and no others.
    let volume = bench.data_dir().join("volumes/v");
    fs::remove_file(volume.join(format!("{}7", "n".repeat(200)))).unwrap();
    let bench = bench.again(&guests::hostile()).await;
    assert_eq!(done(&bench, "fill", &json!({ "bytes": 0 })).await, nodes);
}

/// The same as [`leave`], for a handler that cannot; before its first job.
fn leave_hostile(bench: &Bench, bytes: u64) {
    let volume = bench.data_dir().join("volumes/v");
    fs::create_dir_all(&volume).unwrap();
    let hole = fs::File::create(volume.join("hole")).unwrap();
    hole.set_len(GIB - NODE_BYTES - bytes).unwrap();
}

#[tokio::test]
async fn removed_files_count_while_they_are_open() {
    let bench = Bench::open(&guests::hostile()).await;
    leave_hostile(&bench, 8 << 20);
    let bytes = 1 << 20;
    let taken = done(&bench, "orphans", &json!({ "bytes": bytes })).await;
    assert_eq!(taken, 7 * bytes, "each counts with its node");
    // And no longer than that; gigabytes are not freed at once.
    eventually("they are closed", async || {
        (done(&bench, "orphans", &json!({ "bytes": bytes })).await == taken).then_some(())
    })
    .await;
}

/// The count reads the metadata of all files, which may take minutes: it is no part of an attempt.
#[tokio::test]
async fn the_files_of_a_volume_are_counted_before_the_attempt() {
    let bench = Bench::open(&guests::playground()).await;
    let job = json!({ "do": "write", "path": "/workspace/file", "text": "rye" });
    let run = on_volume(&bench, &json!({ "op": "file", "file": job }));
    run.prepare().await;
    // A count in the attempt would see this file, and find the volume full.
    let other = fs::File::create(bench.data_dir().join("volumes/v/other")).unwrap();
    other.set_len(2 * GIB).unwrap();
    run.perform().await.output();
    // The next start counts it.
    let bench = bench.again(&guests::playground()).await;
    let full = file(&bench, "write", "further", &json!({ "text": "rye" })).await;
    assert!(full.error().contains(FULL), "{}", full.error());
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_on_one_volume_keep_its_size_together() {
    let bench = Bench::open(&guests::playground()).await;
    let megabytes = 8 << 20;
    let jobs = 4;
    leave(&bench, megabytes + jobs * NODE_BYTES).await;
    let fill = async |job: u64| {
        let more = json!({ "bytes": megabytes });
        number(&file(&bench, "fill", &format!("{job}"), &more).await)
    };
    let filled = join_all((0..jobs).map(fill)).await;
    println!("filled {filled:?}");
    let sum: u64 = filled.iter().sum();
    // A piece that does not fit is not written in part.
    assert!(sum <= megabytes && sum >= megabytes - jobs * (64 << 10), "{filled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counted_space_is_correct_after_any_order_of_changes() {
    let bench = Bench::open(&guests::hostile()).await;
    leave_hostile(&bench, 1 << 20);
    let rounds = json!({ "count": 300 });
    for report in join_all((0..4).map(|_| attack(&bench, "races", &rounds))).await {
        println!("refused for want of space: {}", report.output());
    }
    let volume = bench.data_dir().join("volumes/v");
    let left = fs::read_dir(volume).unwrap().map(|entry| {
        let bytes = entry.unwrap().metadata().unwrap().len();
        NODE_BYTES + bytes.next_multiple_of(BLOCK_BYTES)
    });
    let free = GIB - left.sum::<u64>();
    let expected = free / (PIECE + NODE_BYTES) * PIECE;
    println!("{free} bytes are free");
    eventually("what is counted is what is there", async || {
        (room_in_pieces(&bench).await == expected).then_some(())
    })
    .await;
    let bench = bench.again(&guests::hostile()).await;
    assert_eq!(room_in_pieces(&bench).await, expected, "counted again");
}

const PIECE: u64 = 16 << 10;

/// Number of bytes that fit, in removed files of one piece.
async fn room_in_pieces(bench: &Bench) -> u64 {
    done(bench, "orphans", &json!({ "bytes": PIECE })).await
}

#[tokio::test]
async fn nothing_leads_out_of_a_volume() {
    let bench = Bench::open(&guests::hostile()).await;
    let volume = bench.data_dir().join("volumes/v");
    fs::create_dir_all(&volume).unwrap();
    fs::write(volume.join("inside"), "x").unwrap();
    std::os::unix::fs::symlink("/etc", volume.join("link")).unwrap();
    let mut run = on_volume(&bench, &json!({ "op": "escape", "path": "/workspace" }));
    run.template.container_disk_gb = 1;
    assert_eq!(run.perform().await.output(), r#"{"seen":[]}"#);
    assert_eq!(fs::read(volume.join("inside")).unwrap(), b"x");
}

#[tokio::test]
async fn depth_and_open_files_end() {
    let bench = Bench::open(&guests::hostile()).await;
    assert_eq!(done(&bench, "deep", &json!({})).await, 64);
    let open = done(&bench, "open", &json!({})).await;
    assert!((100..256).contains(&open), "{open}");
    // They are closed with the job.
    assert_eq!(done(&bench, "open", &json!({})).await, open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_file_operations_is_stopped_and_delays_no_other_job() {
    let bench = Bench::open(&guests::hostile()).await;
    let flood = async || {
        let mut run = on_volume(&bench, &json!({ "op": "churn", "path": "/workspace" }));
        run.timeout = Duration::from_secs(1);
        let started = Instant::now();
        let report = run.perform().await;
        assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{:?}", report.end);
        started.elapsed()
    };
    let innocent = async {
        while bench.runtime().load().running == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let started = Instant::now();
        let mut run = bench.run(r#"{"op":"open","path":"/tmp"}"#);
        run.template.container_disk_gb = 1;
        run.perform().await.output();
        started.elapsed()
    };
    let (floods, innocent) = tokio::join!(join_all((0..3).map(|_| flood())), innocent);
    println!("floods ended after {floods:?}; beside them a job with 128 files took {innocent:?}");
    // This only excludes a hang, since the test's machine may be busy.
    assert!(floods.iter().all(|took| *took < Duration::from_secs(30)), "{floods:?}");
    assert_eq!(bench.running(), 0);
}

/// How many instances have scratch space on disk, of all processes.
fn scratch_dirs(data_dir: &Path) -> usize {
    let processes = fs::read_dir(data_dir.join("scratch")).into_iter().flatten();
    let dirs = processes.map(|process| fs::read_dir(process.unwrap().path()).unwrap().count());
    dirs.sum()
}

#[tokio::test]
async fn scratch_space_is_private_to_a_job_and_deleted_with_it() {
    let bench = Bench::open(&guests::playground()).await;
    let scratch = |what: &str, bytes: u64| {
        let job = json!({ "do": what, "path": "/tmp/a", "text": "rye", "bytes": bytes });
        let mut run = bench.run(&json!({ "op": "file", "file": job }).to_string());
        run.template.container_disk_gb = 1;
        run
    };
    scratch("write", 0).perform().await.output();
    let error = scratch("read", 0).perform().await.error();
    assert!(error.contains("No such file"), "{error}");
    let error = scratch("truncate", GIB).perform().await.error();
    assert!(error.contains("No such file"), "{error}");
    eventually("scratch space is wiped", async || {
        (scratch_dirs(bench.data_dir()) == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn leftovers_of_several_crashes_are_wiped_after_the_start() {
    let mut bench = Bench::open(&guests::playground()).await;
    let write = json!({ "do": "write", "path": "/tmp/a", "text": "rye" });
    let write = json!({ "op": "file", "file": write }).to_string();
    let left = ["scratch/1/0/deep", "scratch/2/0", "scratch/2/1", "volumes/v.removed/deep"];
    // Processes that end during the wipe, or before it, leave all of it to the next.
    for _ in 0..2 {
        for path in left {
            fs::create_dir_all(bench.data_dir().join(path)).unwrap();
        }
        bench = bench.again(&guests::playground()).await;
        assert!(left.iter().all(|path| bench.data_dir().join(path).exists()), "before the wipe");
        // The first job has a directory of its own beside them.
        let mut run = bench.run(&write);
        run.template.container_disk_gb = 1;
        run.perform().await.output();
    }
    let _wiping = bench.runtime().wipe_leftovers().unwrap();
    eventually("what was left is wiped", async || {
        let scratch = bench.data_dir().join("scratch");
        let is_wiped = left.iter().all(|path| !bench.data_dir().join(path).exists());
        (is_wiped && fs::read_dir(scratch).unwrap().count() == 1).then_some(())
    })
    .await;
    let mut run = bench.run(&write);
    run.template.container_disk_gb = 1;
    run.perform().await.output();
}

#[tokio::test]
async fn a_removed_volume_is_deleted_after_its_last_job() {
    let bench = Bench::open(&guests::playground()).await;
    file(&bench, "write", "a", &json!({ "text": "rye" })).await.output();
    let volume = VolumeId::new("v").unwrap();
    bench.runtime().volumes().remove_volume(&volume).await.unwrap();
    let volumes = bench.data_dir().join("volumes");
    eventually("the volume is gone", async || {
        fs::read_dir(&volumes).unwrap().next().is_none().then_some(())
    })
    .await;
    bench.runtime().volumes().remove_volume(&volume).await.unwrap();
    // A running job does not create it again.
    let error = file(&bench, "write", "a", &json!({})).await.error();
    assert!(error.starts_with("network volume `v` cannot be used"), "{error}");
    assert_eq!(fs::read_dir(&volumes).unwrap().count(), 0);
}
