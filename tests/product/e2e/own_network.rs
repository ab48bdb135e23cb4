//! The host's own public addresses and those of its neighbours are refused, in a separate network.
//!
//! The test starts itself again in a private network namespace, where it gives the loopback
//! interface public addresses. Without the permission for a namespace it prints the reason and
//! passes.

use std::process::Command;

use gristmill_tests::{
    Answer, Client, Receiver, TestHost, eventually, guests, ip, run_in_own_network,
};
use serde_json::{Value, json};

/// The variable with the namespace's hosts file, which also marks the inner test.
const HOSTS_FILE: &str = "OWN_NETWORK_HOSTS_FILE";

const NAME: &str = "own_network::addresses_of_this_host_and_its_neighbours_are_refused";

#[test]
fn addresses_of_this_host_and_its_neighbours_are_refused() {
    if let Some(hosts_file) = std::env::var_os(HOSTS_FILE) {
        let mut bind = Command::new("mount");
        bind.arg("--bind").arg(hosts_file).arg("/etc/hosts");
        assert!(bind.status().unwrap().success());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(inside());
    }
    let hosts_file = tempfile::NamedTempFile::new().unwrap();
    let names = "127.0.0.1 localhost\n93.184.216.34 own.example\n2606:4700:1:2::77 near.example\n";
    std::fs::write(hosts_file.path(), names).unwrap();
    run_in_own_network(NAME, &[(HOSTS_FILE, hosts_file.path().as_os_str())]);
}

async fn inside() {
    ip("link set lo up");
    ip("address add 93.184.216.34/32 dev lo");
    // The kernel delivers all of these networks to this machine.
    ip("address add 45.33.32.10/24 dev lo");
    ip("-6 address add 2606:4700:1:2::1/128 dev lo nodad");
    ip("-6 route add local 2606:4700:1:2::/64 dev lo");
    ip("-6 address add 2606:4700:1:2::2/64 dev lo nodad");
    ip("address add 104.16.0.1/32 dev lo");
    ip("address add 23.10.0.1/32 dev lo");
    let receiver = Receiver::start_on("[::]:0", &["200 OK"]).await;
    let port = receiver.port();
    let allowed = format!("23.10.0.1:{port}");
    let host = TestHost::start_with_clock(&[
        "--webhook-allow",
        &allowed,
        "--egress-deny",
        "104.16.0.0/12,23.10.0.0/16",
    ]);
    let client = host.client();
    let listed = json!({ "allowedHosts": [format!("own.example:{port}")] });
    host.deploy(&guests::playground(), "near", listed).await;

    let own = "of this host or of its own network";
    let denied = "that the operator of this host denies";
    for (name, reason) in [
        ("93.184.216.34", own),
        ("[::ffff:93.184.216.34]", own),
        ("1572395042", own),
        ("45.33.32.77", own),
        ("[2606:4700:1:2::1]", own),
        ("[2606:4700:1:2::77]", own),
        ("[2002:5db8:d822::1]", own),
        ("[64:ff9b::5db8:d822]", own),
        ("own.example", own),
        ("near.example", own),
        ("104.16.0.1", denied),
        ("[::ffff:104.16.0.1]", denied),
        ("168.63.129.16", "that is not public"),
    ] {
        let url = format!("http://{name}:{port}/");
        let said = match name.ends_with(".example") {
            true => {
                let log = call(&client, &url).await;
                let end = (&log["state"], &log["attempts"]);
                assert_eq!(end, (&json!("GIVEN_UP"), &json!(1)), "{log}");
                log["lastError"].as_str().unwrap().to_owned()
            }
            // An address is refused with its submission.
            false => submit(&client, &url).await.refused(400),
        };
        assert!(said.contains(reason) && said.contains("--webhook-allow"), "{name}: {said}");
    }
    let input = json!({ "op": "fetch", "url": format!("http://own.example:{port}/") });
    let document = client.finish("near", input).await;
    assert_eq!(document["status"], "FAILED", "{document}");
    let image = json!({ "id": "i", "name": "i", "imageName": "own.example:5000/x:1" });
    let refused = client.post("/v1/templates", &image).await.refused(400);
    assert!(refused.contains(own) && refused.contains("--registry-allow"), "{refused}");
    assert_eq!(receiver.connections(), 0);

    // The operator's permission has precedence over denied networks and the host's own.
    let log = call(&client, &format!("http://{allowed}/")).await;
    assert_eq!(log["state"], "DELIVERED", "{log}");
    // Interfaces change while the host runs.
    ip("address add 8.20.0.1/32 dev lo");
    eventually("the new address to be refused", async || {
        let answer = submit(&client, &format!("http://8.20.0.1:{port}/")).await;
        (answer.status == 400).then_some(())
    })
    .await;
}

async fn submit(client: &Client, url: &str) -> Answer {
    let body = json!({ "input": { "op": "echo" }, "webhook": url });
    client.post(&client.path("near", "run"), &body).await
}

/// Makes a job call this URL, and returns its end.
async fn call(client: &Client, url: &str) -> Value {
    let answer = submit(client, url).await.ok();
    eventually("the call's end", async || {
        let log = client.get("/v1/endpoints/near/deliveries").await.ok();
        let is_over = log[0]["jobId"] == answer["id"] && log[0]["state"] != "PENDING";
        is_over.then(|| log[0].clone())
    })
    .await
}
