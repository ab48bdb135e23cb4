//! Changes of versions and settings while an endpoint works.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gristmill_tests::{TestHost, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

async fn upload(host: &TestHost, reference: &str, component: std::path::PathBuf) {
    host.upload(reference, std::fs::read(component).unwrap()).await.ok();
}

/// The version of the endpoint that ran a job.
fn version(document: &Value) -> u32 {
    let worker = document["workerId"].as_str().unwrap_or_else(|| panic!("{document}"));
    worker.rsplit_once("-v").unwrap_or_else(|| panic!("{document}")).1.parse().unwrap()
}

#[tokio::test]
async fn the_next_job_runs_the_new_version_and_the_running_one_ends_as_it_began() {
    let host = shared_host();
    upload(&host, "deploy-image:latest", guests::playground()).await;
    let settings = json!({ "workersMax": 2 });
    let endpoint = host.deploy_image("deploy-image:latest", "deploy", settings).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 15_000 })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;

    upload(&host, "deploy-image:latest", guests::echo()).await;
    let document = host.client.status(&endpoint, &running).await.ok();
    assert_eq!(document["status"], "IN_PROGRESS", "{document}");
    let input = json!({ "op": "echo", "value": 1 });
    let next = host.client.finish(&endpoint, input.clone()).await;
    assert_eq!(next["output"], input, "the new version returns its input");
    let document = host.client.until(&endpoint, &running, "COMPLETED").await;
    assert_eq!(document["output"]["slept"], 15_000, "{document}");

    upload(&host, "deploy-image:latest", guests::playground()).await;
    let next = host.client.finish(&endpoint, input).await;
    assert_eq!(next["output"], json!({ "echo": 1 }), "and back");
}

#[tokio::test]
async fn jobs_flow_on_without_a_loss_while_versions_change() {
    let host = shared_host();
    upload(&host, "deploy-flow:latest", guests::playground()).await;
    let endpoint = host.deploy_image("deploy-flow:latest", "deploy-flow", json!({})).await;
    let input = json!({ "op": "echo", "value": 1 });
    let (is_over, ended) = (AtomicBool::new(false), AtomicUsize::new(0));
    let flow = async {
        let (mut outputs, mut after) = (vec![], 0);
        // Through all changes, and some time longer.
        while after < 20 {
            after += u32::from(is_over.load(Ordering::Relaxed));
            let document = host.client.run_sync(&endpoint, "", input.clone()).await.ok();
            assert_eq!(document["status"], "COMPLETED", "{document}");
            // Each shows its version: the second and the fourth are the echo handler.
            let is_echo = version(&document).is_multiple_of(2);
            let output = document["output"].clone();
            assert_eq!(output == input, is_echo, "{document}");
            outputs.push(output);
            ended.store(outputs.len(), Ordering::Relaxed);
        }
        outputs
    };
    let changes = async {
        for component in [guests::echo(), guests::playground(), guests::echo()] {
            let before = ended.load(Ordering::Relaxed);
            eventually("some jobs of this version", async || {
                (ended.load(Ordering::Relaxed) >= before + 3).then_some(())
            })
            .await;
            upload(&host, "deploy-flow:latest", component).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (outputs, ()) = tokio::join!(flow, changes);
    let old = outputs.iter().filter(|output| **output == json!({ "echo": 1 })).count();
    let new = outputs.iter().filter(|output| **output == input).count();
    println!("while versions changed, {old} jobs ran the playground and {new} the echo");
    assert_eq!(old + new, outputs.len());
    assert!(old > 0 && new >= 20);
}

#[tokio::test]
async fn changed_settings_hold_from_the_next_job_on() {
    let host = shared_host();
    let settings = json!({ "env": { "GRAIN": "rye" } });
    let endpoint = host.deploy(&guests::playground(), "deploy-env", settings).await;
    let read = json!({ "op": "env", "name": "GRAIN" });
    let document = host.client.finish(&endpoint, read.clone()).await;
    assert_eq!(document["output"], json!({ "env": "rye" }));
    let path = format!("/v1/endpoints/{endpoint}");
    host.client.patch(&path, &json!({ "env": { "GRAIN": "oat" } })).await.ok();
    let document = host.client.finish(&endpoint, read).await;
    assert_eq!(document["output"], json!({ "env": "oat" }));
}

#[tokio::test]
async fn deleting_an_endpoint_deletes_its_jobs() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "deploy-delete", settings).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let queued = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    assert_eq!(host.client.delete(&format!("/v1/endpoints/{endpoint}")).await.status, 204);
    for job in [&running, &queued] {
        host.client.status(&endpoint, job).await.refused(404);
    }
    host.client.run(&endpoint, json!({ "op": "echo" })).await.refused(404);
    // A new endpoint of that name starts empty.
    let body = json!({ "id": endpoint, "templateId": endpoint });
    host.client.post("/v1/endpoints", &body).await.ok();
    host.client.status(&endpoint, &queued).await.refused(404);
    assert_eq!(host.client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    assert_eq!(host.client.health(&endpoint).await["jobs"]["completed"], 1);
}

#[tokio::test]
async fn an_endpoint_goes_back_to_an_earlier_handler() {
    let mut host = TestHost::start();
    upload(&host, "mill:1", guests::playground()).await;
    let template = json!({ "templateEnv": { "STONE": "granite" } });
    let endpoint = host.deploy_image("mill:1", "mill", template).await;
    let client = host.client();
    let (rollback, releases) = (
        format!("/v1/endpoints/{endpoint}/rollback"),
        format!("/v1/endpoints/{endpoint}/releases"),
    );
    let nowhere = client.post_empty(&rollback).await.refused(400);
    assert!(nowhere.contains("no other handler"), "{nowhere}");

    upload(&host, "mill:2", guests::echo()).await;
    let template = format!("/v1/templates/{endpoint}");
    client.patch(&template, &json!({ "imageName": "mill:2" })).await.ok();
    let settings = json!({ "env": { "GRAIN": "rye" } });
    client.patch(&format!("/v1/endpoints/{endpoint}"), &settings).await.ok();
    let unchanged = client.patch(&format!("/v1/endpoints/{endpoint}"), &settings).await.ok();
    assert_eq!(unchanged["version"], 3, "the handler, and the settings once");
    let listed = client.get(&releases).await.ok();
    let pairs = |listed: &Value| -> Vec<(Value, Value)> {
        let releases = listed.as_array().unwrap().iter();
        releases.map(|release| (release["version"].clone(), release["image"].clone())).collect()
    };
    assert_eq!(pairs(&listed), [(json!(2), json!("mill:2")), (json!(1), json!("mill:1"))]);

    let input = json!({ "op": "echo", "value": 1 });
    let back = client.post_empty(&rollback).await.ok();
    assert_eq!((&back["version"], &back["sha256"]), (&json!(4), &listed[1]["sha256"]), "{back}");
    let document = client.finish(&endpoint, input.clone()).await;
    assert_eq!((version(&document), &document["output"]), (4, &json!({ "echo": 1 })));
    let settings = client.get(&format!("/v1/endpoints/{endpoint}")).await.ok();
    assert_eq!(settings["env"], json!({ "GRAIN": "rye" }), "the settings stay");
    for (name, value) in [("GRAIN", "rye"), ("STONE", "granite")] {
        let found = client.finish(&endpoint, json!({ "op": "env", "name": name })).await;
        assert_eq!(found["output"], json!({ "env": value }), "{found}");
    }

    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!(client.get(&releases).await.ok().as_array().unwrap().len(), 3);
    let forward = client.post(&rollback, &json!({ "version": 2 })).await.ok();
    assert_eq!(forward["sha256"], listed[0]["sha256"], "{forward}");
    assert_eq!(client.finish(&endpoint, input.clone()).await["output"], input);
    let unknown = client.post(&rollback, &json!({ "version": 3 })).await.refused(400);
    assert!(unknown.contains("1, 2, 4, 5"), "{unknown}");

    // With a shared template, both endpoints would be rolled back.
    let other = json!({ "id": "other", "templateId": endpoint });
    client.post("/v1/endpoints", &other).await.ok();
    let shared = client.post_empty(&rollback).await.refused(400);
    assert!(shared.contains("`other`"), "{shared}");
}

#[tokio::test]
async fn an_endpoint_has_limits_of_its_own() {
    let host = shared_host();
    let limits =
        json!({ "cancel": { "callsPer10s": 2 }, "run": { "callsPer10s": 100, "concurrent": 1 } });
    let settings = json!({
        "workersMax": 0, "maxWaitingJobs": 3, "rateLimits": limits,
        "scalerType": "QUEUE_DELAY", "scalerValue": 7,
    });
    let endpoint = host.deploy(&guests::playground(), "deploy-limits", settings).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let shown = host.client.get(&path).await.ok();
    assert_eq!((&shown["maxWaitingJobs"], &shown["scalerValue"]), (&json!(3), &json!(7)));
    assert_eq!(shown["scalerType"], "QUEUE_DELAY");
    assert_eq!(shown["rateLimits"]["cancel"], json!({ "callsPer10s": 2, "callsPerWorker": 0 }));

    let mut jobs = vec![];
    for _ in 0..3 {
        jobs.push(host.client.submit(&endpoint, json!({ "op": "echo" })).await);
    }
    let full = host.client.run(&endpoint, json!({ "op": "echo" })).await.refused(429);
    assert!(full.contains('3'), "{full}");
    for job in &jobs[..2] {
        host.client.cancel(&endpoint, job).await.ok();
    }
    let fast = host.client.cancel(&endpoint, &jobs[2]).await.refused(429);
    assert!(fast.contains("at most 2"), "{fast}");
    // Without them the host's limits apply.
    let shown =
        host.client.patch(&path, &json!({ "maxWaitingJobs": 0, "rateLimits": {} })).await.ok();
    assert_eq!((&shown["rateLimits"], shown.get("maxWaitingJobs")), (&json!({}), None));
    host.client.cancel(&endpoint, &jobs[2]).await.ok();

    let mistakes = [
        (json!({ "scalerValue": 0 }), "`scalerValue` must be 1 to 3600"),
        (json!({ "scalerType": "OFTEN" }), "QUEUE_DELAY"),
        (json!({ "maxWaitingJobs": 10_000_001 }), "`maxWaitingJobs` must be 1 to 10000000"),
        (json!({ "rateLimits": { "walk": { "callsPer10s": 1 } } }), "`walk`"),
        (json!({ "rateLimits": { "run": { "calls": 1 } } }), "`calls`"),
        (json!({ "rateLimits": { "run": { "callsPer10s": -1 } } }), "rateLimits.run.callsPer10s"),
        (
            json!({ "rateLimits": { "run": { "callsPer10s": 0, "callsPerWorker": 9 } } }),
            "`rateLimits.run.callsPer10s` must be 1 to 4294967295, not 0",
        ),
        (
            json!({ "rateLimits": { "run": { "callsPer10s": 1, "concurrent": 0 } } }),
            "`rateLimits.run.concurrent` must be 1 to 4294967295, not 0",
        ),
    ];
    for (body, expected) in mistakes {
        let refused = host.client.patch(&path, &body).await.refused(400);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn a_dry_run_checks_a_change_and_makes_none() {
    let host = shared_host();
    let client = &host.client;
    let endpoint = host.deploy(&guests::playground(), "deploy-dry", json!({})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let template_path = format!("/v1/templates/{endpoint}?includeEndpointBoundTemplates=true");
    let before = (client.get(&path).await.ok(), client.get(&template_path).await.ok());
    let dry = |path: &str| format!("{path}?dryRun=true");

    let new = json!({ "id": "deploy-dry-new", "name": "deploy-dry-new", "imageName": "i" });
    let bound = json!({ "id": "deploy-dry-new", "templateId": endpoint });
    let remote = json!({ "imageName": "registry.example/mill:1" });
    let template = format!("/v1/templates/{endpoint}");
    for (method, path, body) in [
        (Method::POST, "/v1/templates", &new),
        (Method::POST, "/v1/endpoints", &bound),
        (Method::PATCH, &path, &json!({ "workersMax": 7, "env": { "A": "b" } })),
        (Method::PATCH, &template, &json!({ "env": { "A": "b" }, "readme": "new" })),
        // The image is not fetched.
        (Method::PATCH, &template, &remote),
    ] {
        let answer = client.request(method, &dry(path)).json(body).send().await.unwrap();
        assert_eq!(answer.status(), 204, "{path} {body}");
    }
    for (method, path, body, expected) in [
        (Method::POST, "/v1/templates", json!({ "name": endpoint, "imageName": "i" }), "exists"),
        (
            Method::POST,
            "/v1/endpoints",
            json!({ "id": endpoint, "templateId": endpoint }),
            "exists",
        ),
        (Method::PATCH, &path, json!({ "workersMin": 99 }), "`workersMin` must be 0 to"),
        (Method::PATCH, &path, json!({ "id": "other" }), "`id` cannot be changed"),
        (Method::PATCH, &template, json!({ "imageName": "registry.example/M:1" }), "imageName"),
        (Method::PATCH, &template, json!({ "id": "other" }), "`id` cannot be changed"),
    ] {
        let answer = client.request(method, &dry(path)).json(&body).send().await.unwrap();
        let (status, said) = (answer.status(), answer.text().await.unwrap());
        assert!(status == 400 && said.contains(expected), "{path} {body}: {said}");
    }
    let wrong = client.patch(&format!("{path}?dryRun=maybe"), &json!({})).await.refused(400);
    assert!(wrong.contains("`dryRun` must be true or false"), "{wrong}");
    client.patch(&dry("/v1/endpoints/deploy-dry-new"), &json!({})).await.refused(404);

    let after = (client.get(&path).await.ok(), client.get(&template_path).await.ok());
    assert_eq!(after, before);
    client.get("/v1/endpoints/deploy-dry-new").await.refused(404);
    client.get("/v1/templates/deploy-dry-new").await.refused(404);
}

#[tokio::test]
async fn a_misspelled_field_is_refused_and_an_answer_can_be_sent_back() {
    let host = shared_host();
    let client = &host.client;
    let misspelled =
        json!({ "name": "deploy-soon", "scopes": ["read"], "expiresAt": "2026-12-01" });
    let said = client.post("/v1/keys", &misspelled).await.refused(400);
    assert!(said.contains("`expiresAt`") && said.contains("`expiresInSeconds`"), "{said}");
    let keys = client.get("/v1/keys").await.ok();
    assert!(!keys.to_string().contains("deploy-soon"), "{keys}");

    let endpoint = host.deploy(&guests::playground(), "deploy-back", json!({})).await;
    let volume = json!({ "name": "deploy-back", "size": 1, "dataCenterId": "here" });
    let volume = client.post("/v1/networkvolumes", &volume).await.ok();
    for path in [
        format!("/v1/endpoints/{endpoint}"),
        format!("/v1/templates/{endpoint}?includeEndpointBoundTemplates=true"),
        format!("/v1/networkvolumes/{}", volume["id"].as_str().unwrap()),
    ] {
        let mut shown = client.get(&path).await.ok();
        // A change has no such parameter.
        let bare = path.split('?').next().unwrap();
        let mut changed = client.patch(bare, &shown).await.ok();
        for document in [&mut shown, &mut changed] {
            document.as_object_mut().unwrap().remove("version");
        }
        assert_eq!(changed, shown, "{path}");
        let said = client.patch(bare, &json!({ "naem": "x" })).await.refused(400);
        assert!(said.contains("`naem`") && said.contains("`name`"), "{said}");
    }
    let rollback = format!("/v1/endpoints/{endpoint}/rollback");
    let said = client.post(&rollback, &json!({ "to": 1 })).await.refused(400);
    assert!(said.contains("`to`, expected `version`"), "{said}");
}
