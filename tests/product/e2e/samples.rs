//! The samples that the binary contains are the handlers of `handlers`, as they are built now.

use std::path::Path;

use gristmill_tests::{TestHost, command, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

/// How to write the samples again.
const REMEDY: &str = "`make samples` writes the samples of the binary again";

fn gristmill(host: &TestHost, arguments: &[&str]) -> String {
    let mut gristmill = command();
    gristmill.env("GRISTMILL_URL", host.url()).env("GRISTMILL_API_KEY", host.admin_key());
    let output = gristmill.args(arguments).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{REMEDY}: {}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

/// The bytes may differ, since each machine has its own paths in them.
#[tokio::test]
async fn each_sample_behaves_like_the_handler_that_was_just_built() {
    let host = shared_host();
    let samples = host.client.get("/console/samples").await.ok();
    let samples = samples.as_array().unwrap();
    assert_eq!(samples.len(), 3, "{samples:?}");
    for sample in samples {
        let name = sample["name"].as_str().unwrap();
        let shipped = format!("shipped-{name}");
        gristmill(&host, &["deploy", "--sample", name, "--name", &shipped]);
        let built = format!("built-{name}");
        let component = guests::echo().with_file_name(name.replace('-', "_"));
        let component = component.with_extension("wasm").display().to_string();
        gristmill(&host, &["deploy", &component, "--name", &built]);

        let interface = async |name: &str| -> Value {
            let handler = host.client.get(&format!("/v1/handlers/{name}:latest")).await.ok();
            let endpoint = host.client.get(&format!("/v1/endpoints/{name}")).await.ok();
            json!([handler["imports"], handler["exports"], endpoint["inputSchema"]])
        };
        let (of_shipped, of_built) = (interface(&shipped).await, interface(&built).await);
        assert_eq!(of_shipped, of_built, "{name}: {REMEDY}");

        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../handlers").join(name);
        let cases = cases.join("tests.json").display().to_string();
        for endpoint in [&built, &shipped] {
            gristmill(&host, &["test", "--endpoint", endpoint, "--cases", &cases]);
        }
        let input = sample["input"].as_str().unwrap();
        gristmill(&host, &["submit", &shipped, "--input", input, "--wait"]);
    }
}

#[tokio::test]
async fn the_component_of_a_sample_is_a_file_of_the_console() {
    let host = shared_host();
    let client = host.client.with_authorization(None);
    let request = client.request(Method::GET, "/console/samples/echo");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/wasm");
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    assert!(answer.bytes().await.unwrap().starts_with(&[0x1f, 0x8b]), "it is compressed");
    client.get("/console/samples/none").await.refused(404);
}
