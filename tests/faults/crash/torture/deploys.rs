//! Deploys: the next job runs the last acknowledged version.

use gristmill_tests::{TestHost, guests};
use reqwest::Method;
use serde_json::{Value, json};

use super::ledger::is_final;
use super::random::Random;
use super::session::Session;

/// The endpoint whose handler changes.
const HANDLER: &str = "deployed";
/// The endpoint whose environment changes.
const SETTINGS: &str = "configured";
const IMAGE: &str = "deployed:latest";

/// The last set value. A change without an answer may or may not have been made.
#[derive(Debug, Default)]
struct Version {
    acknowledged: u64,
    in_doubt: Option<u64>,
}

impl Version {
    fn next(&mut self) -> u64 {
        let next = self.acknowledged + 1;
        self.in_doubt = Some(next);
        next
    }

    fn acknowledge(&mut self) {
        self.acknowledged = self.in_doubt.take().unwrap();
    }

    /// A job has seen a value that `is_this` accepts: it must be the last one, and stays so from
    /// now on.
    fn saw(&mut self, is_this: impl Fn(u64) -> bool, shown: &Value) {
        let possible = [Some(self.acknowledged), self.in_doubt];
        let found = possible.into_iter().flatten().find(|version| is_this(*version));
        self.acknowledged =
            found.unwrap_or_else(|| panic!("lost: a deploy, {self:?}: a job has run {shown}"));
        self.in_doubt = None;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Deployer {
    handler: Version,
    settings: Version,
}

impl Deployer {
    pub(crate) async fn start(host: &TestHost) -> Self {
        host.upload(IMAGE, component(0)).await.ok();
        host.deploy_image(IMAGE, HANDLER, json!({ "workersMax": 1 })).await;
        let settings = json!({ "workersMax": 1, "env": { "VERSION": "0" } });
        host.deploy(&guests::playground(), SETTINGS, settings).await;
        Self::default()
    }

    pub(crate) async fn run(mut self, session: Session, mut random: Random) -> Self {
        if self.check(&session).await.is_some() {
            while !session.is_over() && self.step(&session, &mut random).await.is_some() {}
        }
        self
    }

    /// One change, and a job that must run with it.
    async fn step(&mut self, session: &Session, random: &mut Random) -> Option<()> {
        // Other states at each kill.
        tokio::time::sleep(random.ms(0, 100)).await;
        if random.one_in(3) {
            let path = format!("/v1/handlers/{IMAGE}");
            let request = session.client.request(Method::PUT, &path);
            let request = request.header("content-type", "application/wasm");
            let request = request.body(component(self.handler.next()));
            session.call("new handler", request).await?.ok();
            self.handler.acknowledge();
        } else {
            let version = self.settings.next().to_string();
            let request =
                session.client.request(Method::PATCH, &format!("/v1/endpoints/{SETTINGS}"));
            let request = request.json(&json!({ "env": { "VERSION": version } }));
            session.call("new settings", request).await?.ok();
            self.settings.acknowledge();
        }
        self.check(session).await
    }

    /// Runs a job on each endpoint.
    pub(crate) async fn check(&mut self, session: &Session) -> Option<()> {
        let input = json!({ "op": "env", "name": "VERSION" });
        let output = async |endpoint: &str| {
            let path = session.client.path(endpoint, "runsync");
            let body = json!({ "input": input });
            let request = session.client.request(Method::POST, &path).json(&body);
            let document = session.call("runsync", request).await?.ok();
            // A host that drains answers before the job's end.
            if !is_final(&document) && session.is_kill_announced() {
                return None;
            }
            assert_eq!(document["status"], "COMPLETED", "wrong: {document}");
            Some(document["output"].clone())
        };
        let shown = output(HANDLER).await?;
        self.handler.saw(|version| (shown == input) == is_echo(version), &shown);
        let shown = output(SETTINGS).await?;
        let number = shown["env"].as_str().and_then(|text| text.parse().ok());
        self.settings.saw(|version| number == Some(version), &shown);
        Some(())
    }
}

fn is_echo(version: u64) -> bool {
    version % 2 == 1
}

/// Every second version returns its input, and is a component that the host has not compiled yet:
/// it has a custom section with its number.
fn component(version: u64) -> Vec<u8> {
    if !is_echo(version) {
        return std::fs::read(guests::playground()).unwrap();
    }
    let mut bytes = std::fs::read(guests::echo()).unwrap();
    let (name, data) = (b"version", version.to_le_bytes());
    bytes.extend([0, u8::try_from(1 + name.len() + data.len()).unwrap()]);
    bytes.push(u8::try_from(name.len()).unwrap());
    bytes.extend(name);
    bytes.extend(data);
    bytes
}
