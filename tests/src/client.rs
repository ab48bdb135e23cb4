//! A thin client of both APIs: one method for each operation, without assertions.

use std::fs;
use std::path::Path;
use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::Answer;
use crate::wait::eventually;

/// Longer than any call of the tests may take, including the upload of a compile bomb on a busy
/// machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Fields of a deployment that belong to its template; all others are the endpoint's.
const TEMPLATE_FIELDS: [&str; 9] = [
    "containerDiskInGb",
    "dockerEntrypoint",
    "dockerStartCmd",
    "isPublic",
    "ports",
    "readme",
    "templateEnv",
    "volumeInGb",
    "volumeMountPath",
];

/// Calls one host with one key. Belongs to the tokio runtime, and so to the test, that made it.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    authorization: Option<String>,
    mount: &'static str,
}

impl Client {
    /// A client that sends `Authorization: Bearer KEY`.
    pub fn new(url: &str, key: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(CALL_TIMEOUT).build().unwrap();
        let authorization = Some(format!("Bearer {key}"));
        Self { http, url: url.to_owned(), authorization, mount: "/v2" }
    }

    /// The same over separate connections, to hosts whose certificates these authorities (PEM) have
    /// signed.
    #[must_use]
    pub fn trusting(&self, authorities: &[u8]) -> Self {
        let authorities = reqwest::Certificate::from_pem_bundle(authorities).unwrap();
        let builder = reqwest::Client::builder().no_proxy().timeout(CALL_TIMEOUT);
        let http = builder.tls_certs_only(authorities).build().unwrap();
        Self { http, ..self.clone() }
    }

    /// The same with another key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        self.with_authorization(Some(&format!("Bearer {key}")))
    }

    /// The same with a new key that has these scopes. For a client with an admin's key.
    pub async fn with_scopes(&self, scopes: &[&str]) -> Self {
        let key = json!({ "name": "scopes", "scopes": scopes });
        let made = self.post("/v1/keys", &key).await.ok();
        self.with_key(made["key"].as_str().unwrap())
    }

    /// The same with another Authorization header, or none.
    #[must_use]
    pub fn with_authorization(&self, value: Option<&str>) -> Self {
        Self { authorization: value.map(str::to_owned), ..self.clone() }
    }

    /// The same on the mount whose `/stream` returns the object for SDKs.
    #[must_use]
    pub fn sdk(&self) -> Self {
        Self { mount: "/sdk/v2", ..self.clone() }
    }

    /// The host's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A call that is not sent yet. `path` starts with `/` and is sent unchanged.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        }
    }

    /// Sends a call; an error here means that there was no answer at all.
    ///
    /// # Errors
    /// Errors of the connection.
    pub async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        let request = request.build()?;
        let call = format!("{} {}", request.method(), request.url().path());
        let response = self.http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Answer { call, status, headers, text: response.text().await? })
    }

    /// Sends a call and reads the answer.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// `GET path`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// `POST path` without a body.
    pub async fn post_empty(&self, path: &str) -> Answer {
        self.send(self.request(Method::POST, path)).await
    }

    /// `POST path` with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// `POST path` with a body that need not be JSON.
    pub async fn post_text(&self, path: &str, body: impl Into<String>) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        self.send(request.body(body.into())).await
    }

    /// `PATCH path` with a JSON body.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    /// Uploads a component as `reference`.
    pub async fn upload(&self, reference: &str, component: impl Into<Vec<u8>>) -> Answer {
        let request = self.request(Method::PUT, &format!("/v1/handlers/{reference}"));
        self.send(request.header("content-type", "application/wasm").body(component.into())).await
    }

    /// Deploys a handler of the key's owner, like [`TestHost::deploy`](crate::TestHost::deploy).
    pub async fn deploy(&self, component: &Path, name: &str, settings: Value) -> String {
        let image = format!("{}:latest", component.file_stem().unwrap().to_str().unwrap());
        self.upload(&image, fs::read(component).unwrap()).await.ok();
        self.deploy_image(&image, name, settings).await
    }

    /// The same with an uploaded handler.
    pub async fn deploy_image(&self, image: &str, name: &str, settings: Value) -> String {
        let mut template = json!({ "id": name, "name": name, "imageName": image });
        let mut endpoint = json!({ "id": name, "templateId": name });
        for (field, value) in settings.as_object().unwrap() {
            if TEMPLATE_FIELDS.contains(&field.as_str()) {
                let field = if field == "templateEnv" { "env" } else { field };
                template[field] = value.clone();
            } else {
                endpoint[field] = value.clone();
            }
        }
        self.post("/v1/templates", &template).await.ok();
        self.post("/v1/endpoints", &endpoint).await.ok();
        name.to_owned()
    }

    /// `DELETE path`.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// The path of an operation on this client's mount.
    pub fn path(&self, endpoint: &str, rest: &str) -> String {
        format!("{}/{endpoint}/{rest}", self.mount)
    }

    /// `/run` with this input.
    pub async fn run(&self, endpoint: &str, input: Value) -> Answer {
        self.post(&self.path(endpoint, "run"), &json!({ "input": input })).await
    }

    /// `/run` with this body; returns the job's id.
    pub async fn submit_body(&self, endpoint: &str, body: &Value) -> String {
        let answer = self.post(&self.path(endpoint, "run"), body).await.ok();
        answer["id"].as_str().unwrap().to_owned()
    }

    /// `/run` with this input and policy; returns the job's id.
    pub async fn submit_with(&self, endpoint: &str, input: Value, policy: Value) -> String {
        self.submit_body(endpoint, &json!({ "input": input, "policy": policy })).await
    }

    /// `/run` with this input; returns the job's id.
    pub async fn submit(&self, endpoint: &str, input: Value) -> String {
        self.submit_with(endpoint, input, json!({})).await
    }

    /// `/runsync` with this input. `query` is empty or starts with `?`.
    pub async fn run_sync(&self, endpoint: &str, query: &str, input: Value) -> Answer {
        let path = self.path(endpoint, &format!("runsync{query}"));
        self.post(&path, &json!({ "input": input })).await
    }

    /// `/status`; `job` may carry a query.
    pub async fn status(&self, endpoint: &str, job: &str) -> Answer {
        self.get(&self.path(endpoint, &format!("status/{job}"))).await
    }

    /// `/stream`; `job` may carry a query.
    pub async fn stream(&self, endpoint: &str, job: &str) -> Answer {
        self.get(&self.path(endpoint, &format!("stream/{job}"))).await
    }

    /// `/cancel`.
    pub async fn cancel(&self, endpoint: &str, job: &str) -> Answer {
        self.post_empty(&self.path(endpoint, &format!("cancel/{job}"))).await
    }

    /// `/retry`.
    pub async fn retry(&self, endpoint: &str, job: &str) -> Answer {
        self.post_empty(&self.path(endpoint, &format!("retry/{job}"))).await
    }

    /// `/purge-queue`.
    pub async fn purge(&self, endpoint: &str) -> Answer {
        self.post_empty(&self.path(endpoint, "purge-queue")).await
    }

    /// `POST /openai/…` with this body.
    pub async fn openai(&self, endpoint: &str, route: &str, body: &Value) -> Answer {
        self.post(&self.path(endpoint, &format!("openai/{route}")), body).await
    }

    /// The health report.
    pub async fn health(&self, endpoint: &str) -> Value {
        self.get(&self.path(endpoint, "health")).await.ok()
    }

    /// Waits until so many workers run: one is counted a moment after its job is IN_PROGRESS, and
    /// until its handler has stopped.
    pub async fn workers_running(&self, endpoint: &str, count: u64) {
        eventually(&format!("{count} workers of {endpoint} to run"), async || {
            (self.health(endpoint).await["workers"]["running"] == count).then_some(())
        })
        .await;
    }

    /// The value of a metric of the whole host, such as `gristmill_jobs`.
    pub async fn metric(&self, name: &str) -> u64 {
        let answer = self.get("/metrics").await;
        let mut lines = answer.text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}: {answer:?}")).parse().unwrap()
    }

    /// Waits until this many calls of the whole host wait for a change of a job. For a host that no
    /// other test uses meanwhile.
    pub async fn calls_waiting(&self, count: u64) {
        eventually(&format!("{count} calls to wait for a job"), async || {
            (self.metric("gristmill_calls_waiting").await == count).then_some(())
        })
        .await;
    }

    /// The job's document; `None` while the host says that it does not reach its database, and that
    /// the call may be repeated.
    async fn reachable_status(&self, endpoint: &str, job: &str) -> Option<Value> {
        let answer = self.status(endpoint, job).await;
        let is_away = answer.status == 503 && answer.json()["code"] == "unavailable";
        (!is_away).then(|| answer.ok())
    }

    /// Waits until the job has this status, and returns its document.
    pub async fn until(&self, endpoint: &str, job: &str, status: &str) -> Value {
        eventually(&format!("job {job} to be {status}"), async || {
            let document = self.reachable_status(endpoint, job).await?;
            let is_final = !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS"));
            let is_wanted = document["status"] == status;
            assert!(is_wanted || !is_final, "instead of {status}: {document}");
            is_wanted.then_some(document)
        })
        .await
    }

    /// Waits until the job has ended, however, and returns its document.
    pub async fn finished(&self, endpoint: &str, job: &str) -> Value {
        eventually(&format!("job {job} to end"), async || {
            let document = self.reachable_status(endpoint, job).await?;
            let waits = matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS"));
            (!waits).then_some(document)
        })
        .await
    }

    /// Submits a job, waits until it has ended, and returns its document.
    pub async fn finish(&self, endpoint: &str, input: Value) -> Value {
        let job = self.submit(endpoint, input).await;
        self.finished(endpoint, &job).await
    }
}
