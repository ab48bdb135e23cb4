//! Tests with a third-party registry: the reference implementation, as Debian packages it.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use gristmill_tests::{TestHost, eventually};
use oci_client::secrets::RegistryAuth;
use serde_json::json;

use crate::handlers::echo;
use crate::registry::{oci_client, push, reference};

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `mill:grain` as `htpasswd -B` writes it.
const PASSWORDS: &str = "mill:$2y$05$fIWOvT1gJ7Xw1fKIsvUQ5u8KKXnbAxjEkNAgrNbbXPHiWu7z.xOwy\n";

#[tokio::test]
#[ignore = "needs docker-registry; `make registry` fetches it"]
async fn a_foreign_registry_is_fetched_from() {
    let program = std::env::var("GRISTMILL_FOREIGN_REGISTRY").expect("`make registry` sets it");
    let host = TestHost::start_with(&["--registry-allow", "http://127.0.0.1:17803"]);
    let folder = host.scratch();
    fs::write(folder.join("passwords"), PASSWORDS).unwrap();
    // The port is in the flag above; a busy port is reported here and not in the registry's log.
    drop(TcpListener::bind("127.0.0.1:17803").expect("port 17803 is free"));
    let config = folder.join("registry.yml");
    let text = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {0}/images}}}}\n\
         http: {{addr: '127.0.0.1:17803'}}\n\
         auth: {{htpasswd: {{realm: mills, path: {0}/passwords}}}}\n",
        folder.display()
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Running(command.spawn().unwrap());

    let image = reference("127.0.0.1:17803", "team/mill:1.2");
    let auth = RegistryAuth::Basic("mill".into(), "grain".into());
    let client = oci_client(false);
    eventually("the registry to take the image", async || {
        push(&client, &image, &auth, echo("foreign")).await.ok()
    })
    .await;
    let digest = client.fetch_manifest_digest(&image, &auth).await.unwrap();
    let client = host.client();
    let new = json!({ "name": "n", "registry": "127.0.0.1:17803", "username": "mill", "password": "grain" });
    let auth = client.post("/v1/containerregistryauth", &new).await.ok();
    let template = |image: &str, auth: &str| json!({ "id": "t", "name": "t", "imageName": image, "containerRegistryAuthId": auth });
    let image = "127.0.0.1:17803/team/mill:1.2";
    let refused = client.post("/v1/templates", &template(image, "")).await.refused(400);
    assert!(refused.contains("asks for credentials"), "{refused}");
    let auth = auth["id"].as_str().unwrap();
    let template = template(&format!("127.0.0.1:17803/team/mill@{digest}"), auth);
    client.post("/v1/templates", &template).await.ok();
    client.post("/v1/endpoints", &json!({ "id": "e", "templateId": "t" })).await.ok();
    assert_eq!(client.finish("e", json!({ "a": 1 })).await["output"], json!({ "a": 1 }));
}
