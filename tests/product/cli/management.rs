//! `gristmill templates`, `endpoints` and `logs`.

use gristmill_tests::{eventually, guests, machine_name, shared_host};
use reqwest::Method;
use serde_json::json;

use crate::command::{on, run};

#[tokio::test]
async fn templates_and_endpoints_are_made_listed_changed_and_deleted() {
    let host = shared_host();
    host.upload("cli-mill:1", std::fs::read(guests::echo()).unwrap()).await.ok();
    let words = "templates create --name cli-template --image cli-mill:1 --env GRAIN=rye --json";
    let template = run(on(&host), words).succeeded().json();
    let id = template["id"].as_str().unwrap();
    run(on(&host), words).failed(1, &["cli-template", "exists already"]);

    let words = format!("endpoints create --id cli-made --template {id} --scaler queue-delay:4");
    let shown = run(on(&host), &words).succeeded();
    assert!(
        shown.stdout.contains("scalerType") && shown.stdout.contains("QUEUE_DELAY"),
        "{shown:?}"
    );
    let listed = run(on(&host), "endpoints list").succeeded().stdout;
    let line = listed.lines().find(|line| line.starts_with("cli-made")).unwrap();
    assert!(line.contains("queue-delay:4") && line.contains("0-16"), "{listed}");
    let listed = run(on(&host), "templates list").succeeded().stdout;
    assert!(listed.contains("cli-mill:1") && listed.contains("private"), "{listed}");
    let shown = run(on(&host), &format!("templates get {id}")).succeeded().stdout;
    assert!(shown.contains("cli-template"), "one in use is found: {shown}");

    // The variables of the template are the handler's too; secrets are hidden, except in JSON.
    let words = format!("templates update {id} --env GRAIN=rye --env MILL_TOKEN=s3cret");
    let shown = run(on(&host), &words).succeeded().stdout;
    assert!(shown.contains("MILL_TOKEN") && !shown.contains("s3cret"), "{shown}");
    let shown = run(on(&host), "endpoints get cli-made").succeeded().stdout;
    let line = shown.lines().find(|line| line.starts_with("templateEnv")).unwrap();
    assert!(line.contains(r#""GRAIN":"rye","MILL_TOKEN":"***""#), "{line}");
    let shown = run(on(&host), &format!("templates get {id} --json")).succeeded().json();
    assert_eq!(shown["env"]["MILL_TOKEN"], "s3cret");

    let words = "endpoints update cli-made --workers-max 3 --scaler request-count:2 --json";
    let changed = run(on(&host), words).succeeded().json();
    assert_eq!((&changed["workersMax"], &changed["scalerValue"]), (&3.into(), &2.into()));
    assert_eq!(changed["version"], 3, "the second is of the template");
    let paused = run(on(&host), "endpoints update cli-made --paused --json").succeeded().json();
    assert_eq!((&paused["paused"], &paused["workersMax"]), (&true.into(), &3.into()));
    let listed = run(on(&host), "endpoints list").succeeded().stdout;
    assert!(listed.contains("0-3 (paused)"), "{listed}");
    let words = "endpoints update cli-made --paused false --json";
    assert_eq!(run(on(&host), words).succeeded().json()["paused"], false);
    run(on(&host), &format!("templates delete {id}")).failed(1, &["in use"]);
    run(on(&host), "endpoints delete cli-made").succeeded();
    run(on(&host), "endpoints get cli-made").failed(1, &["not found"]);
    run(on(&host), &format!("templates delete {id}")).succeeded();
}

#[tokio::test]
async fn a_deploy_is_rolled_back_with_one_command() {
    let host = shared_host();
    let [first, second] =
        [guests::playground(), guests::echo()].map(|path| path.display().to_string());
    run(on(&host), &format!("deploy {first} --name cli-back")).succeeded();
    run(on(&host), &format!("deploy {second} --name cli-back")).succeeded();
    let input = "{\"op\":\"echo\",\"value\":1}";
    let submit = format!("submit cli-back --wait --json --input {input}");
    let job = run(on(&host), &submit).succeeded().json();
    assert_eq!(job["output"]["op"], "echo", "the second returns its input: {job}");
    let back = run(on(&host), "endpoints rollback cli-back").succeeded();
    assert!(back.stderr.contains("as version 3"), "{back:?}");
    let job = run(on(&host), &submit).succeeded().json();
    assert_eq!(job["output"]["echo"], 1, "{job}");
    assert!(job["workerId"].as_str().unwrap().ends_with("-v3"), "{job}");
    let listed = run(on(&host), "endpoints releases cli-back").succeeded().stdout;
    assert_eq!(listed.lines().count(), 4, "{listed}");
    run(on(&host), "endpoints rollback cli-back --to 7").failed(1, &["1, 2, 3"]);
    // The next deploy runs its own component.
    run(on(&host), &format!("deploy {second} --name cli-back")).succeeded();
    let job = run(on(&host), &submit).succeeded().json();
    assert_eq!(job["output"]["op"], "echo", "{job}");
}

#[tokio::test]
async fn requests_are_listed_by_status() {
    let host = shared_host();
    let settings = json!({ "type": "LOAD_BALANCER" });
    let site = host.deploy(&guests::http_playground(), "cli-requests", settings).await;
    for path in ["/", "/status?code=503"] {
        let path = format!("/http/{site}{path}");
        let answer = host.client.request(Method::GET, &path).send().await.unwrap();
        answer.bytes().await.unwrap();
    }
    let listed = eventually("both requests", async || {
        let listed = run(on(&host), &format!("endpoints requests {site}")).succeeded().stdout;
        (listed.lines().count() == 3).then_some(listed)
    })
    .await;
    assert!(listed.contains("/status") && !listed.contains("code="), "{listed}");
    let words = format!("endpoints requests {site} --status 5xx --json");
    let failed = run(on(&host), &words).succeeded().json();
    assert_eq!((failed.as_array().unwrap().len(), &failed[0]["status"]), (1, &503.into()));
    let words = format!("endpoints requests {site} --status many");
    run(on(&host), &words).failed(1, &["`5xx`"]);
}

#[tokio::test]
async fn webhooks_are_listed_and_their_secret_is_replaced() {
    let host = shared_host();
    let playground = guests::playground().display().to_string();
    let words = format!("deploy {playground} --name cli-hooks --json");
    let made = run(on(&host), &words).succeeded().json();
    let url = format!("http://{}:9/hook", machine_name());
    let job = json!({ "input": { "op": "echo" }, "webhook": url });
    let job = host.client.post("/v2/cli-hooks/run", &job).await.ok();
    let listed = eventually("the webhook to be given up", async || {
        let listed = run(on(&host), "endpoints deliveries cli-hooks").succeeded().stdout;
        listed.contains("GIVEN_UP").then_some(listed)
    })
    .await;
    let id = job["id"].as_str().unwrap();
    assert!(listed.contains(id) && listed.contains(&url), "{listed}");
    assert!(listed.contains(&format!("--webhook-allow {}:9", machine_name())), "{listed}");
    let rotated = run(on(&host), "endpoints rotate-webhook-secret cli-hooks").succeeded();
    let secret = rotated.stdout.trim();
    assert!(secret.starts_with("whsec_"), "{rotated:?}");
    assert_ne!(made["webhookSecret"], secret);
    run(on(&host), "endpoints deliveries cli-none").failed(1, &["not found"]);
}

#[tokio::test]
async fn log_lines_of_handlers_are_shown() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "cli-logs", serde_json::json!({})).await;
    let mut jobs = vec![];
    for message in ["one", "two"] {
        let input = serde_json::json!({ "op": "log", "message": message });
        jobs.push(host.client.finish(&endpoint, input).await["id"].as_str().unwrap().to_owned());
    }
    let shown = run(on(&host), "logs cli-logs").succeeded().stdout;
    assert!(
        shown.lines().count() == 2 && shown.contains("info") && shown.ends_with("two\n"),
        "{shown}"
    );
    let first =
        run(on(&host), &format!("logs cli-logs --job {} --json", jobs[0])).succeeded().json();
    assert_eq!((&first["line"], &first["jobId"]), (&"one".into(), &jobs[0].clone().into()));
    run(on(&host), "logs cli-nothing").failed(1, &["not found"]);
    run(on(&host), "logs cli-nothing --follow").failed(1, &["not found"]);
}
