//! Fields of a template, as a lookup shows them.

use gristmill_tests::{Shared, shared_host};
use serde_json::{Value, json};

/// Creates a template with these settings, and looks it up.
async fn looked_up(id: &str, settings: Value) -> Value {
    let host = shared_host();
    create(&host, id, settings).await.ok();
    host.client.get(&format!("/v1/templates/{id}")).await.ok()
}

async fn create(host: &Shared, id: &str, settings: Value) -> gristmill_tests::Answer {
    let mut template = json!({ "id": id, "name": id, "imageName": "echo:latest" });
    for (field, value) in settings.as_object().unwrap() {
        template[field] = value.clone();
    }
    host.client.post("/v1/templates", &template).await
}

/// Asserts that a field shows its default, then its set value, and accepts nothing invalid.
async fn assert_field(field: &str, default: Value, values: &[Value], wrong: &[Value]) {
    let id = |index: usize| format!("field-{}-{index}", field.to_lowercase());
    let least = looked_up(&id(0), json!({})).await;
    assert_eq!(least[field], default, "{least}");
    for (index, value) in values.iter().enumerate() {
        let template = looked_up(&id(index + 1), json!({ field: value })).await;
        assert_eq!(&template[field], value, "{template}");
    }
    for value in wrong {
        let answer = create(&shared_host(), &id(99), json!({ field: value })).await;
        assert!(answer.refused(400).contains(field), "{value}: {answer:?}");
    }
}

/// `id`: unique; created by the host if it is missing.
#[tokio::test]
async fn template_id() {
    assert_eq!(looked_up("field-id", json!({})).await["id"], "field-id");
    let host = shared_host();
    create(&host, "field-id", json!({ "name": "another" })).await.refused(400);
    let unnamed = json!({ "name": "field-id-made", "imageName": "echo:latest" });
    let made = host.client.post("/v1/templates", &unnamed).await.ok();
    assert!(!made["id"].as_str().unwrap().is_empty(), "{made}");
}

/// `name`: chosen by the user, and unique.
#[tokio::test]
async fn name() {
    let named = looked_up("field-name", json!({ "name": "Flour & ☼" })).await;
    assert_eq!(named["name"], "Flour & ☼");
    let host = shared_host();
    create(&host, "field-name-2", json!({ "name": "Flour & ☼" })).await.refused(400);
    create(&host, "field-name-2", json!({ "name": "" })).await.refused(400);
    create(&host, "field-name-2", json!({ "name": null })).await.refused(400);
}

/// `imageName`: the image that workers run.
#[tokio::test]
async fn image_name() {
    let template = looked_up("field-image", json!({ "imageName": "mill:v1" })).await;
    assert_eq!(template["imageName"], "mill:v1");
    for wrong in [json!(""), json!(null), json!(7)] {
        create(&shared_host(), "field-image-2", json!({ "imageName": wrong })).await.refused(400);
    }
}

/// `category`: `CPU` by default, or one of two vendors of GPUs; a label, by which the console
/// groups templates.
#[tokio::test]
async fn category() {
    let right = [json!("NVIDIA"), json!("AMD"), json!("CPU")];
    let wrong = [json!("cpu"), json!("GPU"), json!(""), json!(7)];
    assert_field("category", json!("CPU"), &right, &wrong).await;
}

/// `containerDiskInGb`: an integer.
#[tokio::test]
async fn container_disk_in_gb() {
    let wrong = [json!(-1), json!(1.5), json!("5")];
    assert_field("containerDiskInGb", json!(0), &[json!(5)], &wrong).await;
}

/// `volumeInGb`: an integer.
#[tokio::test]
async fn volume_in_gb() {
    let wrong = [json!(-1), json!(1.5), json!("5")];
    assert_field("volumeInGb", json!(0), &[json!(7)], &wrong).await;
}

/// `volumeMountPath`: a path.
#[tokio::test]
async fn volume_mount_path() {
    assert_field("volumeMountPath", json!(""), &[json!("/grain")], &[json!(7)]).await;
}

/// `containerRegistryAuthId`: an identifier.
#[tokio::test]
async fn container_registry_auth_id() {
    let new = json!({ "name": "field-auth", "username": "mill", "password": "grain" });
    let made = shared_host().client.post("/v1/containerregistryauth", &new).await.ok();
    let wrong = [json!(7), json!("nothing")];
    assert_field("containerRegistryAuthId", json!(""), &[made["id"].clone()], &wrong).await;
}

/// `dockerEntrypoint`: strings; none by default.
#[tokio::test]
async fn docker_entrypoint() {
    let wrong = [json!("mill"), json!([7])];
    assert_field("dockerEntrypoint", json!([]), &[json!(["mill", ""]), json!([])], &wrong).await;
}

/// `dockerStartCmd`: strings; none by default.
#[tokio::test]
async fn docker_start_cmd() {
    let wrong = [json!("--fine"), json!([null])];
    assert_field("dockerStartCmd", json!([]), &[json!(["--fine"]), json!([])], &wrong).await;
}

/// `env`: names with string values; empty by default.
#[tokio::test]
async fn env() {
    let wrong = [json!([]), json!({ "A": 1 }), json!("A=1")];
    assert_field("env", json!({}), &[json!({ "GRAIN": "rye", "B": "" })], &wrong).await;
}

/// `ports`: each a number and `http` or `tcp`.
#[tokio::test]
async fn ports() {
    let wrong = [
        json!(["8080"]),
        json!(["80/udp"]),
        json!(["99999/http"]),
        json!(["0/tcp"]),
        json!(["x/tcp"]),
        json!("80/http"),
    ];
    assert_field("ports", json!([]), &[json!(["8080/http", "22/tcp"])], &wrong).await;
}

/// `readme`: Markdown.
#[tokio::test]
async fn readme() {
    assert_field("readme", json!(""), &[json!("# Mill\n\n*fine*")], &[json!(7)]).await;
}

/// `isPublic`: whether other owners may use it; false by default.
#[tokio::test]
async fn is_public() {
    assert_field("isPublic", json!(false), &[json!(true), json!(false)], &[json!("yes")]).await;
}

/// `isPlatform`: whether it is a platform template; false by default, and only the operator can set
/// it.
#[tokio::test]
async fn is_platform() {
    assert_eq!(looked_up("field-platform", json!({})).await["isPlatform"], false);
    let host = shared_host();
    let user = host.client_of("field-platform-user").await;
    let claimed = json!({ "name": "claimed", "imageName": "echo:latest", "isPlatform": true });
    user.post("/v1/templates", &claimed).await.refused(401);
    let official = json!({ "isPlatform": true });
    let changed = host.client.patch("/v1/templates/field-platform", &official).await.ok();
    assert_eq!(changed["isPlatform"], true);
}

/// `isServerless`: true for templates of workers, false for those of Pods.
#[tokio::test]
async fn is_serverless() {
    assert_field("isServerless", json!(true), &[json!(false), json!(true)], &[json!(1)]).await;
}

/// `earned`: a number; `e2e` tests its value.
#[tokio::test]
async fn earned() {
    assert_eq!(looked_up("field-earned", json!({})).await["earned"], 0);
}

/// `runtimeInMin`: an integer.
#[tokio::test]
async fn runtime_in_min() {
    assert!(looked_up("field-runtime", json!({})).await["runtimeInMin"].is_u64());
}
