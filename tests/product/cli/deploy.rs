//! `gristmill deploy`.

use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::json;

use crate::command::{on, run, run_args};

#[tokio::test]
async fn deploy_makes_an_endpoint_and_updates_it() {
    let host = shared_host();
    let playground = guests::playground().display().to_string();
    let words =
        format!("deploy {playground} --name cli-deploy --env GRAIN=rye --workers-max 3 --json");
    let first = run(on(&host), &words).succeeded().json();
    assert!(first.to_string().contains("/v2/cli-deploy/run"), "the URLs are shown: {first}");
    let endpoint = host.client.get("/v1/endpoints/cli-deploy").await.ok();
    assert_eq!(endpoint["workersMax"], 3, "{endpoint}");
    let read = json!({ "op": "env", "name": "GRAIN" });
    let document = host.client.finish("cli-deploy", read.clone()).await;
    assert_eq!(document["output"], json!({ "env": "rye" }), "{document}");

    // A second deploy changes the given settings, and runs the new component.
    let words = format!("deploy {playground} --name cli-deploy --env GRAIN=oat --json");
    run(on(&host), &words).succeeded().json();
    let endpoint = host.client.get("/v1/endpoints/cli-deploy").await.ok();
    assert_eq!(endpoint["workersMax"], 3, "{endpoint}");
    let document = host.client.finish("cli-deploy", read).await;
    assert_eq!(document["output"], json!({ "env": "oat" }), "{document}");
    let echo = guests::echo().display().to_string();
    run(on(&host), &format!("deploy {echo} --name cli-deploy")).succeeded();
    let document = host.client.finish("cli-deploy", json!({ "a": 1 })).await;
    assert_eq!(document["output"], json!({ "a": 1 }), "{document}");
}

#[tokio::test]
async fn deploy_prints_the_urls_for_people_and_no_colours_into_a_pipe() {
    let host = shared_host();
    let echo = guests::echo().display().to_string();
    let shown = run(on(&host), &format!("deploy {echo} --name cli-people")).succeeded();
    let url = format!("{}/v2/cli-people/run", host.url());
    assert!(format!("{}{}", shown.stdout, shown.stderr).contains(&url), "{shown:?}");
    assert!(!shown.stdout.contains('\u{1b}') && !shown.stderr.contains('\u{1b}'), "{shown:?}");
}

/// The exports of the component choose the type of a new endpoint, and must fit an existing one.
#[tokio::test]
async fn a_handler_of_http_gets_an_endpoint_of_its_own_type() {
    let host = shared_host();
    let site = guests::http_playground().display().to_string();
    let said = run(on(&host), &format!("deploy {site} --name cli-site")).succeeded();
    let url = format!("{}/http/cli-site/", host.url());
    assert!(said.stdout.contains(&url), "{said:?}");
    assert!(
        said.stderr
            .contains(&format!("curl -H \"Authorization: Bearer $GRISTMILL_API_KEY\" {url}"))
    );
    let endpoint = host.client.get("/v1/endpoints/cli-site").await.ok();
    assert_eq!(endpoint["type"], "LOAD_BALANCER", "{endpoint}");
    assert_eq!(host.client.get("/http/cli-site/").await.text, "hello\n");
    // Nothing that runs is changed by a deploy that is refused.
    let echo = guests::echo().display().to_string();
    run(on(&host), &format!("deploy {echo} --name cli-site")).failed(1, &["cannot be changed"]);
    assert_eq!(host.client.get("/http/cli-site/").await.text, "hello\n");
    run(on(&host), &format!("deploy {site} --name cli-site --workers-max 2")).succeeded();
    // Another endpoint may have had the name and its template before.
    host.client.delete("/v1/endpoints/cli-site").await;
    run(on(&host), &format!("deploy {echo} --name cli-site")).succeeded();
    let endpoint = host.client.get("/v1/endpoints/cli-site").await.ok();
    assert_eq!(endpoint["type"], "QUEUE", "{endpoint}");
}

#[tokio::test]
async fn deploy_suggests_the_projects_own_input() {
    let host = shared_host();
    let project = crate::project::project("[endpoints]\ncall = [\"cli-other\"]\n");
    let suggested = |more: &str| {
        let words = format!("deploy {} --name cli-suggests {more}", project.path().display());
        run(on(&host), &words).succeeded().stderr
    };
    assert!(suggested("").contains("--input '{}'"));
    let shown = host.client.get("/v1/endpoints/cli-suggests").await.ok();
    assert_eq!(shown["callEndpoints"], json!(["cli-other"]), "{shown}");
    let input = project.path().join("test_input.json");
    std::fs::write(&input, r#"{"input":{"op":"echo","value":7}}"#).unwrap();
    let said = suggested("--call-endpoint cli-suggests");
    assert!(said.contains(r#"--input '{"op":"echo","value":7}' --wait"#), "{said}");
    let shown = host.client.get("/v1/endpoints/cli-suggests").await.ok();
    assert_eq!(shown["callEndpoints"], json!(["cli-suggests"]), "{shown}");
    let long = "x".repeat(200);
    std::fs::write(&input, format!(r#"{{"input":{{"op":"echo","value":"{long}"}}}}"#)).unwrap();
    assert!(suggested("").contains("--input @FILE"));
}

#[tokio::test]
async fn a_sample_is_deployed_without_a_project() {
    let host = TestHost::start();
    let nowhere = tempfile::tempdir().unwrap();
    let deploy = |more: &str| {
        let mut deploy = on(&host);
        deploy.current_dir(&nowhere);
        run(deploy, &format!("deploy --sample {more}"))
    };
    let said = deploy("word-count").succeeded().stderr;
    let next = r#"gristmill submit word-count --input '{"text":"to be or not to be"}' --wait"#;
    assert_eq!(said.trim_end().lines().last().map(str::trim), Some(next), "{said}");
    let words = ["submit", "word-count", "--input", r#"{"text":"to be"}"#, "--wait"];
    let output = run_args(on(&host), words, "").succeeded().json();
    assert_eq!(output["words"], 2, "{output}");

    let report = deploy("echo --name mine --workers-max 2 --env A=b --json").succeeded().json();
    assert_eq!(report["image"], "mine:latest", "{report}");
    let endpoint = host.client().get("/v1/endpoints/mine").await.ok();
    assert_eq!(endpoint["workersMax"], 2, "{endpoint}");

    deploy("words").failed(2, &["'words'", "word-count, chat, echo"]);
    let echo = guests::echo().display().to_string();
    deploy(&format!("echo {echo}")).failed(2, &["cannot be used with"]);
}

#[tokio::test]
async fn a_deploy_of_the_same_component_does_not_say_that_it_was_compiled() {
    // No other test deletes a handler with the same component there.
    let host = TestHost::start();
    let echo = guests::echo().display().to_string();
    let deploy = || run(on(&host), &format!("deploy {echo} --name cli-again")).succeeded().stderr;
    deploy();
    let again = deploy();
    assert!(again.contains("compiled before"), "{again}");
}

#[tokio::test]
async fn a_deploy_changes_only_settings_that_an_option_or_a_table_of_the_project_names() {
    let host = shared_host();
    let project = crate::project::project("");
    let deploy = |options: &str| {
        let words = format!("deploy {} --name cli-keeps {options}", project.path().display());
        run(on(&host), &words).succeeded();
    };
    let settings = async || {
        let endpoint = host.client.get("/v1/endpoints/cli-keeps").await.ok();
        let read = json!({ "op": "env", "name": "GRAIN" });
        let document = host.client.finish("cli-keeps", read).await;
        json!([
            endpoint["allowedHosts"],
            endpoint["callEndpoints"],
            endpoint["workersMax"],
            document["output"]["env"],
        ])
    };
    deploy("--env GRAIN=rye --allow-host example.com --call-endpoint cli-other --workers-max 2");
    let first = json!([["example.com"], ["cli-other"], 2, "rye"]);
    assert_eq!(settings().await, first);
    deploy("");
    assert_eq!(settings().await, first);
    deploy("--env MILL=old");
    let expected = json!([["example.com"], ["cli-other"], 2, null]);
    assert_eq!(settings().await, expected, "the variables of an option replace all");

    let tables = "[env]\nGRAIN = \"oat\"\n[network]\nallow = [\"example.org\"]\n[endpoints]\n";
    crate::project::write(project.path(), tables);
    deploy("");
    assert_eq!(settings().await, json!([["example.org"], [], 2, "oat"]));
    crate::project::write(project.path(), "[env]\n[network]\n");
    deploy("--call-endpoint cli-other");
    assert_eq!(settings().await, json!([[], ["cli-other"], 2, null]));
}

#[tokio::test]
async fn deploy_refuses_files_that_are_no_handler() {
    let host = shared_host();
    let missing = host.scratch().join("not-there.wasm");
    let text = host.scratch().join("text.wasm");
    let core = host.scratch().join("core.wasm");
    std::fs::write(&text, "fn main() {}").unwrap();
    std::fs::write(&core, wat::parse_str("(module)").unwrap()).unwrap();
    for (file, word) in [(missing, "not-there.wasm"), (text, "webassembly"), (core, "component")] {
        let file = file.display().to_string();
        let arguments = ["deploy", &file, "--name", "cli-refused"];
        let shown = run_args(on(&host), arguments, "").failed(1, &[word]);
        assert!(shown.stdout.is_empty(), "{shown:?}");
    }
    host.client.get("/v1/endpoints/cli-refused").await.refused(404);
    let echo = guests::echo().display().to_string();
    run(on(&host), &format!("deploy {echo} --name bad/name")).failed(2, &["bad/name"]);
    run(on(&host), &format!("deploy {echo}")).failed(2, &["--name"]);
}

#[tokio::test]
async fn a_deploy_that_is_refused_changes_nothing_that_runs() {
    let host = shared_host();
    let [playground, echo] =
        [guests::playground(), guests::echo()].map(|file| file.display().to_string());
    let name = "cli-whole";
    let first = format!("deploy {playground} --name {name} --env GRAIN=rye --workers-max 3 --json");
    let created = run(on(&host), &first).succeeded().json();
    assert!(created["webhookSecret"].as_str().unwrap().starts_with("whsec_"), "{created}");
    let settings = async || {
        let template = format!("/v1/templates/{name}?includeEndpointBoundTemplates=true");
        let endpoint = format!("/v1/endpoints/{name}");
        (host.client.get(&template).await.ok(), host.client.get(&endpoint).await.ok())
    };
    let before = settings().await;
    let text = host.scratch().join("no-component.wasm");
    std::fs::write(&text, "fn main() {}").unwrap();
    for (file, options, word) in [
        (echo.as_str(), "--workers-min 4 --env GRAIN=oat", "`workersmin` must be 0 to 3"),
        (echo.as_str(), "--volume none --env GRAIN=oat", "networkvolumeid"),
        (text.to_str().unwrap(), "--workers-max 2 --env GRAIN=oat", "component"),
    ] {
        run(on(&host), &format!("deploy {file} --name {name} {options}")).failed(1, &[word]);
        assert_eq!(settings().await, before, "{options}");
        let read = json!({ "op": "env", "name": "GRAIN" });
        let document = host.client.finish(name, read).await;
        assert_eq!(document["output"], json!({ "env": "rye" }), "{options}: {document}");
    }
    let updated = run(on(&host), &format!("deploy {echo} --name {name} --json")).succeeded();
    assert_eq!(updated.json().get("webhookSecret"), None, "only a new endpoint's is shown");
}
