//! Every documented route of both APIs, for tests of their common properties.

use gristmill_tests::Client;
use reqwest::Method;
use serde_json::Value;

/// One operation of the OpenAPI document.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With values in place of the placeholders, except for the endpoint and the job.
    pub(crate) path: String,
    /// The permission that a key needs for it.
    pub(crate) scope: String,
    /// For a route that requires a JSON body, and OpenAI's: its example, which is valid.
    pub(crate) body: Option<Value>,
    /// Whether the route has a body of any kind, which it reads before it refuses a call.
    pub(crate) reads_body: bool,
}

/// The APIs with their own format of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Queue,
    OpenAi,
    Management,
}

impl Part {
    fn of(path: &str) -> Self {
        match path {
            path if path.contains("/openai/") => Self::OpenAi,
            path if path.contains("/{endpoint}/") => Self::Queue,
            _ => Self::Management,
        }
    }
}

/// All operations that need a key, without values in their paths.
#[derive(Debug)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// Those of a host's document.
    pub(crate) async fn of(client: &Client) -> Self {
        let document = client.get("/openapi.json").await.ok();
        let mut routes = vec![];
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let security = &operation["security"][0];
                // The answer of events does not end; `e2e` tests its key.
                if security.as_object().unwrap().is_empty() || path == "/v1/events" {
                    continue;
                }
                let scope = security["bearer"][0].as_str().unwrap().to_owned();
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let content = &operation["requestBody"]["content"];
                let is_required = operation["requestBody"]["required"] == true;
                let example = content["application/json"].get("example").cloned();
                // A file for a volume that does not exist is refused before its body, which may
                // have gigabytes.
                let reads_body = is_required && content["application/octet-stream"].is_null();
                let has_body = is_required || Part::of(path) == Part::OpenAi;
                let (path, body) = (fill(path, operation), example.filter(|_| has_body));
                routes.push(Route { method, path, scope, body, reads_body });
            }
        }
        assert!(routes.len() > 80, "{routes:?}");
        Self(routes)
    }

    /// The routes of a part, with this endpoint and this job. Other objects that they name do not
    /// exist.
    pub(crate) fn in_part(&self, part: Part, endpoint: &str, job: &str) -> Vec<Route> {
        let of_part = self.0.iter().filter(|route| Part::of(&route.path) == part);
        let name = |path: &str| path.replace("{endpoint}", endpoint).replace("{job}", job);
        of_part.map(|route| Route { path: name(&route.path), ..route.clone() }).collect()
    }

    /// The routes of the queue and of the management API.
    pub(crate) fn of_both(&self, endpoint: &str, job: &str) -> Vec<Route> {
        [Part::Queue, Part::Management]
            .into_iter()
            .flat_map(|part| self.in_part(part, endpoint, job))
            .collect()
    }

    /// These and the routes of OpenAI's clients.
    pub(crate) fn of_all(&self, endpoint: &str, job: &str) -> Vec<Route> {
        let mut routes = self.of_both(endpoint, job);
        routes.extend(self.in_part(Part::OpenAi, endpoint, job));
        routes
    }

    /// Those of the queue and of the management API that require a JSON body.
    pub(crate) fn with_body(&self, endpoint: &str) -> Vec<Route> {
        let mut routes = self.of_both(endpoint, crate::support::UNKNOWN_JOB);
        routes.retain(|route| route.body.is_some());
        routes
    }

    /// Those of them that read a body of any kind.
    pub(crate) fn that_read(&self, endpoint: &str) -> Vec<Route> {
        let mut routes = self.of_both(endpoint, crate::support::UNKNOWN_JOB);
        routes.retain(|route| route.reads_body);
        routes
    }
}

/// The id of objects that do not exist.
pub(crate) const NOTHING: &str = "nothing";

/// A path with values for its placeholders, except for the endpoint and the job: no object has the
/// id, and the others are the examples of the document.
fn fill(path: &str, operation: &Value) -> String {
    let path = path.replace("{id}", NOTHING).replace("{templateId}", NOTHING);
    // Both methods take it.
    let mut filled = path.replace("{rest}", "v1/models");
    let parameters = operation["parameters"].as_array().unwrap();
    for parameter in parameters.iter().filter(|parameter| !parameter["example"].is_null()) {
        let (name, example) = (parameter["name"].as_str().unwrap(), &parameter["example"]);
        if name != "endpoint" {
            let value = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
            filled = filled.replace(&format!("{{{name}}}"), &value);
        }
    }
    filled
}
