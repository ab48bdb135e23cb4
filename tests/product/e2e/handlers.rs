//! The life of uploaded handlers: lookup, change of names, deletion, and automatic deletion of
//! unused components.

use std::fs;

use gristmill_tests::{Client, TestHost, Wire, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

/// The component with a custom section at its end: another component that does the same.
pub(crate) fn variant(component: &[u8], label: &str) -> Vec<u8> {
    let length = u8::try_from(label.len()).unwrap();
    [component, &[0, length + 1, length], label.as_bytes()].concat()
}

pub(crate) fn echo(label: &str) -> Vec<u8> {
    variant(&fs::read(guests::echo()).unwrap(), label)
}

fn stored(host: &TestHost) -> usize {
    fs::read_dir(host.data_dir().join("components")).unwrap().count()
}

#[tokio::test]
async fn a_handler_shows_its_interfaces_and_its_tools() {
    let host = shared_host();
    let producers = r#"(component (core module
        (@producers (language "Rust" "2024") (processed-by "rustc" "1.95.0"))))"#;
    // A complete handler, with a core module beside it that names its tools.
    let mut bytes = fs::read(guests::word_count()).unwrap();
    bytes.extend_from_slice(&wat::parse_str(producers).unwrap()[8..]);
    let uploaded = host.upload("told:v1", bytes.clone()).await.ok();
    let told = host.client.get("/v1/handlers/told:v1").await.ok();
    assert_eq!(told, uploaded);
    assert_eq!(told["sizeInBytes"], bytes.len());
    let names = |field: &str| -> Vec<&str> {
        told[field].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect()
    };
    assert!(names("language").contains(&"Rust"), "{told}");
    assert!(names("toolchain").contains(&"rustc"), "{told}");
    assert!(told["exports"][0].as_str().unwrap().starts_with("gristmill:handler/run@"), "{told}");
    let listed = host.client.get("/v1/handlers").await.ok();
    assert!(listed.as_array().unwrap().contains(&told), "{listed}");
    host.client.get("/v1/handlers/told").await.refused(404);
    host.client.get("/v1/handlers/a:b:c").await.refused(400);
}

#[tokio::test]
async fn a_handler_that_runs_somewhere_is_not_deleted() {
    let host = shared_host();
    host.upload("deleted:latest", echo("deleted")).await.ok();
    let endpoint = host.deploy_image("deleted", "delete-used", json!({})).await;
    let refused = host.client.delete("/v1/handlers/deleted:latest").await.refused(400);
    assert!(refused.contains("delete-used"), "{refused}");
    host.client.patch("/v1/templates/delete-used", &json!({ "imageName": "none" })).await.ok();
    assert_eq!(host.client.delete("/v1/handlers/deleted").await.status, 204);
    host.client.delete("/v1/handlers/deleted:latest").await.refused(404);
    host.client.get("/v1/handlers/deleted:latest").await.refused(404);
    let job = host.client.submit(&endpoint, json!({})).await;
    assert_eq!(host.client.status(&endpoint, &job).await.ok()["status"], "IN_QUEUE");
}

/// A component stays while a name, a template or a release of an endpoint uses it, and no longer.
/// (A running job: `a_running_job_keeps_a_component_that_no_release_keeps`.)
#[tokio::test]
async fn a_component_is_deleted_with_its_last_reference() {
    let host = TestHost::start();
    let playground = fs::read(guests::playground()).unwrap();
    let upload = async |name: &str, label: &str| -> String {
        let document = host.upload(name, variant(&playground, label)).await.ok();
        document["sha256"].as_str().unwrap().to_owned()
    };
    upload("a:1", "one").await;
    let digest = upload("a:2", "one").await;
    assert_eq!(stored(&host), 1);
    assert_eq!(host.client().delete("/v1/handlers/a:1").await.status, 204);
    assert_eq!(stored(&host), 1, "another name has it");
    let endpoint = host.deploy_image("a:2", "running", json!({})).await;
    upload("a:2", "two").await;
    let quick = host.client().finish(&endpoint, json!({ "op": "echo" })).await;
    assert_eq!(quick["status"], "COMPLETED");
    upload("b:1", "two").await;
    assert_eq!(stored(&host), 2, "its endpoint may go back to it");
    assert_eq!(host.client().delete("/v1/endpoints/running").await.status, 204);
    eventually("the component to go", async || {
        // It is deleted with the next change after its last worker has ended.
        upload("b:1", "two").await;
        (stored(&host) == 1).then_some(())
    })
    .await;
    assert!(!host.data_dir().join(format!("components/{digest}.wasm")).exists());
    // A template that names it by its digest keeps it too.
    let digest = upload("c:1", "three").await;
    let template = json!({ "id": "t", "name": "t", "imageName": format!("c@sha256:{digest}") });
    host.client().post("/v1/templates", &template).await.ok();
    assert_eq!(host.client().delete("/v1/handlers/c:1").await.status, 204);
    assert_eq!(stored(&host), 2);
    assert_eq!(host.client().delete("/v1/templates/t").await.status, 204);
    assert_eq!(stored(&host), 1);
}

/// An endpoint can roll back to the last twenty handlers that it ran. An older one stays while a
/// job still runs it.
#[tokio::test]
async fn a_running_job_keeps_a_component_that_no_release_keeps() {
    let host = TestHost::start();
    let client = host.client();
    let first = host.upload("mill:1", fs::read(guests::playground()).unwrap()).await.ok();
    let file = format!("components/{}.wasm", first["sha256"].as_str().unwrap());
    let file = host.data_dir().join(file);
    let endpoint = host.deploy_image("mill:1", "mill", json!({ "workersMax": 1 })).await;
    let job = client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    for number in 0..20 {
        host.upload("mill:1", echo(&format!("n{number}"))).await.ok();
    }
    let releases = client.get("/v1/endpoints/mill/releases").await.ok();
    let versions: Vec<_> =
        releases.as_array().unwrap().iter().map(|r| r["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, (2..=21).rev().collect::<Vec<_>>());
    assert!(file.exists(), "a job runs it");
    assert_eq!(stored(&host), 21);
    client.cancel(&endpoint, &job).await.ok();
    eventually("the component to go", async || {
        // It is deleted with the next change after its last worker has ended.
        host.upload("mill:1", echo("n19")).await.ok();
        (stored(&host) == 20 && !file.exists()).then_some(())
    })
    .await;
}

/// A release has the settings with which it began, after a restart too, and shows no value of a
/// variable.
#[tokio::test]
async fn a_release_has_the_settings_with_which_it_began() {
    let mut host = TestHost::start();
    let client = host.client();
    host.upload("mill:1", echo("one")).await.ok();
    let settings = json!({ "memoryMib": 64, "env": { "MODEL": "secret-one", "KEEP": "same" } });
    host.deploy_image("mill:1", "mill", settings).await;
    let changes = json!({ "memoryMib": 96, "allowedHosts": ["grain.example"],
        "callEndpoints": ["flour"],
        "rateLimits": { "run": { "callsPer10s": 7 } },
        "env": { "MODEL": "secret-two", "KEEP": "same", "NEW": "secret-three" } });
    client.patch("/v1/endpoints/mill", &changes).await.ok();
    host.upload("mill:1", echo("two")).await.ok();
    client.patch("/v1/endpoints/mill", &json!({ "memoryMib": 128 })).await.ok();
    let release = async |client: &Client, version: u32| {
        let answer = client.get(&format!("/v1/endpoints/mill/releases/{version}")).await;
        assert!(!answer.text.contains("secret"), "{answer:?}");
        answer.ok()
    };
    let (first, second) = (release(&client, 1).await, release(&client, 3).await);
    let listed = client.get("/v1/endpoints/mill/releases").await.ok();
    for (of, shown) in [(&first, &listed[1]), (&second, &listed[0])] {
        for field in ["version", "releasedAt", "image", "sha256"] {
            assert_eq!(of[field], shown[field], "{field}");
        }
    }
    let (old, new) = (&first["settings"], &second["settings"]);
    assert_eq!(
        (&old["memoryMib"], &new["memoryMib"]),
        (&json!(64), &json!(96)),
        "not the present ones"
    );
    assert_eq!(
        (&old["allowedHosts"], &new["allowedHosts"]),
        (&json!([]), &json!(["grain.example"]))
    );
    assert_eq!(new["rateLimits"]["run"]["callsPer10s"], 7);
    let present = client.get("/v1/endpoints/mill").await.ok();
    for (field, value) in new.as_object().unwrap() {
        let is_changed = ["memoryMib", "env"].contains(&field.as_str());
        assert!(is_changed || present[field] == *value, "{field}: {value} and {}", present[field]);
    }
    // All fields of the endpoint that no change of its settings changes, and another form of
    // `networkVolumeId`.
    let of_identity = [
        "allowedCudaVersions",
        "computeType",
        "createdAt",
        "dataCenterIds",
        "gpuCount",
        "gpuTypeIds",
        "id",
        "instanceIds",
        "name",
        "networkVolumeIds",
        "type",
        "userId",
        "version",
    ];
    for field in present.as_object().unwrap().keys() {
        let is_setting = !of_identity.contains(&field.as_str());
        assert_eq!(new.get(field).is_some(), is_setting, "{field} of a release");
    }
    assert_eq!(old["env"]["KEEP"], new["env"]["KEEP"]);
    assert_ne!(old["env"]["MODEL"], new["env"]["MODEL"]);
    assert_eq!((old["env"].get("NEW"), new["env"]["NEW"].as_str().unwrap().len()), (None, 16));
    for version in ["2", "9", "-1", "x", "01", "99999999999999999999"] {
        let path = format!("/v1/endpoints/mill/releases/{version}");
        assert!(client.get(&path).await.refused(404).contains(version), "{version}");
    }
    client.get("/v1/endpoints/no-such-one/releases/1").await.refused(404);
    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!((release(&client, 1).await, release(&client, 3).await), (first, second));
}

#[tokio::test]
async fn leftovers_of_a_crashed_upload_are_deleted_at_the_next_start() {
    let mut host = TestHost::start();
    host.upload("kept:1", echo("kept")).await.ok();
    let components = host.data_dir().join("components");
    fs::write(components.join(format!("{}.wasm", "ab".repeat(32))), "no record").unwrap();
    fs::write(components.join("upload.1-0.tmp"), "half").unwrap();
    assert_eq!(stored(&host), 3);
    host.start_again();
    assert_eq!(stored(&host), 1);
    host.client().get("/v1/handlers/kept:1").await.ok();
}

#[tokio::test]
async fn an_upload_that_is_too_large_is_refused_and_leaves_nothing() {
    let host = TestHost::start();
    // Without an announced length, the excess is detected while the body arrives.
    Wire::call_in_chunks(&host, "PUT", "/v1/handlers/huge:1", 65 << 20).await.refused(413);
    eventually("the upload to go", async || (stored(&host) == 0).then_some(())).await;
}

/// Another owner's handlers are not visible.
#[tokio::test]
async fn handlers_need_the_scope_manage() {
    let host = shared_host();
    let submit = host.client.with_scopes(&["submit"]).await;
    for (method, path) in [
        (Method::GET, "/v1/handlers/x:1"),
        (Method::DELETE, "/v1/handlers/x:1"),
        (Method::GET, "/v1/containerregistryauth"),
    ] {
        submit.send(submit.request(method, path)).await.refused(401);
    }
    let manage = host.client.with_scopes(&["manage"]).await;
    let listed: Value = manage.get("/v1/containerregistryauth").await.ok();
    assert!(listed.is_array(), "{listed}");
}

#[tokio::test]
async fn registry_credentials_are_kept_and_their_password_is_not_shown() {
    let host = shared_host();
    let path = "/v1/containerregistryauth";
    let new = json!({ "name": "our hub", "username": "mill", "password": "gr1st-s3cret" });
    let made = host.client.post(path, &new).await;
    assert!(!made.text.contains("gr1st"), "{made:?}");
    let made = made.ok();
    let id = made["id"].as_str().unwrap();
    assert_eq!(host.client.get(&format!("{path}/{id}")).await.ok(), made);
    let listed = host.client.get(path).await;
    assert!(listed.ok().as_array().unwrap().contains(&made) && !listed.text.contains("gr1st"));
    assert!(host.client.post(path, &new).await.refused(400).contains("exist already"));
    for (field, wrong) in [
        ("name", json!("")),
        ("username", json!("a:b")),
        ("username", json!("")),
        ("password", json!("a\nb")),
        ("password", json!("x".repeat(16_385))),
        ("password", json!(null)),
    ] {
        let mut body = json!({ "name": "wrong", "username": "u", "password": "p" });
        body[field] = wrong;
        assert!(host.client.post(path, &body).await.refused(400).contains(field), "{body}");
    }
    let template = |auth: &str| {
        json!({ "id": "auth-used", "name": "auth-used", "imageName": "echo:latest",
                "containerRegistryAuthId": auth })
    };
    let refused = host.client.post("/v1/templates", &template("nothing")).await.refused(400);
    assert!(refused.contains("containerRegistryAuthId"), "{refused}");
    host.client.post("/v1/templates", &template(id)).await.ok();
    let refused = host.client.delete(&format!("{path}/{id}")).await.refused(400);
    assert!(refused.contains("auth-used"), "{refused}");
    let none = json!({ "containerRegistryAuthId": "" });
    host.client.patch("/v1/templates/auth-used", &none).await.ok();
    assert_eq!(host.client.delete(&format!("{path}/{id}")).await.status, 204);
    host.client.get(&format!("{path}/{id}")).await.refused(404);
    host.client.delete(&format!("{path}/{id}")).await.refused(404);
}
