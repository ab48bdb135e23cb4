//! A real full disk: a small tmpfs, in a mount namespace of the test's own thread. If this process
//! may not mount, the tests fail; with `GRISTMILL_WITHOUT_NAMESPACES=1` they print this and pass.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use gristmill_tests::{
    Answer, Client, PATIENCE, TestHost, command, eventually, guests, skip_without_namespaces,
};
use serde_json::{Value, json};

const DISK_MIB: u64 = 192;

const INPUT_BYTES: usize = 4 << 20;

/// More than twice the time between two looks of the host at its disk, 250 ms.
const NEXT_LOOK: Duration = Duration::from_millis(600);

/// Less than the ballast of a host on such a disk.
const BALLAST_BYTES: u64 = 8 << 20;

/// Gives this thread, and the processes that it starts, separate mounts. False without the
/// permission.
fn has_own_mounts() -> bool {
    // SAFETY: the call takes only numbers, and does not change this process's memory.
    #[allow(unsafe_code, reason = "the standard library has no such call")]
    let is_apart = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    is_apart && mount(&["--make-rprivate", "/"])
}

fn mount(arguments: &[&str]) -> bool {
    Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
}

/// Runs `test` with a host whose data directory is a disk of [`DISK_MIB`].
fn on_a_small_disk(
    arguments: &'static [&str],
    test: impl AsyncFnOnce(&mut TestHost) + Send + 'static,
) {
    let run = move || {
        if !has_own_mounts() {
            return skip_without_namespaces("this process may not mount a disk of its own");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut host = TestHost::start_prepared(arguments, |data| {
            fs::create_dir(data).unwrap();
            let size = format!("size={DISK_MIB}m,mode=700");
            assert!(mount(&["-t", "tmpfs", "-o", &size, "none", data.to_str().unwrap()]));
        });
        let data = host.data_dir();
        runtime.block_on(test(&mut host));
        host.kill9();
        let _ = Command::new("umount").arg("-l").arg(&data).status();
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Uses all free space.
fn fill(dir: &Path) {
    let mut filler = File::create(dir.join("filler")).unwrap();
    let mut piece = 1 << 20;
    while piece > 0 {
        if filler.write(&vec![7; piece]).is_err() {
            piece /= 2;
        }
    }
}

/// Frees the ballast's space again: the host may have freed it before [`fill`] had ended.
fn leave_room(dir: &Path) {
    let filler = File::options().write(true).open(dir.join("filler")).unwrap();
    let bytes = filler.metadata().unwrap().len();
    filler.set_len(bytes.saturating_sub(BALLAST_BYTES)).unwrap();
}

fn empty(dir: &Path) {
    fs::remove_file(dir.join("filler")).unwrap();
}

fn is_disk_full(answer: &Answer) -> bool {
    let is_full = answer.status == 503 && answer.json()["code"] == "disk_full";
    assert!(!is_full || answer.header("retry-after").is_some(), "{answer:?}");
    is_full
}

fn input(number: usize) -> Value {
    json!({ "number": number, "text": "x".repeat(INPUT_BYTES) })
}

/// Submits large inputs to a paused endpoint until they are refused, and still are after a further
/// look at the disk: the bytes that were granted since the last look may take less space there.
async fn submit_until_full(host: &TestHost) -> Vec<String> {
    let client = host.client();
    let mut jobs = Vec::new();
    let mut was_refused = false;
    loop {
        let answer = client.run("paused", input(jobs.len())).await;
        if is_disk_full(&answer) {
            if was_refused {
                return jobs;
            }
            was_refused = true;
            tokio::time::sleep(NEXT_LOOK).await;
            continue;
        }
        was_refused = false;
        jobs.push(answer.ok()["id"].as_str().unwrap().to_owned());
        assert!(jobs.len() * INPUT_BYTES < (DISK_MIB << 20) as usize, "nothing was refused");
    }
}

/// A disk that its jobs fill: new work is refused before the disk is full, everything else works, a
/// start on the full disk works, and new work is accepted again once there is room.
#[test]
fn a_host_survives_a_full_disk_and_recovers() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        host.deploy(&guests::echo(), "paused", json!({ "workersMax": 0 })).await;
        host.deploy(&guests::echo(), "works", json!({ "workersMax": 1 })).await;
        let component = fs::read(guests::word_count()).unwrap();
        let mut jobs = submit_until_full(host).await;
        assert!(jobs.len() > 10, "only {} jobs", jobs.len());
        let client = host.client();
        assert!(is_disk_full(&client.run("paused", input(0)).await));
        // Small work may still have the room that large work lacks.
        eventually("an upload is refused", async || {
            client.run("paused", json!({ "text": "x".repeat(100_000) })).await;
            is_disk_full(&host.upload("words:latest", component.clone()).await).then_some(())
        })
        .await;
        let cancelled = jobs.pop().unwrap();
        assert_eq!(client.cancel("paused", &cancelled).await.ok()["status"], "CANCELLED");
        assert_eq!(client.status("paused", &jobs[0]).await.ok()["status"], "IN_QUEUE");

        // Another program uses the rest, with and without a running host.
        fill(&host.data_dir());
        eventually("the ballast is freed", async || {
            (!host.data_dir().join("ballast").exists()).then_some(())
        })
        .await;
        leave_room(&host.data_dir());
        let cancelled = jobs.pop().unwrap();
        assert_eq!(client.cancel("paused", &cancelled).await.ok()["status"], "CANCELLED");
        host.start_again();
        let client = host.client();
        assert_eq!(client.status("paused", &jobs[0]).await.ok()["status"], "IN_QUEUE");
        // The cancelled jobs have made room meanwhile.
        fill(&host.data_dir());
        leave_room(&host.data_dir());
        eventually("new work is refused", async || {
            is_disk_full(&client.run("works", json!({})).await).then_some(())
        })
        .await;

        let kept = jobs.split_off(jobs.len() - 2);
        for job in &jobs {
            client.cancel("paused", job).await.ok();
        }
        empty(&host.data_dir());
        takes_new_work(&client).await;
        assert!(host.upload("words:latest", component).await.status < 300);
        client.patch("/v1/endpoints/paused", &json!({ "workersMax": 1 })).await.ok();
        for job in &kept {
            assert_eq!(client.finished("paused", job).await["status"], "COMPLETED");
        }
        assert!(!host.log().contains("panicked"), "{}", host.log());
    });
}

/// Inputs that the checkpoint moves to the tables.
const SMALL_INPUT_BYTES: usize = 12_000;

/// Jobs that fill the disk with small inputs: a purge, and nothing else, makes room, although these
/// inputs are in the journal and in the tables.
#[test]
fn a_purge_of_small_jobs_makes_room_without_a_restart() {
    on_a_small_disk(&["--journal-mib", "64"], async |host: &mut TestHost| {
        let unlimited = json!({ "run": { "callsPer10s": 1_000_000, "concurrent": 1_000 } });
        let settings = json!({ "workersMax": 0, "rateLimits": unlimited });
        host.deploy(&guests::echo(), "paused", settings).await;
        host.deploy(&guests::echo(), "works", json!({ "workersMax": 1 })).await;
        let client = host.client();
        let small = json!({ "text": "x".repeat(SMALL_INPUT_BYTES) });
        // Returns the number of accepted submissions, and whether some were refused.
        let submit = async || {
            let submissions = (0..64).map(|_| client.run("paused", small.clone()));
            let answers = futures::future::join_all(submissions).await;
            let refused = answers.iter().filter(|answer| is_disk_full(answer)).count();
            let accepted = answers.iter().filter(|answer| answer.status == 200).count();
            assert_eq!(accepted + refused, answers.len(), "{answers:?}");
            (accepted, refused > 0)
        };
        let (mut accepted, mut refused) = (0_usize, 0);
        // Several looks at the disk, in which the host moves the journal to the tables.
        while refused < 8 {
            let (more, is_refused) = submit().await;
            accepted += more;
            assert!(
                accepted * SMALL_INPUT_BYTES < (DISK_MIB << 20) as usize,
                "nothing was refused"
            );
            if is_refused {
                refused += 1;
                tokio::time::sleep(NEXT_LOOK).await;
            }
        }
        println!("{accepted} jobs of {SMALL_INPUT_BYTES} bytes on a disk of {DISK_MIB} MiB");
        assert!(accepted > 2_000, "{accepted} jobs");
        assert_eq!(client.purge("paused").await.ok()["removed"], accepted);
        takes_new_work(&client).await;
        // About as much as before.
        let mut again = 0;
        while again < accepted / 2 {
            let (more, is_refused) = submit().await;
            again += more;
            if is_refused {
                tokio::time::sleep(NEXT_LOOK).await;
            }
        }
        assert!(!host.log().contains("waits for space"), "{}", host.log());
        host.kill9();
        host.start_again();
    });
}

/// Streams that would fill the disk end or wait before its last byte, and their endpoint can be
/// deleted, which makes room.
#[test]
fn streams_leave_space_for_their_deletion() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        host.deploy(&guests::hostile(), "streams", json!({ "workersMax": 2 })).await;
        host.deploy(&guests::echo(), "works", json!({ "workersMax": 1 })).await;
        let client = host.client();
        let chunks = 3 * (DISK_MIB << 20) / 60_000;
        let input = json!({ "op": "emit", "count": chunks, "bytes": 60_000 });
        let jobs =
            [client.submit("streams", input.clone()).await, client.submit("streams", input).await];
        eventually("the disk is full", async || {
            is_disk_full(&client.run("works", json!({})).await).then_some(())
        })
        .await;
        // The subject: the disk stays full over several looks of the host.
        tokio::time::sleep(4 * NEXT_LOOK).await;
        for job in &jobs {
            client.cancel("streams", job).await.ok();
        }
        assert!(client.delete("/v1/endpoints/streams").await.status < 300);
        takes_new_work(&client).await;
        assert!(!host.log().contains("waits for space"), "{}", host.log());
    });
}

/// The host takes a new job before long, and completes it.
async fn takes_new_work(client: &Client) {
    let taken = eventually("new work is taken", async || {
        let answer = client.run_sync("works", "", json!({ "n": 1 })).await;
        (!is_disk_full(&answer)).then(|| answer.ok())
    });
    assert_eq!(taken.await["status"], "COMPLETED");
}

/// The client of an owner with a paused endpoint of the owner's name.
async fn owner(host: &TestHost, name: &str) -> Client {
    let client = host.client_of(name).await;
    client.upload("echo:latest", fs::read(guests::echo()).unwrap()).await.ok();
    let template = json!({ "id": name, "name": name, "imageName": "echo:latest" });
    client.post("/v1/templates", &template).await.ok();
    paused(&client, name, name).await;
    client
}

async fn paused(client: &Client, endpoint: &str, template: &str) {
    let endpoint = json!({ "id": endpoint, "templateId": template, "workersMax": 0 });
    client.post("/v1/endpoints", &endpoint).await.ok();
}

/// An owner that fills the disk by way of many endpoints is refused before another owner is.
#[test]
fn an_owner_leaves_a_part_of_the_disk_to_another() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        let [greedy, modest] = [owner(host, "greedy").await, owner(host, "modest").await];
        let mut refused = None;
        for number in 0..((DISK_MIB as usize) << 20) / INPUT_BYTES {
            let endpoint = format!("greedy-{}", number % 4);
            if number < 4 {
                paused(&greedy, &endpoint, "greedy").await;
            }
            let answer = greedy.run(&endpoint, input(number)).await;
            if answer.status != 200 {
                refused = Some(answer);
                break;
            }
        }
        let answer = refused.expect("an owner has a share of the disk");
        assert_eq!((answer.status, &answer.json()["code"]), (429, &json!("queue_full")));
        let sentence = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(sentence.contains("as much as one owner may have"), "{sentence}");
        assert!(answer.header("retry-after").is_some());
        for number in 0..3 {
            modest.run("modest", input(number)).await.ok();
        }
    });
}

/// A component with further bytes that no engine looks at.
fn padded(number: u8) -> Vec<u8> {
    const BYTES: usize = 16 << 20;
    let mut component = fs::read(guests::echo()).unwrap();
    // A custom section: its id, its size as LEB128 of five bytes, the length of its name, the name.
    let size = u32::try_from(BYTES + 2).unwrap();
    component.push(0);
    for at in 0..5 {
        let part = u8::try_from(size >> (7 * at) & 0x7f).unwrap();
        component.push(if at < 4 { part | 0x80 } else { part });
    }
    component.extend([1, b'x']);
    component.resize(component.len() + BYTES, number);
    component
}

/// Handlers count in the share of their owner, and an owner whose uploads fill it is refused before
/// another owner is.
#[test]
fn handlers_of_an_owner_count_in_its_share_of_the_disk() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        let [greedy, modest] = [owner(host, "greedy").await, owner(host, "modest").await];
        let upload =
            async |number: u8| greedy.upload(&format!("h{number}:latest"), padded(number)).await;
        let mut count = 0;
        let refused = loop {
            let answer = upload(count).await;
            if answer.status >= 300 {
                break answer;
            }
            count += 1;
            assert!(u64::from(count) * 16 < DISK_MIB, "nothing was refused");
        };
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("quota_exceeded")));
        let sentence = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(count > 2 && sentence.contains("the owner's share"), "{count}: {sentence}");
        modest.run("modest", input(0)).await.ok();
        for number in 0..2 {
            let deleted = greedy.delete(&format!("/v1/handlers/h{number}:latest")).await;
            assert!(deleted.status < 300, "{deleted:?}");
        }
        eventually("deleted handlers make room", async || {
            (upload(count).await.status < 300).then_some(())
        })
        .await;
    });
}

/// A start counts the volumes of an owner before the owner's next job writes files.
#[test]
fn volumes_of_an_owner_count_after_a_start() {
    const FEW_MIB: u64 = 20;
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        let greedy = owner(host, "greedy").await;
        owner(host, "modest").await;
        greedy.upload("files:latest", fs::read(guests::playground()).unwrap()).await.ok();
        let template = json!({ "id": "files", "name": "files", "imageName": "files:latest" });
        greedy.post("/v1/templates", &template).await.ok();
        for name in ["first", "second"] {
            let volume = json!({ "name": name, "size": 1 });
            let volume = greedy.post("/v1/networkvolumes", &volume).await.ok()["id"].clone();
            let new = json!({ "id": name, "templateId": "files", "networkVolumeId": volume });
            greedy.post("/v1/endpoints", &new).await.ok();
        }
        // Writes until there is no space, and returns the number of MiB.
        let fill = async |host: &TestHost, endpoint: &str| {
            let job = json!({ "do": "fill", "path": "/workspace/file", "bytes": DISK_MIB << 20 });
            let job = json!({ "op": "file", "file": job });
            let document = host.client().finish(endpoint, job).await;
            match document["output"]["done"].as_u64() {
                Some(bytes) => bytes >> 20,
                // Not even an empty file had room.
                None if document.to_string().contains("No space left on device") => 0,
                None => panic!("{document}"),
            }
        };
        let filled = fill(host, "first").await;
        assert!((2 * FEW_MIB..DISK_MIB * 3 / 4).contains(&filled), "{filled} MiB");
        for _ in 0..2 {
            host.start_again();
            let filled = fill(host, "second").await;
            assert!(filled < FEW_MIB, "{filled} MiB after a start");
        }
    });
}

/// The ballast makes room for a start on a disk that another program has filled to its last byte.
#[test]
fn a_start_on_a_full_disk_works() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        host.deploy(&guests::echo(), "paused", json!({ "workersMax": 0 })).await;
        let job = host.client().submit("paused", json!({ "n": 1 })).await;
        assert!(host.data_dir().join("ballast").exists());
        host.kill9();
        fill(&host.data_dir());
        host.start_again();
        let client = host.client();
        assert!(is_disk_full(&client.run("paused", json!({})).await));
        assert_eq!(client.status("paused", &job).await.ok()["status"], "IN_QUEUE");
        empty(&host.data_dir());
        client.patch("/v1/endpoints/paused", &json!({ "workersMax": 1 })).await.ok();
        assert_eq!(client.finished("paused", &job).await["status"], "COMPLETED");
    });
}

/// In the log of a host that has started.
const IS_UP: &str = "connections at one time";

/// Starts a host until it ends or is up, and returns its end and its output on standard error.
fn failed_start(host: &TestHost) -> (ExitStatus, String) {
    // This file is not on the full disk.
    let output = host.scratch().join("failed-start");
    let mut serve: Command = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--journal-mib", "16", "--data-dir"]);
    serve.arg(host.data_dir()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut serve = serve.stderr(File::create(&output).unwrap()).spawn().unwrap();
    let begun = Instant::now();
    let said = || fs::read_to_string(&output).unwrap();
    while serve.try_wait().unwrap().is_none()
        && begun.elapsed() < PATIENCE
        && !said().contains(IS_UP)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    // A host that has ended by itself has a status already.
    let _ = serve.kill();
    let ended = serve.wait().unwrap();
    (ended, said())
}

#[test]
fn a_start_on_a_full_disk_without_a_ballast_ends_and_loses_nothing() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        host.deploy(&guests::echo(), "paused", json!({ "workersMax": 0 })).await;
        let job = host.client().submit("paused", json!({ "n": 1 })).await;
        host.kill9();
        let data = host.data_dir();
        fs::remove_file(data.join("ballast")).unwrap();
        fill(&data);
        let mut ends = 0;
        for n in 0..5 {
            // On a busy machine there was room again after the first filling, and the host started.
            fs::rename(data.join("filler"), data.join(format!("filler-{n}"))).unwrap();
            fill(&data);
            let (ended, said) = failed_start(host);
            if said.contains(IS_UP) {
                assert!(said.contains("new work is refused"), "{said}");
                continue;
            }
            let is_full = said.contains("full") || said.contains("No space left");
            assert!(ended.code() == Some(1) && is_full, "{ended}: {said}");
            ends += 1;
            if ends == 2 {
                break;
            }
        }
        assert_eq!(ends, 2, "starts that ended");
        for entry in fs::read_dir(&data).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        host.start_again();
        assert_eq!(host.client().status("paused", &job).await.ok()["status"], "IN_QUEUE");
    });
}

/// A rotation of the key of stored secrets on a full disk changes nothing or waits for space, and
/// succeeds once there is space.
#[test]
fn a_rotation_on_a_full_disk_changes_nothing_or_waits_for_space() {
    on_a_small_disk(&["--journal-mib", "16"], async |host: &mut TestHost| {
        let settings = json!({ "workersMax": 0, "env": { "TOKEN": "token" } });
        host.deploy(&guests::echo(), "parked", settings).await;
        let (client, data) = (host.client(), host.data_dir());
        let keys = || fs::read_to_string(data.join("secrets.key")).unwrap();
        let old = keys();
        fill(&data);
        eventually("the ballast is freed", async || (!data.join("ballast").exists()).then_some(()))
            .await;
        fs::rename(data.join("filler"), data.join("filler-before")).unwrap();
        fill(&data);
        let request = client.request(reqwest::Method::POST, "/v1/secrets/rotate");
        let mut rotating = tokio::spawn(async move { client.send(request).await });
        let refused = tokio::time::timeout(Duration::from_secs(3), &mut rotating).await;
        println!("on the full disk: {refused:?}");
        if let Ok(refused) = &refused {
            assert!(is_disk_full(refused.as_ref().unwrap()), "{refused:?}");
            assert_eq!(keys(), old);
        }
        host.kill9();
        fs::remove_file(data.join("filler-before")).unwrap();
        host.start_again();
        let left = keys();
        let of_start = left.lines().next().unwrap().to_owned();
        let one = async || (keys().lines().count() == 1).then_some(());
        eventually("the end of a rotation that had begun", one).await;
        assert_eq!(keys().trim(), of_start);
        empty(&data);
        host.client().post_empty("/v1/secrets/rotate").await.ok();
        assert_ne!(keys().trim(), of_start);
        host.kill9();
        host.start_again();
        let endpoint = host.client().get("/v1/endpoints/parked").await.ok();
        assert_eq!(endpoint["env"]["TOKEN"], "token");
    });
}
