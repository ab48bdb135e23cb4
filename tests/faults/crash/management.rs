//! Acknowledged changes of the management API survive a `kill -9`: objects of each kind that were
//! created, changed and deleted, with their secrets, which still work. An interrupted change is
//! made completely or not at all.
//!
//! `make full` kills once after each change; `GRISTMILL_CRASH_KILLS` (`make crash`) sets the number
//! of kills.

use std::collections::BTreeMap;
use std::time::SystemTime;

use gristmill_core::webhook::signature::WebhookSecret;
use gristmill_tests::{Client, Receiver, Reply, ScriptedServer, TestHost, eventually, guests};
use reqwest::Method;
use serde_json::{Value, json};

use crate::torture::{Random, setting};

const VOLUMES: &str = "/v1/networkvolumes";
const AUTHS: &str = "/v1/containerregistryauth";
const HANDLER: &str = "/v1/handlers/mill:1";
const OTHER_HANDLER: &str = "/v1/handlers/mill:2";

/// `mill:pass-of-the-hub`, as a registry receives it.
const BASIC: &str = "authorization: Basic bWlsbDpwYXNzLW9mLXRoZS1odWI=";

fn random() -> Random {
    let seed = setting("GRISTMILL_CRASH_SEED");
    let seed =
        seed.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into());
    println!("SEED={seed}");
    Random::new(seed)
}

/// A host that is killed after each change, with all acknowledged changes.
struct Scenario {
    host: TestHost,
    random: Random,
    kills: u64,
    /// The expected document of each path; `None`: it was deleted.
    shown: BTreeMap<String, Option<Value>>,
    /// Keys, and whether they are valid.
    keys: Vec<(String, bool)>,
    /// The endpoint, with the secret that only its owner received.
    endpoint: Option<(String, WebhookSecret)>,
    /// The handlers that it has run, by their digests, the newest first.
    releases: Vec<Value>,
    /// Whether its newest handler returns its input.
    is_echo: bool,
    auth: Option<String>,
    /// Number of jobs with a known result.
    jobs: u64,
    receiver: Receiver,
    /// A registry that asks for a password and has no images.
    registry: ScriptedServer,
}

impl Scenario {
    async fn start() -> Self {
        let receiver = Receiver::start(&["200 OK"]).await;
        let registry = ScriptedServer::start(|_, head| match head.contains(BASIC) {
            true => Reply::with("404 Not Found", &[]),
            false => Reply::with("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"x\""]),
        })
        .await;
        let (webhooks, registries) = (receiver.host(), format!("http://{}", registry.host()));
        let allowed = ["--webhook-allow", &webhooks, "--registry-allow", &registries];
        Self {
            host: TestHost::start_with(&allowed),
            random: random(),
            kills: 0,
            shown: BTreeMap::new(),
            keys: vec![],
            endpoint: None,
            releases: vec![],
            is_echo: false,
            auth: None,
            jobs: 0,
            receiver,
            registry,
        }
    }

    fn client(&self) -> Client {
        self.host.client()
    }

    /// Creates an object in this list; returns its path.
    async fn make(&mut self, list: &str, new: Value) -> String {
        let document = self.client().post(list, &new).await.ok();
        let path = format!("{list}/{}", document["id"].as_str().unwrap());
        self.shows(&path, document);
        path
    }

    async fn change(&mut self, path: &str, change: Value) {
        let document = self.client().patch(path, &change).await.ok();
        self.shows(path, document);
        self.kill().await;
    }

    async fn delete(&mut self, path: &str) {
        let answer = self.client().delete(path).await;
        assert_eq!(answer.status, 204, "{answer:?}");
        self.shown.insert(path.to_owned(), None);
        self.kill().await;
    }

    /// Expects the document of the answer from now on, except for fields that are shown only once
    /// and counters of other changes.
    fn shows(&mut self, path: &str, mut document: Value) {
        for told_once_or_moving in ["webhookSecret", "version"] {
            document.as_object_mut().unwrap().remove(told_once_or_moving);
        }
        self.shown.insert(path.to_owned(), Some(document));
    }

    /// The endpoint runs this handler from now on.
    fn releases(&mut self, document: &Value) {
        self.releases.insert(0, document["sha256"].clone());
    }

    async fn upload(&mut self, handler: &std::path::Path) -> Value {
        let document = self.host.upload("mill:1", std::fs::read(handler).unwrap()).await.ok();
        self.shows(HANDLER, document.clone());
        document
    }

    /// Kills the host now or soon, and checks everything.
    async fn kill(&mut self) {
        if self.random.one_in(2) {
            // The subject, as below: a kill at a random time.
            tokio::time::sleep(self.random.ms(0, 5)).await;
        }
        self.host.kill9();
        self.host.start_again();
        self.kills += 1;
        self.look().await;
    }

    async fn look(&mut self) {
        let client = self.client();
        for (path, expected) in &self.shown {
            let flag = match path.starts_with("/v1/templates/") {
                true => "?includeEndpointBoundTemplates=true",
                false => "",
            };
            let answer = client.get(&format!("{path}{flag}")).await;
            let Some(expected) = expected else {
                answer.refused(404);
                continue;
            };
            let mut found = answer.ok();
            found.as_object_mut().unwrap().remove("version");
            assert_eq!(found, *expected, "lost: {path}");
        }
        for (key, is_valid) in &self.keys {
            let answer = client.with_key(key).get("/v1/templates").await;
            assert_eq!(answer.status == 200, *is_valid, "lost: a key: {answer:?}");
        }
        if let Some((path, _)) = &self.endpoint {
            let found = client.get(&format!("{path}/releases")).await.ok();
            let found: Vec<_> =
                found.as_array().unwrap().iter().map(|release| release["sha256"].clone()).collect();
            assert_eq!(found, self.releases, "lost: a release");
        }
        self.look_at_the_bill(&client).await;
        if let Some(auth) = &self.auth {
            let image = format!("{}/mill:1", self.registry.host());
            let new =
                json!({ "name": "fetched", "imageName": image, "containerRegistryAuthId": auth });
            let refused = client.post("/v1/templates", &new).await.refused(400);
            assert!(refused.contains("no such image"), "lost: a password: {refused}");
        }
        // Last, so that no call reads the bill between this job and the next kill.
        if self.endpoint.is_some() {
            self.run_a_job(&client).await;
        }
    }

    /// Runs a job that has the environment, a signed webhook, and a bill.
    async fn run_a_job(&mut self, client: &Client) {
        let (path, secret) = self.endpoint.as_ref().unwrap();
        let id = path.rsplit('/').next().unwrap();
        let input = json!({ "op": "env", "name": "GRAIN" });
        let body = json!({ "input": input, "webhook": self.receiver.url("/") });
        let document = client.post(&client.path(id, "runsync"), &body).await.ok();
        self.jobs += 1;
        let env = &self.shown[path].as_ref().unwrap()["env"]["GRAIN"];
        let expected = if self.is_echo { input } else { json!({ "env": env }) };
        assert_eq!(document["output"], expected, "lost: {document}");
        let call = eventually("the job's webhook", async || {
            let mut calls = self.receiver.calls().into_iter();
            calls.find(|call| call.json()["id"] == document["id"])
        })
        .await;
        let timestamp = call.header("webhook-timestamp").parse().unwrap();
        let signature = secret.sign(call.header("webhook-id"), timestamp, &call.body);
        let is_signed = call.header("webhook-signature").split(' ').any(|one| one == signature);
        assert!(is_signed, "lost: a webhook secret: {call:?}");
    }

    async fn look_at_the_bill(&self, client: &Client) {
        let bill = client.get("/v1/billing/endpoints?bucketSize=year").await.ok();
        let jobs = bill.as_array().unwrap().iter().map(|record| record["jobs"].as_u64().unwrap());
        assert_eq!(jobs.sum::<u64>(), self.jobs, "lost, or twice: usage: {bill}");
    }

    /// Creates, changes and deletes an object of each kind.
    async fn run_step(&mut self) {
        let volume = self.make(VOLUMES, json!({ "name": "v", "size": 1 })).await;
        self.kill().await;
        self.change(&volume, json!({ "name": "rye", "size": 2 })).await;

        let registry = self.registry.host();
        let new = json!({
            "name": "hub", "registry": registry, "username": "mill", "password": "pass-of-the-hub",
        });
        let auth = self.make(AUTHS, new).await;
        let id = auth.rsplit('/').next().unwrap().to_owned();
        self.auth = Some(id.clone());
        self.kill().await;

        let key = json!({ "name": "k", "scopes": ["manage"] });
        let key = self.client().post("/v1/keys", &key).await.ok();
        self.keys.push((key["key"].as_str().unwrap().to_owned(), true));
        self.kill().await;

        let handler = self.upload(&guests::playground()).await;
        self.kill().await;

        let new = json!({ "name": "t", "imageName": "mill:1", "isServerless": true });
        let template = self.make("/v1/templates", new).await;
        self.kill().await;
        self.change(&template, json!({ "containerRegistryAuthId": id, "readme": "flour" })).await;

        let new = json!({
            "templateId": template.rsplit('/').next(), "networkVolumeId": volume.rsplit('/').next(),
            "env": { "GRAIN": "oats" },
        });
        let made = self.client().post("/v1/endpoints", &new).await.ok();
        let endpoint = format!("/v1/endpoints/{}", made["id"].as_str().unwrap());
        self.endpoint = Some((endpoint.clone(), revealed_secret(&made)));
        self.releases(&handler);
        self.shows(&endpoint, made);
        self.kill().await;
        self.change(&endpoint, json!({ "env": { "GRAIN": "rye" }, "memoryMib": 99 })).await;
        let rotated = self.client().post_empty(&format!("{endpoint}/rotate-webhook-secret")).await;
        self.endpoint = Some((endpoint.clone(), revealed_secret(&rotated.ok())));
        self.kill().await;

        let handler = self.upload(&guests::echo()).await;
        self.releases(&handler);
        self.is_echo = true;
        self.kill().await;
        let back = self.client().post_empty(&format!("{endpoint}/rollback")).await.ok();
        self.releases(&back);
        self.is_echo = false;
        if let Some(Some(shown)) = self.shown.get_mut(&template) {
            shown["imageName"] = json!(format!("mill@sha256:{}", back["sha256"].as_str().unwrap()));
        }
        self.kill().await;

        let path = format!("/v1/keys/{}", key["id"].as_str().unwrap());
        assert_eq!(self.client().delete(&path).await.status, 204);
        self.keys.last_mut().unwrap().1 = false;
        self.kill().await;
        self.endpoint = None;
        self.releases.clear();
        self.delete(&endpoint).await;
        self.delete(&volume).await;
        self.delete(&template).await;
        self.auth = None;
        self.delete(&auth).await;
        // Its component has another name, so the first component is deleted automatically.
        let handler = std::fs::read(guests::echo()).unwrap();
        let document = self.host.upload("mill:2", handler).await.ok();
        self.shows(OTHER_HANDLER, document);
        self.delete(HANDLER).await;
        self.delete(OTHER_HANDLER).await;
    }
}

fn revealed_secret(document: &Value) -> WebhookSecret {
    document["webhookSecret"].as_str().unwrap().to_owned().try_into().unwrap()
}

#[tokio::test]
async fn each_acknowledged_change_survives_a_kill_right_after_it() {
    let kills = setting("GRISTMILL_CRASH_KILLS").unwrap_or(1);
    let mut scenario = Scenario::start().await;
    while scenario.kills < kills {
        scenario.run_step().await;
    }
    println!("{} kills, {} jobs billed", scenario.kills, scenario.jobs);
}

/// A delete without an answer was made or not: a deleted endpoint leaves nothing behind.
#[tokio::test]
async fn an_interrupted_delete_deletes_all_or_nothing() {
    const JOBS: u64 = 3;
    let rounds = setting("GRISTMILL_CRASH_KILLS").unwrap_or(8).max(8);
    let mut random = random();
    let mut host = TestHost::start();
    host.upload("echo:latest", std::fs::read(guests::echo()).unwrap()).await.ok();
    let template = json!({ "id": "t", "name": "t", "imageName": "echo" });
    host.client().post("/v1/templates", &template).await.ok();
    let endpoint = json!({ "id": "e", "templateId": "t", "workersMax": 0 });
    let (mut deleted, mut there) = (0, 0);
    for _ in 0..rounds {
        let client = host.client();
        client.post("/v1/endpoints", &endpoint).await.ok();
        let mut jobs = vec![];
        for _ in 0..JOBS {
            jobs.push(client.submit("e", json!({})).await);
        }
        let delete = client.request(Method::DELETE, "/v1/endpoints/e");
        let call = tokio::spawn(async move { client.try_send(delete).await });
        tokio::time::sleep(random.ms(0, 5)).await;
        host.kill9();
        let was_told = call.await.unwrap().is_ok_and(|answer| answer.status == 204);
        host.start_again();
        let client = host.client();
        if client.get("/v1/endpoints/e").await.status == 404 {
            deleted += 1;
            client.post("/v1/endpoints", &endpoint).await.ok();
            for job in &jobs {
                client.status("e", job).await.refused(404);
            }
            assert_eq!(client.health("e").await["jobs"]["inQueue"], 0);
        } else {
            there += 1;
            assert!(!was_told, "lost: a delete");
            assert_eq!(client.health("e").await["jobs"]["inQueue"], JOBS);
        }
        assert_eq!(client.delete("/v1/endpoints/e").await.status, 204);
    }
    println!("{deleted} deletes were made, {there} were not");
}

/// A volume whose deletion was interrupted is there with its files, or leaves nothing behind.
#[tokio::test]
async fn an_interrupted_delete_of_a_volume_leaves_no_files_without_a_record() {
    let rounds = setting("GRISTMILL_CRASH_KILLS").unwrap_or(8).max(8);
    let mut random = random();
    let mut host = TestHost::start();
    let volumes = host.data_dir().join("volumes");
    let (mut deleted, mut there) = (0, 0);
    for _ in 0..rounds {
        let client = host.client();
        let made = client.post(VOLUMES, &json!({ "name": "v", "size": 1 })).await.ok();
        let id = made["id"].as_str().unwrap();
        std::fs::create_dir_all(volumes.join(id)).unwrap();
        std::fs::write(volumes.join(id).join("file"), "rye").unwrap();
        let path = format!("{VOLUMES}/{id}");
        let delete = client.request(Method::DELETE, &path);
        let call = tokio::spawn(async move { client.try_send(delete).await });
        tokio::time::sleep(random.ms(0, 5)).await;
        host.kill9();
        let was_told = call.await.unwrap().is_ok_and(|answer| answer.status == 204);
        host.start_again();
        if host.client().get(&path).await.status == 404 {
            deleted += 1;
        } else {
            there += 1;
            assert!(!was_told, "lost: a delete");
            assert!(volumes.join(id).join("file").exists(), "lost: a file");
            assert_eq!(host.client().delete(&path).await.status, 204);
        }
        eventually("nothing is left", async || {
            std::fs::read_dir(&volumes).unwrap().next().is_none().then_some(())
        })
        .await;
    }
    println!("{deleted} deletes were made, {there} were not");
}
