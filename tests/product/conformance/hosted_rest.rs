//! The calls that clients of the hosted service's REST API make, as far as they need no Pods.

use gristmill_tests::{TestHost, eventually, guests, shared_host};
use serde_json::{Value, json};

/// `POST …/update` of an endpoint, a template and a network volume is the change by PATCH.
#[tokio::test]
async fn a_change_by_post_is_the_change_by_patch() {
    let host = shared_host();
    let client = &host.client;
    let name = host.deploy(&guests::echo(), "rest-update", json!({})).await;
    let volume = json!({ "name": "rest-update", "size": 1 });
    let volume = client.post("/v1/networkvolumes", &volume).await.ok();
    let volume = format!("/v1/networkvolumes/{}", volume["id"].as_str().unwrap());
    let template = format!("/v1/templates/{name}");
    let endpoint = format!("/v1/endpoints/{name}");
    let objects = [
        (&template, json!({ "readme": "rye" }), true),
        (&endpoint, json!({ "workersMax": 7 }), true),
        (&volume, json!({ "size": 3 }), false),
    ];
    for (path, change, has_dry_run) in objects {
        let update = format!("{path}/update");
        if has_dry_run {
            let checked = client.post(&format!("{update}?dryRun=true"), &change).await;
            assert_eq!(checked.status, 204, "{checked:?}");
        }
        let (field, value) = change.as_object().unwrap().iter().next().unwrap();
        let changed = client.post(&update, &change).await.ok();
        assert_eq!(changed[field], *value, "{changed}");
        let mut again = client.patch(path, &change).await.ok();
        // Each change of an endpoint is counted.
        if !changed["version"].is_null() {
            again["version"] = changed["version"].clone();
        }
        assert_eq!(again, changed, "{path}");
        let [post, patch] = [
            client.post(&update, &json!({ "flour": 1 })).await.refused(400),
            client.patch(path, &json!({ "flour": 1 })).await.refused(400),
        ];
        assert_eq!(post, patch, "{path}");
        let nothing = path.rsplit_once('/').unwrap().0;
        client.post(&format!("{nothing}/nothing/update"), &change).await.refused(404);
        client.get(&update).await.refused(405);
    }
}

/// `GET /v1/openapi.json` and `GET /v1/docs` are the document and its page.
#[tokio::test]
async fn the_document_is_also_below_v1_and_describes_itself() {
    let host = shared_host();
    host.deploy(&guests::echo(), "rest-document", json!({})).await;
    for client in [host.client(), host.client().with_authorization(None)] {
        let document = client.get("/v1/openapi.json").await;
        assert_eq!(document.ok(), client.get("/openapi.json").await.ok());
        for path in ["/v1/openapi.json", "/v1/docs"] {
            let described = &document.json()["paths"][path]["get"];
            assert_eq!(described["security"], json!([{}]), "{path}: {described}");
            let refused = client.get(&format!("{path}?verbose=1")).await;
            let sentence = refused.refused(400);
            assert!(sentence.contains("`verbose`"), "{sentence}");
            assert_eq!(refused.json()["message"], sentence);
            let refused = client.post(path, &json!({})).await;
            assert_eq!(refused.json()["message"], refused.refused(405));
        }
    }
}

/// All flags of the lookup of templates.
const ALL_TEMPLATES: &str = "includeEndpointBoundTemplates=true&includePublicTemplates=true\
                             &includePlatformTemplates=true";

/// `includeTemplate`: an endpoint with its template, as far as its owner may see it.
#[tokio::test]
async fn an_endpoint_is_shown_with_its_template_as_its_owner_may_see_it() {
    let host = TestHost::start();
    let [miller, baker] = [host.client_of("miller").await, host.client_of("baker").await];
    miller.upload("mill:v1", std::fs::read(guests::playground()).unwrap()).await.ok();
    let template =
        json!({ "id": "mill", "name": "mill", "imageName": "mill:v1", "isPublic": true });
    miller.post("/v1/templates", &template).await.ok();
    for (client, id) in [(&miller, "own"), (&baker, "foreign")] {
        client.post("/v1/endpoints", &json!({ "id": id, "templateId": "mill" })).await.ok();
        let path = format!("/v1/endpoints/{id}");
        let lookup = format!("/v1/templates/mill?{ALL_TEMPLATES}");
        let shown = client.get(&format!("{path}?includeTemplate=true")).await.ok();
        assert_eq!(shown["template"], client.get(&lookup).await.ok(), "{shown}");
        let list = client.get("/v1/endpoints?includeTemplate=true").await.ok();
        assert_eq!(list, json!([shown]), "as in the list");
        for query in ["", "?includeTemplate=false"] {
            let plain = client.get(&format!("{path}{query}")).await.ok();
            assert!(plain.get("template").is_none() && plain.get("workers").is_none(), "{plain}");
        }
        // The whole answer can be sent back.
        assert_eq!(client.patch(&path, &shown).await.ok()["templateId"], "mill");
    }
    let job = baker.submit("foreign", json!({ "op": "sleep_forever" })).await;
    baker.until("foreign", &job, "IN_PROGRESS").await;
    miller.patch("/v1/templates/mill", &json!({ "isPublic": false })).await.ok();
    let workers = baker.get("/v1/pods?includeWorkers=true").await.ok();
    let worker = &workers[0];
    assert_eq!((&worker["image"], &worker["containerDiskInGb"]), (&json!(""), &json!(0)));
    let guessed = baker.get("/v1/pods?includeWorkers=true&imageName=mill:v1").await.ok();
    assert_eq!(guessed, json!([]), "a filter answers no guess");
    baker.cancel("foreign", &job).await.ok();
    let hidden = baker.get("/v1/endpoints/foreign?includeTemplate=true").await.ok();
    assert!(hidden.get("template").is_none(), "{hidden}");
    let own = miller.get("/v1/endpoints/own?includeTemplate=true").await.ok();
    assert_eq!(own["template"]["isPublic"], false);
    let of_all = host.client().get("/v1/endpoints?includeTemplate=true").await.ok();
    assert_eq!(of_all[0].get("template"), None, "its endpoint cannot use it: {of_all}");
    assert_eq!(of_all[1]["template"]["id"], "mill");
}

/// `includeWorkers`, and `GET /v1/pods`: the workers of endpoints.
#[tokio::test]
async fn workers_are_shown_with_their_endpoint_and_as_pods() {
    let host = TestHost::start();
    let client = host.client_of("miller").await;
    let volume = client.post("/v1/networkvolumes", &json!({ "name": "grain", "size": 1 })).await;
    let volume = volume.ok();
    client.upload("mill:v1", std::fs::read(guests::playground()).unwrap()).await.ok();
    let template = json!({ "id": "mill", "name": "mill", "imageName": "mill:v1" });
    client.post("/v1/templates", &template).await.ok();
    let endpoint = json!({
        "id": "mill", "name": "The mill", "templateId": "mill", "idleTimeout": 3_600,
        "networkVolumeIds": [volume["id"]], "memoryMib": 512, "workersMin": 2,
    });
    client.post("/v1/endpoints", &endpoint).await.ok();
    client.finish("mill", json!({ "op": "echo" })).await;
    let job = client.submit("mill", json!({ "op": "sleep_forever" })).await;
    let worker = client.until("mill", &job, "IN_PROGRESS").await["workerId"].clone();

    let shown = client.get("/v1/endpoints/mill?includeWorkers=true").await.ok();
    let by_id = |mut pods: Vec<Value>| {
        pods.sort_by_key(|pod| pod["id"].to_string());
        pods
    };
    let workers = by_id(shown["workers"].as_array().unwrap().clone());
    let running = workers.iter().find(|it| it["id"] == worker);
    let running = running.unwrap_or_else(|| panic!("no {worker} in {workers:?}"));
    let mut expected = json!({
        "id": worker, "endpointId": "mill", "name": "The mill", "consumerUserId": "miller",
        "templateId": "mill", "image": "mill:v1", "desiredStatus": "RUNNING", "slsVersion": 1,
        "memoryInGb": 0.5, "containerDiskInGb": 0,
    });
    expected["lastStartedAt"] = running["lastStartedAt"].clone();
    assert_eq!(*running, expected);
    let list = client.get("/v1/endpoints?includeWorkers=true").await.ok();
    assert_eq!(list[0]["workers"], shown["workers"]);

    let pods = async |query: &str| -> Vec<Value> {
        by_id(serde_json::from_value(client.get(&format!("/v1/pods?{query}")).await.ok()).unwrap())
    };
    assert_eq!(pods("").await, [] as [Value; 0], "there are no Pods");
    assert_eq!(pods("includeWorkers=true").await, workers);
    let id = worker.as_str().unwrap();
    let of_volume = format!("networkVolumeId={}", volume["id"].as_str().unwrap());
    for matching in [
        "endpointId=mill",
        "templateId=mill",
        "imageName=mill:v1",
        "name=The%20mill",
        "desiredStatus=RUNNING",
        "computeType=CPU",
        "dataCenterId=EU-RO-1&dataCenterId=local",
        "includeMachine=true&includeSavingsPlans=true&includeTemplate=true",
        &of_volume,
        "gpuTypeId=",
    ] {
        assert_eq!(pods(&format!("includeWorkers=true&{matching}")).await, workers, "{matching}");
    }
    assert_eq!(pods(&format!("includeWorkers=true&id={id}")).await, [expected.clone()]);
    for other in [
        "id=other",
        "endpointId=other",
        "templateId=other",
        "imageName=mill",
        "name=mill",
        "networkVolumeId=other",
        "desiredStatus=EXITED",
        "computeType=GPU",
        "dataCenterId=EU-RO-1",
        "cpuFlavorId=cpu3c",
        "gpuTypeId=NVIDIA%20L4",
    ] {
        assert!(pods(&format!("includeWorkers=true&{other}")).await.is_empty(), "{other}");
    }
    let query = format!("includeWorkers=true&includeNetworkVolume=true&id={id}");
    expected["networkVolume"] = volume;
    assert_eq!(pods(&query).await, [expected]);
    let refused = client.get("/v1/pods?desiredStatus=IDLE").await.refused(400);
    assert!(refused.contains("one of RUNNING, EXITED, TERMINATED, not `IDLE`"), "{refused}");

    // A worker has the version of the endpoint that it runs. Those that have ended are in no list.
    client.patch("/v1/endpoints/mill", &json!({ "workersMax": 3 })).await.ok();
    client.cancel("mill", &job).await.ok();
    let changed = eventually("the workers to read the change", async || {
        let now = pods("includeWorkers=true").await;
        now.iter().all(|it| it["slsVersion"] == 2).then_some(now)
    })
    .await;
    assert!(changed.iter().all(|it| it["id"].as_str().unwrap().ends_with("-v2")), "{changed:?}");
    client.patch("/v1/endpoints/mill", &json!({ "workersMax": 0 })).await.ok();
    eventually("the workers to end", async || {
        pods("includeWorkers=true").await.is_empty().then_some(())
    })
    .await;
    let other = host.client_of("baker").await;
    assert_eq!(other.get("/v1/pods?includeWorkers=true").await.ok(), json!([]));
}

/// `networkVolumeIds`: a network volume can be named in a list.
#[tokio::test]
async fn a_network_volume_can_be_named_in_a_list() {
    let host = shared_host();
    let client = &host.client;
    let mut ids = vec![];
    for name in ["rest-one", "rest-two"] {
        let volume = json!({ "name": name, "size": 1 });
        ids.push(client.post("/v1/networkvolumes", &volume).await.ok()["id"].clone());
    }
    let [one, two] = [&ids[0], &ids[1]];
    let name = host.deploy(&guests::echo(), "rest-volumes", json!({})).await;
    let path = format!("/v1/endpoints/{name}");
    let none = client.get(&path).await.ok();
    assert_eq!((&none["networkVolumeIds"], none.get("networkVolumeId")), (&json!([]), None));
    let changed = async |change: Value| {
        let answer = client.patch(&path, &change).await.ok();
        let list = &answer["networkVolumeIds"];
        assert_eq!(answer.get("networkVolumeId"), list.get(0), "{answer}");
        list.clone()
    };
    assert_eq!(changed(json!({ "networkVolumeIds": [one] })).await, json!([one]));
    assert_eq!(changed(json!({ "workersMax": 3 })).await, json!([one]), "it stays");
    // Whole answers with one changed field.
    for (field, value, expected) in [
        ("networkVolumeId", two.clone(), json!([two])),
        ("networkVolumeIds", json!([one]), json!([one])),
        ("networkVolumeIds", json!([]), json!([])),
        ("networkVolumeId", one.clone(), json!([one])),
        ("networkVolumeId", json!(""), json!([])),
    ] {
        let mut whole = client.get(&path).await.ok();
        whole[field] = value;
        assert_eq!(changed(whole).await, expected, "{field}");
    }
    let both = json!({ "networkVolumeId": one, "networkVolumeIds": [one] });
    assert_eq!(changed(both).await, json!([one]));
    changed(json!({ "networkVolumeIds": [] })).await;
    for (wrong, sentence) in [
        (
            json!({ "networkVolumeId": one, "networkVolumeIds": [two] }),
            "`networkVolumeId` and `networkVolumeIds` name different network volumes; send one of the fields",
        ),
        (
            json!({ "networkVolumeIds": [one, two] }),
            "`networkVolumeIds` has 2 entries; at most 1 are allowed",
        ),
        (
            json!({ "networkVolumeIds": ["0123"] }),
            "`networkVolumeIds`: network volume `0123` not found",
        ),
    ] {
        assert_eq!(client.patch(&path, &wrong).await.refused(400), sentence);
    }
}

/// `gpuCount`, `gpuTypeIds`, `allowedCudaVersions`, `minCudaVersion` and `instanceIds` of an
/// endpoint show the hardware that it has.
#[tokio::test]
async fn an_endpoint_shows_the_hardware_that_it_has() {
    let host = shared_host();
    let name = host.deploy(&guests::echo(), "rest-hardware", json!({})).await;
    let path = format!("/v1/endpoints/{name}");
    let shown = host.client.get(&path).await.ok();
    assert_eq!((&shown["computeType"], &shown["gpuCount"]), (&json!("CPU"), &json!(0)));
    for list in ["gpuTypeIds", "allowedCudaVersions", "instanceIds", "dataCenterIds"] {
        assert_eq!(shown[list], json!([]), "{list}");
    }
    // Clients that were generated from the hosted document read `null` as a mistake.
    let is_null = |fields: &Value| fields.as_object().unwrap().values().any(Value::is_null);
    assert!(!is_null(&shown) && shown.get("minCudaVersion").is_none(), "{shown}");
    let back = host.client.patch(&path, &shown).await.ok();
    assert!(back.get("ignoredFields").is_none(), "none of them requests a GPU: {back}");
}

/// The example bodies of the hosted service's reference, with the ids of objects of this host, and
/// without what this host refuses with a sentence: GPUs, and a second network volume.
#[tokio::test]
async fn the_example_bodies_of_the_hosted_reference_are_accepted() {
    let host = TestHost::start();
    let client = host.client();
    let auth = json!({ "name": "my creds", "username": "my-username", "password": "my-password" });
    let auth = client.post("/v1/containerregistryauth", &auth).await.ok();
    let volume = json!({ "dataCenterId": "EU-RO-1", "name": "my network volume", "size": 50 });
    let volume = client.post("/v1/networkvolumes", &volume).await.ok();
    let mut template = json!({
        "category": "NVIDIA", "containerDiskInGb": 50, "containerRegistryAuthId": auth["id"],
        "dockerEntrypoint": [], "dockerStartCmd": [], "env": { "ENV_VAR": "value" },
        "imageName": "vendor/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04", "isPublic": false,
        "isServerless": true, "name": "my template", "ports": ["8888/http", "22/tcp"], "readme": "",
        "volumeInGb": 20, "volumeMountPath": "/workspace",
    });
    let made = client.post("/v1/templates", &template).await.ok();
    let path = format!("/v1/templates/{}/update", made["id"].as_str().unwrap());
    for only_new in ["category", "isServerless"] {
        template.as_object_mut().unwrap().remove(only_new);
    }
    client.post(&path, &template).await.ok();
    let mut endpoint = json!({
        "allowedCudaVersions": [], "computeType": "CPU", "cpuFlavorIds": ["cpu3c"],
        "dataCenterIds": "EU-NL-1,EU-RO-1,EU-SE-1", "executionTimeoutMs": 600_000,
        "flashboot": true, "gpuCount": 0, "gpuTypeIds": [], "idleTimeout": 5, "name": "my endpoint",
        "networkVolumeId": volume["id"], "networkVolumeIds": [volume["id"]],
        "scalerType": "QUEUE_DELAY", "scalerValue": 4, "templateId": made["id"], "vcpuCount": 2,
        "workersMax": 3, "workersMin": 0,
    });
    let made = client.post("/v1/endpoints", &endpoint).await.ok();
    let path = format!("/v1/endpoints/{}/update", made["id"].as_str().unwrap());
    endpoint.as_object_mut().unwrap().remove("computeType");
    client.post(&path, &endpoint).await.ok();
    let path = format!("/v1/networkvolumes/{}/update", volume["id"].as_str().unwrap());
    client.post(&path, &json!({ "name": "my network volume", "size": 50 })).await.ok();
}

/// `GET /v1/billing/endpoints`, `/v1/billing/pods` and `/v1/billing/networkvolumes` have the
/// filters of the hosted service.
#[tokio::test]
async fn bills_have_the_filters_of_the_hosted_service() {
    let host = TestHost::start();
    let client = host.client();
    for name in ["rye", "oats"] {
        host.upload(&format!("{name}:v1"), std::fs::read(guests::echo()).unwrap()).await.ok();
        host.deploy_image(&format!("{name}:v1"), name, json!({})).await;
        client.run_sync(name, "", json!({})).await.ok();
    }
    let bill = async |query: &str| -> Vec<Value> {
        let path = format!("/v1/billing/endpoints?bucketSize=year&{query}");
        serde_json::from_value(client.get(&path).await.ok()).unwrap()
    };
    let all = eventually("the usage of both jobs", async || {
        let records = bill("").await;
        (records.len() == 2).then_some(records)
    })
    .await;
    for every in ["dataCenterId=local", "dataCenterId=EU-RO-1&dataCenterId=local", "gpuTypeId="] {
        assert_eq!(bill(every).await, all, "{every}");
    }
    for none in ["dataCenterId=EU-RO-1", "gpuTypeId=NVIDIA%20L4", "imageName=rye"] {
        assert!(bill(none).await.is_empty(), "{none}");
    }
    let of_rye = bill("imageName=rye:v1").await;
    assert_eq!(of_rye, [all.iter().find(|it| it["endpointId"] == "rye").unwrap().clone()]);
    for grouping in ["podId", "gpuTypeId"] {
        let whole = bill(&format!("grouping={grouping}")).await;
        assert_eq!((whole.len(), &whole[0]["jobs"]), (1, &json!(2)), "{grouping}: {whole:?}");
        assert!(whole[0].get("endpointId").is_none() && whole[0].get(grouping).is_none());
    }
    for path in ["/v1/billing/pods", "/v1/billing/networkvolumes"] {
        let period = "bucketSize=hour&startTime=2026-01-01T00:00:00Z&endTime=2026-01-02T00:00:00Z";
        assert_eq!(client.get(&format!("{path}?{period}")).await.ok(), json!([]));
        let refused = client.get(&format!("{path}?bucketSize=minute")).await.refused(400);
        assert!(refused.contains("`bucketSize` must be one of"), "{refused}");
    }
    let query = "grouping=gpuTypeId&gpuTypeId=NVIDIA%20L4&podId=p";
    assert_eq!(client.get(&format!("/v1/billing/pods?{query}")).await.ok(), json!([]));
    let refused = client.get("/v1/billing/pods?grouping=endpointId").await.refused(400);
    assert!(refused.contains("must be one of podId, gpuTypeId, not `endpointId`"), "{refused}");
}
