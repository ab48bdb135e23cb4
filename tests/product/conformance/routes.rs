//! Every route of both APIs, for tests of their common properties.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::shared;

/// One route, with the permission that a key needs for it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) scope: &'static str,
    /// For a route with a JSON body: a valid one.
    pub(crate) body: Option<Value>,
}

impl Route {
    fn new(method: Method, path: String, scope: &'static str, body: Option<Value>) -> Self {
        Self { method, path, scope, body }
    }
}

/// The queue API of an endpoint, on both mounts.
pub(crate) fn queue_routes(endpoint: &str, job: &str) -> Vec<Route> {
    let submission = || Some(json!({ "input": { "op": "echo" } }));
    let mut routes = vec![];
    for mount in ["/v2", "/sdk/v2"] {
        let path = |rest: &str| format!("{mount}/{endpoint}/{rest}");
        for operation in ["run", "runsync"] {
            routes.push(Route::new(Method::POST, path(operation), "submit", submission()));
        }
        routes.push(Route::new(Method::GET, path(&format!("timeline/{job}")), "read", None));
        for operation in ["status", "status-sync", "stream"] {
            for method in [Method::GET, Method::POST] {
                let path = path(&format!("{operation}/{job}"));
                routes.push(Route::new(method, path, "read", None));
            }
        }
        for operation in ["cancel", "retry"] {
            let path = path(&format!("{operation}/{job}"));
            routes.push(Route::new(Method::POST, path, "submit", None));
        }
        routes.push(Route::new(Method::POST, path("purge-queue"), "submit", None));
        routes.push(Route::new(Method::GET, path("requests"), "read", None));
        routes.push(Route::new(Method::GET, path("health"), "read", None));
    }
    routes
}

/// The routes of OpenAI's clients. Their refusals have another format.
pub(crate) fn openai_routes(endpoint: &str) -> Vec<Route> {
    let path = |mount: &str, rest: &str| format!("{mount}/{endpoint}/openai/v1/{rest}");
    let body = || Some(json!({ "op": "echo" }));
    let of_mount = |mount| {
        let post = Route::new(Method::POST, path(mount, "chat/completions"), "submit", body());
        [post, Route::new(Method::GET, path(mount, "models"), "submit", None)]
    };
    ["/v2", "/sdk/v2"].into_iter().flat_map(of_mount).collect()
}

/// The management API. The objects to change or delete do not exist.
pub(crate) fn management_routes() -> Vec<Route> {
    let manage = |method, path: &str, body| Route::new(method, path.to_owned(), "manage", body);
    let admin = |method, path: &str, body| Route::new(method, path.to_owned(), "admin", body);
    let submit = |method, path: &str, body| Route::new(method, path.to_owned(), "submit", body);
    let read = |path: &str| Route::new(Method::GET, path.to_owned(), "read", None);
    let metrics = |path: &str| Route::new(Method::GET, path.to_owned(), "metrics", None);
    let template = || Some(json!({ "name": "n", "imageName": "no-such-image:latest" }));
    let endpoint = || Some(json!({ "name": "n", "templateId": "no-such-template" }));
    let registry_auth = || Some(json!({ "name": "n", "username": "u", "password": "p" }));
    let volume = || Some(json!({ "name": "n", "size": 1 }));
    let none = json!({ "endpoints": ["no-such-endpoint"] });
    let job_action = || Some(json!({ "action": "cancel", "filter": none }));
    vec![
        manage(Method::GET, "/v1/templates", None),
        manage(Method::POST, "/v1/templates", template()),
        manage(Method::GET, "/v1/templates/no-such-template", None),
        manage(Method::PATCH, "/v1/templates/no-such-template", template()),
        manage(Method::POST, "/v1/templates/no-such-template/update", template()),
        manage(Method::DELETE, "/v1/templates/no-such-template", None),
        manage(Method::GET, "/v1/endpoints", None),
        manage(Method::POST, "/v1/endpoints", endpoint()),
        manage(Method::GET, "/v1/endpoints/no-such-endpoint", None),
        manage(Method::PATCH, "/v1/endpoints/no-such-endpoint", endpoint()),
        manage(Method::POST, "/v1/endpoints/no-such-endpoint/update", endpoint()),
        manage(Method::DELETE, "/v1/endpoints/no-such-endpoint", None),
        manage(Method::POST, "/v1/endpoints/no-such-endpoint/rotate-webhook-secret", None),
        manage(Method::GET, "/v1/endpoints/no-such-endpoint/deliveries", None),
        manage(Method::GET, "/v1/endpoints/no-such-endpoint/logs", None),
        manage(Method::GET, "/v1/endpoints/no-such-endpoint/releases", None),
        manage(Method::GET, "/v1/endpoints/no-such-endpoint/releases/1", None),
        manage(Method::POST, "/v1/endpoints/no-such-endpoint/rollback", None),
        manage(Method::GET, "/v1/networkvolumes", None),
        manage(Method::POST, "/v1/networkvolumes", volume()),
        manage(Method::GET, "/v1/networkvolumes/nothing", None),
        manage(Method::PATCH, "/v1/networkvolumes/nothing", volume()),
        manage(Method::POST, "/v1/networkvolumes/nothing/update", volume()),
        manage(Method::DELETE, "/v1/networkvolumes/nothing", None),
        manage(Method::GET, "/v1/networkvolumes/nothing/files", None),
        manage(Method::GET, "/v1/networkvolumes/nothing/files/a/b", None),
        manage(Method::PUT, "/v1/networkvolumes/nothing/files/a/b", None),
        manage(Method::DELETE, "/v1/networkvolumes/nothing/files/a/b", None),
        manage(Method::GET, "/v1/billing/endpoints", None),
        manage(Method::GET, "/v1/billing/pods", None),
        manage(Method::GET, "/v1/billing/networkvolumes", None),
        manage(Method::GET, "/v1/pods", None),
        metrics("/metrics"),
        metrics("/v1/system"),
        metrics("/v1/cluster"),
        read("/v1/jobs"),
        read("/v1/series"),
        read("/v1/endpoints/no-such-endpoint/series"),
        read("/v1/job-actions"),
        read("/v1/job-actions/nothing"),
        submit(Method::POST, "/v1/job-actions", job_action()),
        submit(Method::DELETE, "/v1/job-actions/nothing", None),
        manage(Method::GET, "/v1/handlers", None),
        manage(Method::PUT, "/v1/handlers/no-handler:latest", None),
        manage(Method::GET, "/v1/handlers/no-handler:latest", None),
        manage(Method::DELETE, "/v1/handlers/no-handler:latest", None),
        manage(Method::GET, "/v1/containerregistryauth", None),
        manage(Method::POST, "/v1/containerregistryauth", registry_auth()),
        manage(Method::GET, "/v1/containerregistryauth/nothing", None),
        manage(Method::DELETE, "/v1/containerregistryauth/nothing", None),
        admin(Method::GET, "/v1/keys", None),
        admin(Method::POST, "/v1/keys", Some(json!({ "name": "n", "scopes": ["read"] }))),
        admin(Method::DELETE, "/v1/keys/nosuchkey", None),
        admin(Method::GET, "/v1/backup", None),
        admin(Method::POST, "/v1/secrets/rotate", None),
    ]
}

/// The documented operations that are not in the lists above, each with its reason.
const NOT_LISTED: [(&str, &str); 6] = [
    ("GET /v1/events", "its answer does not end; `e2e` tests its key"),
    ("GET /openapi.json", "it needs no key"),
    ("GET /v1/openapi.json", "it needs no key"),
    ("GET /v1/docs", "it needs no key"),
    ("GET /livez", "it needs no key"),
    ("GET /readyz", "it needs no key"),
];

/// A route that is missing in the lists is not covered by the tests of keys and malformed calls.
#[tokio::test]
async fn every_documented_route_is_listed() {
    let endpoint = shared("routes-listed", json!({})).await;
    let document = endpoint.client.get("/openapi.json").await.ok();
    let mut routes = queue_routes("{endpoint}", "{job}");
    routes.extend(management_routes());
    routes.extend(openai_routes("{endpoint}"));
    let is_listed = |method: &str, path: &str| {
        let name = format!("{} {path}", method.to_uppercase());
        let is_exempt = NOT_LISTED.iter().any(|(exempt, _)| *exempt == name);
        is_exempt || routes.iter().any(|route| is_route(route, method, path))
    };
    let documented = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        let methods = ["get", "post", "put", "patch", "delete"];
        methods.into_iter().filter(|method| !item[*method].is_null()).map(move |it| (it, path))
    });
    let missing: Vec<_> =
        documented.filter(|(method, path)| !is_listed(method, path.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Whether a route is that of a documented path, whose variable parts are in braces.
fn is_route(route: &Route, method: &str, path: &str) -> bool {
    let parts = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let (given, documented) = (parts(&route.path), parts(path));
    let fits = |(given, documented): (&String, &String)| {
        documented.starts_with('{') || given == documented
    };
    // The last variable part may be a path.
    let is_long_enough = match documented.last() {
        Some(last) if last.starts_with('{') => given.len() >= documented.len(),
        _ => given.len() == documented.len(),
    };
    route.method.as_str().eq_ignore_ascii_case(method)
        && is_long_enough
        && given.iter().zip(&documented).all(fits)
}

/// The routes with a body of any kind that they read before they refuse a call. A file for a volume that
/// does not exist is refused before its body, which may have gigabytes.
pub(crate) fn routes_that_read(endpoint: &str) -> Vec<Route> {
    let mut routes = routes_with_body(endpoint);
    let is_read = |route: &Route| route.method == Method::PUT && !route.path.contains("/files/");
    routes.extend(management_routes().into_iter().filter(is_read));
    routes
}

/// The routes with a JSON body.
pub(crate) fn routes_with_body(endpoint: &str) -> Vec<Route> {
    let mut routes = queue_routes(endpoint, crate::support::UNKNOWN_JOB);
    routes.extend(management_routes());
    routes.retain(|route| route.body.is_some());
    routes
}
