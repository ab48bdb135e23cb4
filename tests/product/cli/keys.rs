//! `gristmill keys`, and the sources of a command's key.

use gristmill_tests::{command, guests, shared_host};
use reqwest::Method;
use serde_json::json;

use crate::command::{on, run};

#[tokio::test]
async fn a_key_is_made_listed_used_and_revoked() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-keys", json!({})).await;
    let words = "keys create --name ci --scope submit --endpoint cli-keys --json";
    let made = run(on(&host), words).succeeded().json();
    let note = "no endpoint `nope` yet";
    let words = "keys create --name early --scope submit --endpoint nope --endpoint cli-keys";
    let early = run(on(&host), words).succeeded();
    assert!(early.stderr.contains(note) && !early.stderr.contains("cli-keys"), "{early:?}");
    let words = "keys create --name other --owner cli-miller --scope submit --endpoint cli-keys";
    let others = run(on(&host), words).succeeded();
    assert!(others.stderr.contains("`cli-miller` has no endpoint `cli-keys`"), "{others:?}");
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let listed = run(on(&host), "keys list --json").succeeded();
    assert!(listed.stdout.contains(id) && !listed.stdout.contains(key), "{listed:?}");
    let mine = || {
        let mut command = on(&host);
        command.env("GRISTMILL_API_KEY", key);
        command
    };
    run(mine(), "submit cli-keys --wait --input {\"op\":\"echo\"}").succeeded();
    run(mine(), "keys list").failed(1, &["scope"]);
    run(on(&host), &format!("keys revoke {id}")).succeeded();
    run(mine(), "health cli-keys").failed(1, &["key"]);
    run(on(&host), &format!("keys revoke {id}")).failed(1, &["not found"]);
    let owned = "keys create --name miller --owner cli-miller --scope manage --json";
    assert_eq!(run(on(&host), owned).succeeded().json()["owner"], "cli-miller");
    let listed = run(on(&host), "keys list").succeeded();
    assert!(listed.stdout.contains("cli-miller"), "{listed:?}");
    run(on(&host), "keys create --name x --owner cli-miller --scope admin").failed(1, &["admin"]);
    // Without --json only the key is printed, ready for a variable.
    let shown = run(on(&host), "keys create --name plain --scope read").succeeded();
    assert!(shown.line().starts_with("gm_"), "{shown:?}");
}

#[tokio::test]
async fn without_a_key_the_admin_key_of_the_data_directory_is_used() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-admin", json!({})).await;
    let mut with_data = command();
    with_data.env("GRISTMILL_URL", host.url());
    let words = format!("health cli-admin --data-dir {}", host.data_dir().display());
    run(with_data, &words).succeeded();
    let mut without = command();
    without.env("GRISTMILL_URL", host.url()).current_dir(host.scratch());
    run(without, "health cli-admin").failed(1, &["key"]);
}

#[tokio::test]
async fn a_link_to_the_console_is_printed() {
    let host = shared_host();
    let shown = run(on(&host), "console").succeeded();
    let (page, link) = shown.line().split_once("#/enter/").unwrap();
    assert_eq!(page, format!("{}/console/", host.url()));
    let login = host.client.with_authorization(None).request(Method::POST, "/console/session");
    let login = login.header("x-gristmill-console", "1").json(&json!({ "link": link }));
    let answer = host.client.send(login).await.ok();
    assert_eq!(answer["key"]["scopes"], json!(["admin"]));
    let mut without = command();
    without.env("GRISTMILL_URL", host.url()).current_dir(host.scratch());
    run(without, "console").failed(1, &["key"]);
}
