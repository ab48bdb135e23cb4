//! Network volumes and scratch space through the real binary: persistence, sharing, refusals and
//! wiping. `tests/product/runtime/files.rs` tests the file operations of handlers.

use std::fs;
use std::path::Path;

use futures::future::join_all;
use gristmill_tests::{Client, TestHost, eventually, guests, shared_host};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

async fn new_volume(client: &Client, name: &str) -> String {
    let made = client.post("/v1/networkvolumes", &json!({ "name": name, "size": 1 })).await.ok();
    made["id"].as_str().unwrap().to_owned()
}

/// A job of the playground on a file; its document.
async fn file(client: &Client, endpoint: &str, job: Value) -> Value {
    client.finish(endpoint, json!({ "op": "file", "file": job })).await
}

async fn write(client: &Client, endpoint: &str, path: &str, text: &str) {
    let document =
        file(client, endpoint, json!({ "do": "write", "path": path, "text": text })).await;
    assert_eq!(document["status"], "COMPLETED", "{document}");
}

async fn read(client: &Client, endpoint: &str, path: &str) -> Value {
    file(client, endpoint, json!({ "do": "read", "path": path })).await["output"].clone()
}

#[tokio::test]
async fn a_volume_is_made_changed_listed_and_deleted() {
    let host = shared_host();
    let client = &host.client;
    let new = json!({ "name": "grain", "size": 2, "dataCenterId": "EU-RO-1" });
    let made = client.post("/v1/networkvolumes", &new).await.ok();
    let id = made["id"].as_str().unwrap();
    let shown = json!({ "id": id, "name": "grain", "size": 2, "dataCenterId": "local" });
    assert_eq!(made, shown);
    let path = format!("/v1/networkvolumes/{id}");
    assert_eq!(client.get(&path).await.ok(), shown);
    let changed = client.patch(&path, &json!({ "name": "rye", "size": 3 })).await.ok();
    assert_eq!((&changed["name"], &changed["size"]), (&json!("rye"), &json!(3)));
    let smaller = client.patch(&path, &json!({ "size": 2 })).await.refused(400);
    assert_eq!(smaller, "`size` must be 3 to 4000, not 2");
    let listed = client.get("/v1/networkvolumes").await.ok();
    assert!(listed.as_array().unwrap().contains(&changed), "{listed}");
    let page = client.get("/v1/networkvolumes?limit=1").await.ok();
    assert_eq!(page.as_array().unwrap().len(), 1);

    let wrong = [
        (json!({ "size": 1 }), "name"),
        (json!({ "name": "a" }), "size"),
        (json!({ "name": "", "size": 1 }), "`name`"),
        (json!({ "name": "a", "size": 0 }), "`size` must be 1 to 4000, not 0"),
        (json!({ "name": "a", "size": 4001 }), "`size` must be 1 to 4000, not 4001"),
        (json!({ "name": "a", "size": 1.5 }), "`size`"),
        (json!({ "name": "a", "size": null }), "`size`"),
    ];
    for (new, word) in wrong {
        let sentence = client.post("/v1/networkvolumes", &new).await.refused(400);
        assert!(sentence.contains(word), "{new}: {sentence}");
    }
    client.get("/v1/networkvolumes/0123").await.refused(404);
    client.get("/v1/networkvolumes/a%20b").await.refused(400);
    assert_eq!(client.delete(&path).await.status, 204);
    client.get(&path).await.refused(404);
    client.delete(&path).await.refused(404);
    let reader = client.with_scopes(&["read"]).await;
    reader.get("/v1/networkvolumes").await.refused(401);
}

#[tokio::test]
async fn endpoints_name_a_volume_that_is_there_and_keep_it() {
    let host = shared_host();
    let client = &host.client;
    let id = new_volume(client, "bound").await;
    let name = "volume-bound";
    host.deploy(&guests::playground(), name, json!({ "networkVolumeId": id })).await;
    let endpoint = format!("/v1/endpoints/{name}");
    assert_eq!(client.get(&endpoint).await.ok()["networkVolumeId"], id);
    let path = format!("/v1/networkvolumes/{id}");
    let refused = client.delete(&path).await;
    assert_eq!(refused.json()["code"], "conflict", "{refused:?}");
    let sentence = refused.refused(400);
    assert!(sentence.contains("in use by endpoint `volume-bound`"), "{sentence}");

    for unknown in ["0123", "a b"] {
        let change = json!({ "networkVolumeId": unknown });
        let sentence = client.patch(&endpoint, &change).await.refused(400);
        assert!(sentence.starts_with("`networkVolumeId`: "), "{sentence}");
    }
    // A change of another field keeps it; an empty id removes it.
    let change = json!({ "workersMax": 2 });
    assert_eq!(client.patch(&endpoint, &change).await.ok()["networkVolumeId"], id);
    let without = client.patch(&endpoint, &json!({ "networkVolumeId": "" })).await.ok();
    assert!(without.get("networkVolumeId").is_none(), "{without}");
    let error = file(client, name, json!({ "do": "read", "path": "/workspace/a" })).await;
    assert_eq!(error["status"], "FAILED", "{error}");
    assert_eq!(client.delete(&path).await.status, 204);

    for wrong in ["workspace", "/", "/a/../b", "/a//b", "/tmp", &format!("/{}", "a".repeat(256))] {
        let template = json!({ "volumeMountPath": wrong });
        let sentence = client.patch(&format!("/v1/templates/{name}"), &template).await.refused(400);
        assert!(sentence.starts_with("`volumeMountPath` must be empty or "), "{sentence}");
    }
}

#[tokio::test]
async fn files_in_a_volume_outlive_jobs_deploys_restarts_and_kills() {
    let mut host = TestHost::start();
    let client = host.client();
    let id = new_volume(&client, "kept").await;
    let settings = json!({ "networkVolumeId": id, "volumeMountPath": "/mill/grain" });
    let one = host.deploy(&guests::playground(), "kept-one", settings).await;
    let settings = json!({ "networkVolumeId": id, "containerDiskInGb": 1 });
    let two = host.deploy(&guests::playground(), "kept-two", settings).await;
    write(&client, &one, "/mill/grain/a", "rye").await;
    assert_eq!(read(&client, &two, "/workspace/a").await, "rye", "shared, at another path");
    write(&client, &two, "/tmp/a", "scratch").await;
    assert_eq!(read(&client, &two, "/tmp/a").await, Value::Null, "another job's own");

    let endpoint = "/v1/endpoints/kept-one";
    client.patch(endpoint, &json!({ "memoryMib": 128 })).await.ok();
    write(&client, &one, "/mill/grain/b", "oats").await;
    // Killed while a job writes: its writes are present, and so are those of other jobs.
    let count = json!({ "do": "count", "path": "/workspace/count", "bytes": 1_000_000 });
    let counting = client.submit(&two, json!({ "op": "file", "file": count })).await;
    let counted = host.data_dir().join(format!("volumes/{id}/count"));
    eventually("it counts", async || {
        fs::read_to_string(&counted).ok()?.parse::<u64>().ok().filter(|count| *count > 10)
    })
    .await;
    host.kill9();
    let scratch = host.data_dir().join("scratch");
    let entry = |path: &Path| fs::read_dir(path).unwrap().next().unwrap().unwrap().path();
    let of_job = entry(&entry(&scratch));
    fs::write(of_job.join("a"), "x").unwrap();
    let before: u64 = fs::read_to_string(&counted).unwrap().parse().unwrap_or(0);
    host.start_again();
    let client = host.client();
    assert_eq!(read(&client, &one, "/mill/grain/a").await, "rye");
    assert_eq!(read(&client, &one, "/mill/grain/b").await, "oats");
    // The job runs again with its earlier files, and an empty scratch space.
    eventually("it goes on", async || {
        fs::read_to_string(&counted).ok()?.parse::<u64>().ok().filter(|count| *count > before)
    })
    .await;
    eventually("the killed job's scratch space is wiped", async || {
        (!of_job.exists()).then_some(())
    })
    .await;
    client.cancel(&two, &counting).await.ok();
    let mode = fs::metadata(host.data_dir().join("volumes").join(&id)).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o700);

    host.ask_to_end();
    host.wait(gristmill_tests::PATIENCE * 2);
    host.start_again();
    let client = host.client();
    assert_eq!(read(&client, &one, "/mill/grain/a").await, "rye");
    for name in ["kept-one", "kept-two"] {
        assert_eq!(client.delete(&format!("/v1/endpoints/{name}")).await.status, 204);
    }
    assert_eq!(client.delete(&format!("/v1/networkvolumes/{id}")).await.status, 204);
    let volumes = host.data_dir().join("volumes");
    eventually("its files are gone", async || {
        fs::read_dir(&volumes).unwrap().next().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn jobs_of_several_endpoints_keep_the_size_of_their_volume() {
    let host = shared_host();
    let client = &host.client;
    let id = new_volume(client, "full").await;
    let settings = json!({ "networkVolumeId": id });
    let names = ["volume-full-a", "volume-full-b"];
    for name in names {
        host.deploy(&guests::playground(), name, settings.clone()).await;
    }
    // A sparse file takes nothing on disk, and nearly all of the volume.
    let room = 4 << 20;
    write(client, names[0], "/workspace/hole", "").await;
    let hole = json!({ "do": "truncate", "path": "/workspace/hole", "bytes": GIB - room });
    assert_eq!(file(client, names[0], hole).await["status"], "COMPLETED");
    let fill = async |number: usize| {
        let path = format!("/workspace/{number}");
        let fill = json!({ "do": "fill", "path": path, "bytes": room });
        let document = file(client, names[number % 2], fill).await;
        document["output"]["done"].as_u64().unwrap_or(0)
    };
    let filled: u64 = join_all((0..6).map(fill)).await.iter().sum();
    println!("filled {filled} of {room} bytes");
    assert!(filled <= room && filled > room / 2, "{filled}");
    let append = json!({ "do": "append", "path": "/workspace/hole", "text": "x".repeat(1 << 20) });
    let full = file(client, names[0], append).await;
    let error = full["error"].as_str().unwrap();
    assert!(error.contains("no space left on device"), "{full}");
    // A larger size takes effect at once.
    let larger = json!({ "size": 2 });
    client.patch(&format!("/v1/networkvolumes/{id}"), &larger).await.ok();
    write(client, names[1], "/workspace/more", &"x".repeat(1 << 20)).await;
}

/// The states that a crash within a deletion leaves: the mark is written first, and the record is
/// deleted next.
#[tokio::test]
async fn a_start_completes_the_deletions_of_volumes_that_a_crash_interrupted() {
    let mut host = TestHost::start();
    let kept = new_volume(&host.client(), "kept").await;
    host.kill9();
    let volumes = host.data_dir().join("volumes");
    for directory in [&*kept, "deleted", "without-a-record"] {
        fs::create_dir_all(volumes.join(directory)).unwrap();
        fs::write(volumes.join(directory).join("file"), "rye").unwrap();
    }
    for marked in [&*kept, "deleted", "never-used"] {
        fs::write(volumes.join(format!("{marked}.deleting")), "").unwrap();
    }
    host.start_again();
    let mut expected = vec![kept.clone(), "without-a-record".to_owned()];
    expected.sort();
    eventually("the deleted volume is wiped", async || {
        let entries = fs::read_dir(&volumes).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        (names == expected).then_some(())
    })
    .await;
    assert_eq!(fs::read_to_string(volumes.join(&kept).join("file")).unwrap(), "rye");
    let path = format!("/v1/networkvolumes/{kept}");
    host.client().get(&path).await.ok();
    assert_eq!(host.client().delete(&path).await.status, 204);
    eventually("its files are gone", async || {
        (fs::read_dir(&volumes).unwrap().count() == 1).then_some(())
    })
    .await;
}
