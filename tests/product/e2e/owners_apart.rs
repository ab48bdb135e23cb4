//! Two owners on one host: one of them calls every route of the OpenAPI document and of the
//! registry with the other one's objects. Each answer must be that for an object that does not
//! exist.

use std::collections::HashMap;

use gristmill_tests::{Answer, Client, LocalServer, TestHost, eventually, guests, machine_name};
use reqwest::Method;
use serde_json::{Value, json};

use crate::handlers::echo;

/// A text in every object of the first owner, and in no answer to the second.
const MARK: &str = "AMARANTH";

/// The permitted calls of the second owner on an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Needs no key.
    Open,
    /// For the operator's keys: 401.
    Operator,
    /// Lists the caller's objects.
    List,
    /// Creates an object of the caller; objects that the body names must belong to the caller.
    Make,
    /// Concerns one object, which the path names.
    Thing,
    /// An endless stream about the objects that the query names.
    Events,
}

/// What the document says about an operation: who may call it, and whether its path names an
/// object.
fn access(method: &Method, path: &str, operation: &Value) -> Access {
    let scope = operation["security"][0]["bearer"][0].as_str();
    match (scope, method.as_str()) {
        (None, _) => Access::Open,
        (Some("admin" | "metrics"), _) => Access::Operator,
        _ if path == "/v1/events" => Access::Events,
        (_, "POST") if !path.contains('{') => Access::Make,
        (_, "PUT") if path == "/v1/handlers/{reference}" => Access::Make,
        (_, "GET") if !path.contains('{') => Access::List,
        _ => Access::Thing,
    }
}

/// The first owner's objects, by the placeholder and the kind that name them.
struct Things {
    template: &'static str,
    endpoint: &'static str,
    handler: &'static str,
    schedule: &'static str,
    volume: String,
    auth: String,
    action: String,
    job: String,
    waiting: String,
    /// An upload in progress of the registry.
    upload: String,
    /// `sha256:…` of the handler's component.
    digest: String,
}

const UNKNOWN_JOB: &str = "0192f3a0-0000-7000-8000-000000000000-0000";

impl Things {
    /// The same names of objects that do not exist.
    fn unknown() -> Self {
        Self {
            template: "no-template",
            endpoint: "no-endpoint",
            handler: "nonesuch:v1",
            schedule: "no-schedule",
            volume: "0123456789abcdef".to_owned(),
            auth: "0123456789abcdef".to_owned(),
            action: "0123456789abcdef".to_owned(),
            job: UNKNOWN_JOB.to_owned(),
            waiting: UNKNOWN_JOB.to_owned(),
            upload: "fedcba9876543210fedcba9876543210".to_owned(),
            digest: format!("sha256:{}", "0".repeat(64)),
        }
    }

    /// The path of an object.
    fn fill(&self, path: &str) -> String {
        let kinds = [
            ("/v1/networkvolumes/", &*self.volume),
            ("/v1/containerregistryauth/", &*self.auth),
            ("/v1/endpoints/", self.endpoint),
            ("/v1/job-actions/", &*self.action),
            ("/v1/schedules/", self.schedule),
            ("/v1/keys/", "nothing"),
        ];
        let kind = kinds.iter().find(|(prefix, _)| path.starts_with(prefix));
        let filled = match kind {
            Some((_, id)) => path.replace("{id}", id),
            None => path.to_owned(),
        };
        let filled = filled
            .replace("{templateId}", self.template)
            .replace("{endpoint}", self.endpoint)
            .replace("{job}", &self.job)
            .replace("{version}", "1")
            .replace("{reference}", self.handler)
            .replace("{rest}", "v1/chat/completions")
            .replace("{path}", "amaranth/grain.txt");
        assert!(!filled.contains('{'), "{path}: what does the placeholder name?");
        filled
    }

    /// The text with these names replaced.
    fn renamed(&self, text: &str) -> String {
        let names = [
            (self.template, "TEMPLATE"),
            (self.endpoint, "ENDPOINT"),
            (self.handler, "HANDLER"),
            (self.handler.split(':').next().unwrap(), "HANDLER"),
            (self.schedule, "SCHEDULE"),
            (&*self.volume, "ID"),
            (&*self.auth, "ID"),
            (&*self.action, "ID"),
            (&*self.job, "JOB"),
            (&*self.upload, "UPLOAD"),
            (&*self.digest, "DIGEST"),
        ];
        names.into_iter().fold(text.to_owned(), |text, (name, kind)| text.replace(name, kind))
    }
}

/// An object of every kind that an owner can have, with [`MARK`] in it.
async fn populate(client: &Client) -> Things {
    let component = std::fs::read(guests::playground()).unwrap();
    let uploaded = client.upload("mill:v1", component).await.ok();
    let digest = format!("sha256:{}", uploaded["sha256"].as_str().unwrap());
    let id = |document: Value| document["id"].as_str().unwrap().to_owned();
    let auth =
        json!({ "name": MARK, "registry": "amaranth.example", "username": MARK, "password": MARK });
    let auth = id(client.post("/v1/containerregistryauth", &auth).await.ok());
    let volume =
        id(client.post("/v1/networkvolumes", &json!({ "name": MARK, "size": 1 })).await.ok());
    let file = format!("/v1/networkvolumes/{volume}/files/amaranth/grain.txt");
    let written = client.send(client.request(Method::PUT, &file).body(MARK)).await;
    assert_eq!(written.status, 204, "{written:?}");
    let template = json!({
        "id": "a-template", "name": MARK, "imageName": "mill:v1", "readme": MARK,
        "env": { "SECRET": MARK }, "containerRegistryAuthId": auth,
    });
    client.post("/v1/templates", &template).await.ok();
    let endpoint = json!({
        "id": "a-endpoint", "name": MARK, "templateId": "a-template", "networkVolumeId": volume,
        "env": { "TOKEN": MARK }, "workersMax": 1,
    });
    client.post("/v1/endpoints", &endpoint).await.ok();
    let submission = json!({
        "input": { "op": "log", "message": MARK },
        "webhook": format!("http://{}:9/{MARK}", machine_name()),
    });
    let job = id(client.post("/v2/a-endpoint/run", &submission).await.ok());
    client.until("a-endpoint", &job, "COMPLETED").await;
    eventually("the webhook to be given up", async || {
        let deliveries = client.get("/v1/endpoints/a-endpoint/deliveries").await.ok();
        (deliveries[0]["state"] == "GIVEN_UP").then_some(())
    })
    .await;
    let schedule = json!({
        "id": "a-schedule", "name": MARK, "endpointId": "a-endpoint", "cron": "@yearly",
        "input": { "op": "echo", "value": MARK },
    });
    client.post("/v1/schedules", &schedule).await.ok();
    client.patch("/v1/endpoints/a-endpoint", &json!({ "workersMax": 0 })).await.ok();
    let waiting = client.submit("a-endpoint", json!({ "op": "echo", "value": MARK })).await;
    let begun = client.send(client.request(Method::POST, "/v2/mill/blobs/uploads/")).await;
    let upload = begun.header("location").unwrap().rsplit('/').next().unwrap().to_owned();
    let action = json!({ "action": "retry", "filter": { "error": MARK } });
    let action = id(client.post("/v1/job-actions", &action).await.ok());
    eventually("the action to end", async || {
        let now = client.get(&format!("/v1/job-actions/{action}")).await.ok();
        (now["state"] == "COMPLETED").then_some(())
    })
    .await;
    Things {
        template: "a-template",
        endpoint: "a-endpoint",
        handler: "mill:v1",
        schedule: "a-schedule",
        volume,
        auth,
        action,
        job,
        waiting,
        upload,
        digest,
    }
}

/// All documents that the owner can read, as far as they are constant.
async fn snapshot(client: &Client, things: &Things) -> Vec<String> {
    let Things { endpoint, job, upload, volume, .. } = things;
    let flags = "includeEndpointBoundTemplates=true&includePublicTemplates=true";
    let mut seen = vec![];
    for path in [
        format!("/v1/templates?{flags}"),
        "/v1/endpoints".to_owned(),
        "/v1/handlers".to_owned(),
        "/v1/containerregistryauth".to_owned(),
        "/v1/networkvolumes".to_owned(),
        format!("/v1/networkvolumes/{volume}/files?path=amaranth"),
        format!("/v1/networkvolumes/{volume}/files/amaranth/grain.txt"),
        "/v1/job-actions".to_owned(),
        "/v1/schedules".to_owned(),
        format!("/v1/endpoints/{endpoint}/releases"),
        format!("/v1/endpoints/{endpoint}/deliveries"),
        format!("/v1/endpoints/{endpoint}/logs"),
        format!("/v2/{endpoint}/status/{job}"),
        "/v2/mill/tags/list".to_owned(),
        "/v2/mill/manifests/v1".to_owned(),
    ] {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        seen.push(answer.text);
    }
    let waiting = client.status(endpoint, &things.waiting).await.ok();
    seen.push(waiting["status"].to_string());
    seen.push(client.health(endpoint).await["jobs"].to_string());
    let progress = client.get(&format!("/v2/mill/blobs/uploads/{upload}")).await;
    assert_eq!(progress.status, 204, "{progress:?}");
    seen
}

fn assert_nothing_leaks(answer: &Answer, things: &Things) {
    for word in [
        MARK,
        "amaranth",
        "a-template",
        "a-endpoint",
        "a-schedule",
        &things.volume,
        &things.auth,
        &things.action,
    ] {
        assert!(!answer.text.contains(word), "{word} in {answer:?}");
    }
}

/// The refusal for another owner's object equals that for a missing object.
fn assert_same(theirs: &Answer, things: &Things, nothing: &Answer, unknown: &Things) {
    let shown = |answer: &Answer, things: &Things| {
        let mut headers: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
        headers.sort_unstable();
        let call = things.renamed(&answer.call);
        (call, answer.status, headers, things.renamed(&answer.text))
    };
    assert_eq!(shown(theirs, things), shown(nothing, unknown));
    assert!(!theirs.text.contains(MARK), "{theirs:?}");
}

struct Walk {
    host: TestHost,
    a: Client,
    b: Client,
    things: Things,
}

impl Walk {
    async fn begin() -> Self {
        let host = TestHost::start();
        let [a, b] = [host.client_of("a").await, host.client_of("b").await];
        let things = populate(&a).await;
        b.upload("other:v1", echo("owners")).await.ok();
        b.post("/v1/templates", &json!({ "id": "b-t", "name": "b", "imageName": "other:v1" }))
            .await
            .ok();
        b.post("/v1/endpoints", &json!({ "id": "b-e", "templateId": "b-t" })).await.ok();
        Self { host, a, b, things }
    }

    /// A call by the second owner. The body is valid for every route with a body.
    async fn call(&self, method: &Method, path: &str, accept: &str) -> Answer {
        // The management API refuses unknown fields.
        let body = match path.strip_prefix("/v1/").map(|rest| rest.split('/').next().unwrap()) {
            None => json!({ "input": { "op": "echo" } }),
            Some("networkvolumes") => json!({ "name": "taken", "size": 2 }),
            Some("templates") => json!({ "name": "taken", "readme": "taken", "env": {} }),
            Some("endpoints") if path.contains("/rollback") => json!({}),
            Some("schedules") => json!({ "name": "taken", "paused": true }),
            Some(_) => json!({ "name": "taken", "workersMax": 3, "env": {} }),
        };
        let request = self.b.request(method.clone(), path).header("accept", accept);
        let request = if *method == Method::GET { request } else { request.json(&body) };
        self.b.send(request).await
    }

    async fn thing(&self, method: &Method, path: &str) {
        let unknown = Things::unknown();
        let all = "?includeEndpointBoundTemplates=true&includePublicTemplates=true&includePlatformTemplates=true";
        for accept in ["application/json", "text/event-stream"] {
            for query in ["", all] {
                let [theirs, nothing] = [&self.things, &unknown].map(|of| of.fill(path) + query);
                let theirs = self.call(method, &theirs, accept).await;
                let nothing = self.call(method, &nothing, accept).await;
                // Only reads of templates have these parameters; most other calls refuse them.
                let has_them = method == Method::GET && path.contains("templates");
                let is_refused = theirs.status == 400 && !query.is_empty() && !has_them;
                assert!(theirs.status == 404 || is_refused, "{theirs:?}");
                assert_same(&theirs, &self.things, &nothing, &unknown);
            }
        }
        if path.contains("{job}") {
            // The other owner's job, under the caller's own endpoint.
            let [theirs, nothing] = [&self.things, &unknown]
                .map(|of| path.replace("{endpoint}", "b-e").replace("{job}", &of.job));
            let theirs = self.call(method, &theirs, "application/json").await;
            let nothing = self.call(method, &nothing, "application/json").await;
            assert_eq!(theirs.status, 404, "{theirs:?}");
            assert_same(&theirs, &self.things, &nothing, &unknown);
        }
    }

    /// Creates objects of the second owner that name the first one's.
    async fn make(&self, method: &Method, path: &str) {
        let unknown = Things::unknown();
        let body = |things: &Things| match path {
            "/v1/endpoints" => json!({ "id": "b-made", "templateId": things.template }),
            "/v1/templates" => json!({
                "id": "b-made", "name": MARK, "imageName": things.handler,
                "containerRegistryAuthId": things.auth,
            }),
            // The first owner's names are free for the second owner.
            "/v1/containerregistryauth" => json!({ "name": "b", "username": "b", "password": "b" }),
            "/v1/networkvolumes" => json!({ "name": "b", "size": 1 }),
            "/v1/schedules" => {
                json!({ "id": "b-made", "endpointId": things.endpoint, "cron": "@yearly" })
            }
            "/v1/job-actions" => {
                json!({ "action": "cancel", "filter": { "endpoints": [things.endpoint] } })
            }
            "/v1/handlers/{reference}" => Value::Null,
            path => panic!("say in `make` what {path} may name"),
        };
        if path == "/v1/handlers/{reference}" {
            let uploaded = self.b.upload(self.things.handler, echo("owners-taken")).await;
            uploaded.ok();
            let taken_away = self.b.delete("/v1/handlers/mill:v1").await;
            assert_eq!(taken_away.status, 204, "{taken_away:?}");
            return;
        }
        let made = async |things: &Things| {
            self.b.send(self.b.request(method.clone(), path).json(&body(things))).await
        };
        let (theirs, nothing) = (made(&self.things).await, made(&unknown).await);
        if theirs.status == 200 {
            return assert_nothing_leaks(&theirs, &self.things);
        }
        assert_eq!(theirs.status, 400, "{theirs:?}");
        assert_same(&theirs, &self.things, &nothing, &unknown);
    }
}

impl Walk {
    /// Follows the first owner's objects. What the other topics show is tested by `events.rs`.
    async fn events(&self, path: &str) {
        let unknown = Things::unknown();
        for topic in ["endpoint:ENDPOINT", "job:ENDPOINT/JOB", "overview,endpoint:ENDPOINT"] {
            let follow = async |of: &Things| {
                let topic = topic.replace("ENDPOINT", of.endpoint).replace("JOB", &of.job);
                self.b.get(&format!("{path}?topics={topic}")).await
            };
            let (theirs, nothing) = (follow(&self.things).await, follow(&unknown).await);
            assert_eq!(theirs.status, 404, "{theirs:?}");
            assert_same(&theirs, &self.things, &nothing, &unknown);
        }
    }
}

#[tokio::test]
async fn every_route_keeps_owners_apart() {
    let walk = Walk::begin().await;
    let before = snapshot(&walk.a, &walk.things).await;
    let document = walk.host.client().get("/openapi.json").await.ok();
    let mut walked: HashMap<&str, usize> = HashMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(name) = operation["operationId"].as_str() else { continue };
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let access = access(&method, path, operation);
            *walked.entry(name).or_default() += 1;
            match access {
                Access::Open => {}
                Access::Operator => {
                    let answer = walk.call(&method, &walk.things.fill(path), "*/*").await;
                    answer.refused(401);
                }
                Access::List => {
                    let query = "?includeEndpointBoundTemplates=true&includePublicTemplates=true";
                    // Only templates have these parameters.
                    let flags = path.contains("templates").then_some(query);
                    for query in std::iter::once("").chain(flags) {
                        let answer = walk.call(&method, &format!("{path}{query}"), "*/*").await;
                        let list = answer.ok();
                        let has_list = list.is_array() || list["jobs"].is_array();
                        assert!(has_list || list["endpoints"].is_object(), "{answer:?}");
                        assert_nothing_leaks(&answer, &walk.things);
                    }
                }
                Access::Make => walk.make(&method, path).await,
                Access::Thing => walk.thing(&method, path).await,
                Access::Events => walk.events(path).await,
            }
        }
    }
    assert!(walked.len() > 40, "{walked:?}");
    assert_eq!(snapshot(&walk.a, &walk.things).await, before, "something has changed");
    // The first owner's objects still work.
    walk.a.patch("/v1/endpoints/a-endpoint", &json!({ "workersMax": 1 })).await.ok();
    let done = walk.a.until("a-endpoint", &walk.things.waiting, "COMPLETED").await;
    assert_eq!(done["output"]["echo"], MARK, "{done}");
}

#[tokio::test]
async fn the_registry_keeps_owners_apart() {
    let walk = Walk::begin().await;
    let before = snapshot(&walk.a, &walk.things).await;
    let unknown = Things::unknown();
    let paths = |things: &Things| {
        let name = things.handler.split(':').next().unwrap().to_owned();
        let Things { upload, digest, .. } = things;
        let empty = format!(
            "sha256:{}",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        [
            (Method::GET, format!("/v2/{name}/tags/list")),
            (Method::GET, format!("/v2/{name}/manifests/v1")),
            (Method::HEAD, format!("/v2/{name}/manifests/v1")),
            (Method::GET, format!("/v2/{name}/blobs/{digest}")),
            (Method::HEAD, format!("/v2/{name}/blobs/{digest}")),
            (Method::GET, format!("/v2/{name}/blobs/uploads/{upload}")),
            (Method::PATCH, format!("/v2/{name}/blobs/uploads/{upload}")),
            (Method::PUT, format!("/v2/{name}/blobs/uploads/{upload}?digest={empty}")),
            (Method::DELETE, format!("/v2/{name}/blobs/uploads/{upload}")),
        ]
    };
    for ((method, theirs), (_, nothing)) in paths(&walk.things).into_iter().zip(paths(&unknown)) {
        let [theirs, nothing] = [theirs, nothing].map(|path| walk.b.request(method.clone(), &path));
        let (theirs, nothing) = (walk.b.send(theirs).await, walk.b.send(nothing).await);
        assert_eq!(theirs.status, 404, "{theirs:?}");
        assert_same(&theirs, &walk.things, &nothing, &unknown);
    }
    // A manifest that names the first owner's component, under the same name and under another.
    let manifest = walk.a.get("/v2/mill/manifests/v1").await.text;
    for name in ["mill", "other"] {
        let path = format!("/v2/{name}/manifests/stolen");
        let pushed = walk.b.request(Method::PUT, &path).body(manifest.clone());
        let pushed = walk.b.send(pushed).await;
        assert_eq!(
            (pushed.status, &pushed.json()["errors"][0]["code"]),
            (404, &json!("MANIFEST_BLOB_UNKNOWN"))
        );
    }
    assert_eq!(snapshot(&walk.a, &walk.things).await, before, "something has changed");
}

/// A client with a new key of this owner.
async fn tenant(host: &TestHost, owner: &str) -> Client {
    let new = json!({ "name": owner, "owner": owner, "scopes": ["manage", "submit", "read"] });
    let made = host.client().post("/v1/keys", &new).await.ok();
    host.client().with_key(made["key"].as_str().unwrap())
}

#[tokio::test]
async fn a_handler_of_another_owner_does_not_reach_this_machine() {
    let server = LocalServer::start().await;
    let port = server.host().rsplit_once(':').unwrap().1.to_owned();
    let permitted = format!("localhost:{port}");
    let host = TestHost::start_with(&["--handler-allow", &permitted]);
    let client = tenant(&host, "miller").await;
    client.upload("play:1", std::fs::read(guests::playground()).unwrap()).await.ok();
    let template = json!({ "id": "t", "name": "t", "imageName": "play:1" });
    client.post("/v1/templates", &template).await.ok();
    let listed = [server.host(), "169.254.169.254".to_owned(), format!("{permitted}!private")];
    let endpoint = json!({ "id": "e", "templateId": "t", "allowedHosts": listed });
    client.post("/v1/endpoints", &endpoint).await.ok();

    for url in [server.url("/"), "http://169.254.169.254/".to_owned()] {
        let document = client.finish("e", json!({ "op": "fetch", "url": url })).await;
        assert_eq!(document["status"], "FAILED", "{document}");
        assert!(document["error"].as_str().unwrap().contains("not public"), "{document}");
    }
    let url = format!("http://{permitted}/");
    let document = client.finish("e", json!({ "op": "fetch", "url": url })).await;
    assert_eq!(document["output"]["status"], 200, "{document}");
}

#[tokio::test]
async fn an_owner_has_a_bounded_number_of_records() {
    let host = TestHost::start_with(&["--max-owner-records", "10"]);
    let client = tenant(&host, "miller").await;
    let template =
        |n: usize| json!({ "id": format!("t{n}"), "name": n.to_string(), "imageName": "x" });
    for n in 1..=10 {
        client.post("/v1/templates", &template(n)).await.ok();
    }
    let answer = client.post("/v1/templates", &template(11)).await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("quota_exceeded")));
    assert!(answer.text.contains("--max-owner-records"), "{}", answer.text);
    // The operator may still make keys for the owner.
    tenant(&host, "miller").await;
    // Another owner has a part of their own.
    let other = tenant(&host, "baker").await;
    other.post("/v1/templates", &template(12)).await.ok();
    assert_eq!(client.delete("/v1/templates/t1").await.status, 204);
    client.post("/v1/templates", &template(11)).await.ok();
}
