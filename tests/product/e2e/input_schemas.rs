//! The input schema of a component: shown with its endpoint, checked at submission, and moved by
//! deploys and rollbacks with its component.

use std::fs;

use gristmill_tests::{Client, TestHost, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};
use wasm_encoder::{CustomSection, Section as _};

const SECTION: &str = "gristmill:input-schema";

/// The component with this text as its input schema.
fn with_schema(component: &[u8], schema: &str) -> Vec<u8> {
    let mut bytes = component.to_vec();
    CustomSection { name: SECTION.into(), data: schema.as_bytes().into() }.append_to(&mut bytes);
    bytes
}

/// The playground, with a schema of its operation `echo`.
fn playground(schema: &Value) -> Vec<u8> {
    with_schema(&fs::read(guests::playground()).unwrap(), &schema.to_string())
}

fn of_value(value: &Value) -> Value {
    json!({
        "title": "Echo",
        "type": "object",
        "properties": { "op": { "enum": ["echo", "fail"] }, "value": { "$ref": "#/$defs/value" } },
        "required": ["op", "value"],
        "$defs": { "value": value },
    })
}

fn echo(value: impl Into<Value>) -> Value {
    json!({ "op": "echo", "value": value.into() })
}

async fn upload(client: &Client, image: &str, schema: &Value) {
    client.upload(image, playground(schema)).await.ok();
}

#[tokio::test]
async fn an_input_that_does_not_fit_is_refused_with_its_position_and_the_allowed_values() {
    let host = shared_host();
    let client = &host.client;
    upload(client, "fitting:latest", &of_value(&json!({ "type": "integer", "maximum": 9 }))).await;
    let endpoint = host.deploy_image("fitting:latest", "fitting", json!({})).await;
    assert_eq!(client.finish(&endpoint, echo(9)).await["output"], json!({ "echo": 9 }));
    let expected = "`input.value` must be at most 9 (`maximum`), not 10";
    let refused = client.run(&endpoint, echo(10)).await;
    assert_eq!(refused.json(), json!({ "error": expected, "code": "bad_request" }));
    assert_eq!(refused.refused(400), expected);
    assert_eq!(client.run_sync(&endpoint, "", echo(10)).await.refused(400), expected);
    let missing = client.run(&endpoint, json!({ "op": "echo" })).await.refused(400);
    assert_eq!(missing, "`input` must have the field `value` (`required`)");
    let refused = client.openai(&endpoint, "chat/completions", &json!({})).await;
    assert_eq!(refused.refused_as_openai(400).1, "bad_request");
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("must have the field `op`"), "{message}");
    let health = client.health(&endpoint).await;
    assert_eq!((&health["jobs"]["completed"], &health["jobs"]["failed"]), (&1.into(), &0.into()));

    // The call of a handler is checked in the same way.
    let settings = json!({ "callEndpoints": ["fitting"] });
    let caller = host.deploy(&guests::playground(), "fitting-caller", settings).await;
    let call = |value: u8| json!({ "op": "call", "endpoint": "fitting", "value": echo(value) });
    let failed = client.finish(&caller, call(10)).await;
    assert!(failed["error"].as_str().unwrap().contains(expected), "{failed}");
    assert_eq!(client.finish(&caller, call(9)).await["status"], "COMPLETED");
}

#[tokio::test]
async fn the_schema_moves_with_the_component_and_old_jobs_are_not_checked_again() {
    let mut host = TestHost::start();
    let client = host.client();
    let (numbers, texts) =
        (of_value(&json!({ "type": "number" })), of_value(&json!({ "type": "string" })));
    upload(&client, "moving:latest", &numbers).await;
    let endpoint = host.deploy_image("moving:latest", "moving", json!({})).await;
    let shown = async |client: &Client| client.get("/v1/endpoints/moving").await.ok();
    assert_eq!(shown(&client).await["inputSchema"], numbers);
    let listed = client.get("/v1/endpoints").await.ok();
    assert!(listed[0].get("inputSchema").is_none(), "{listed}");

    let run = async |client: &Client, input: &Value| {
        let path = client.path(&endpoint, "run");
        let request = client.request(Method::POST, &path).header("Idempotency-Key", "grain");
        client.send(request.json(&json!({ "input": input }))).await
    };
    let first = run(&client, &echo(1)).await.ok()["id"].clone();
    let failing = json!({ "op": "fail", "message": "no flour", "value": 1 });
    let failed = client.submit(&endpoint, failing).await;
    client.until(&endpoint, &failed, "FAILED").await;

    upload(&client, "moving:latest", &texts).await;
    assert_eq!(shown(&client).await["inputSchema"], texts);
    client.run(&endpoint, echo(1)).await.refused(400);
    assert_eq!(run(&client, &echo(1)).await.ok()["id"], first, "a duplicate has its job");
    let reused = run(&client, &echo(2)).await.refused(422);
    assert!(reused.contains("Idempotency-Key"), "{reused}");

    client.retry(&endpoint, &failed).await.ok();
    client.until(&endpoint, &failed, "FAILED").await;

    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!(shown(&client).await["inputSchema"], texts);
    client.run(&endpoint, echo(1)).await.refused(400);
    client.post("/v1/endpoints/moving/rollback", &json!({})).await.ok();
    assert_eq!(shown(&client).await["inputSchema"], numbers);
    client.run(&endpoint, echo("x")).await.refused(400);
    assert_eq!(client.finish(&endpoint, echo(1)).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_refused_with_its_component() {
    let host = shared_host();
    let component = fs::read(guests::word_count()).unwrap();
    let deep = (0..70).fold("{}".to_owned(), |inner, _| format!("{{\"not\":{inner}}}"));
    for (schema, expected) in [
        ("{\"type\":\"grain\"}", "`/type` must be one or a list of null, boolean, integer"),
        ("{\"$ref\":\"http://127.0.0.1:9/x\"}", "only parts of the same schema are read"),
        ("{\"$ref\":\"#\"}", "refers to itself without a step into the input"),
        ("{\"pattern\":\"(a)\\\\1\"}", "without look-around and references to groups"),
        ("{", "it is not JSON"),
        (deep.as_str(), "nested deeper than 64 levels"),
        (&"\u{e9}".repeat(40_000), "at most 65536 are allowed"),
    ] {
        let refused = host.upload("unusable:v1", with_schema(&component, schema)).await;
        let refused = refused.refused(400);
        assert!(refused.contains("an input schema (custom section"), "{refused}");
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn a_schema_with_exponential_cost_refuses_inputs_and_delays_no_other_call() {
    let host = shared_host();
    let client = &host.client;
    let inside = json!({ "properties": { "a": { "$ref": "#/$defs/n" } }, "required": ["a"] });
    let node = json!({ "anyOf": [inside, inside] });
    let schema = json!({ "$defs": { "n": node }, "$ref": "#/$defs/n" });
    upload(client, "costly:latest", &schema).await;
    let endpoint = host.deploy_image("costly:latest", "costly", json!({})).await;
    let input = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
    let calls = (0..8).map(|_| client.run(&endpoint, input.clone()));
    for refused in futures::future::join_all(calls).await {
        let refused = refused.refused(400);
        assert!(refused.contains("too large, or too deep, to be checked"), "{refused}");
    }
    let many = json!({ "a": vec![0; 600_000] });
    let refused = client.run(&endpoint, many).await.refused(400);
    assert!(refused.contains("too large, or too deep"), "{refused}");
}

#[tokio::test]
async fn the_openapi_document_of_a_key_has_the_operations_of_its_endpoints() {
    let host = TestHost::start();
    let other = host.client_of("other").await;
    upload(&other, "typed:latest", &of_value(&json!({ "type": "string" }))).await;
    let template = json!({ "id": "t", "name": "t", "imageName": "typed:latest" });
    other.post("/v1/templates", &template).await.ok();
    other.post("/v1/endpoints", &json!({ "id": "typed", "templateId": "t" })).await.ok();
    host.deploy(&guests::echo(), "untyped", json!({})).await;

    let document = other.get("/openapi.json").await.ok();
    let run = &document["paths"]["/v2/typed/runsync"]["post"];
    assert_eq!(run["operationId"], "RunSync.typed");
    let body = &run["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(body, "#/components/schemas/typed.Submission");
    let schemas = &document["components"]["schemas"];
    let field = &schemas["typed.Submission"]["allOf"][1]["properties"]["input"]["$ref"];
    assert_eq!(field, "#/components/schemas/typed.Input");
    let value = schemas["typed.Input"]["properties"]["value"]["$ref"].as_str().unwrap();
    assert_eq!(document.pointer(value.trim_start_matches('#')).unwrap()["type"], "string");
    let links = &run["responses"]["200"]["links"]["GetStatus"]["parameters"];
    assert_eq!(links["endpoint"], "typed");
    let names: Vec<_> = run["parameters"].as_array().unwrap().iter().collect();
    assert!(names.iter().all(|parameter| parameter["name"] != "endpoint"), "{names:?}");
    assert!(document["paths"].get("/v2/untyped/run").is_none());

    let anonymous = host.client().with_authorization(None).get("/openapi.json").await.ok();
    assert!(anonymous["paths"].get("/v2/typed/run").is_none(), "schemas need a key");
    let third = host.client_of("third").await.get("/openapi.json").await.ok();
    assert!(third["paths"].get("/v2/typed/run").is_none(), "schemas of other owners are not shown");
}
