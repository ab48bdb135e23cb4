//! Every route of both APIs, for tests of their common properties.

use reqwest::Method;
use serde_json::{Value, json};

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

/// The route of OpenAI's clients. Its refusals have another format.
pub(crate) fn openai_route(endpoint: &str) -> Route {
    let path = format!("/v2/{endpoint}/openai/v1/chat/completions");
    Route::new(Method::POST, path, "submit", Some(json!({ "op": "echo" })))
}

/// The management API. The objects to change or delete do not exist.
pub(crate) fn management_routes() -> Vec<Route> {
    let manage = |method, path: &str, body| Route::new(method, path.to_owned(), "manage", body);
    let admin = |method, path: &str, body| Route::new(method, path.to_owned(), "admin", body);
    let template = || Some(json!({ "name": "n", "imageName": "no-such-image:latest" }));
    let endpoint = || Some(json!({ "name": "n", "templateId": "no-such-template" }));
    let registry_auth = || Some(json!({ "name": "n", "username": "u", "password": "p" }));
    let volume = || Some(json!({ "name": "n", "size": 1 }));
    vec![
        manage(Method::GET, "/v1/templates", None),
        manage(Method::POST, "/v1/templates", template()),
        manage(Method::GET, "/v1/templates/no-such-template", None),
        manage(Method::PATCH, "/v1/templates/no-such-template", template()),
        manage(Method::DELETE, "/v1/templates/no-such-template", None),
        manage(Method::GET, "/v1/endpoints", None),
        manage(Method::POST, "/v1/endpoints", endpoint()),
        manage(Method::GET, "/v1/endpoints/no-such-endpoint", None),
        manage(Method::PATCH, "/v1/endpoints/no-such-endpoint", endpoint()),
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
        manage(Method::DELETE, "/v1/networkvolumes/nothing", None),
        manage(Method::GET, "/v1/networkvolumes/nothing/files", None),
        manage(Method::GET, "/v1/networkvolumes/nothing/files/a/b", None),
        manage(Method::PUT, "/v1/networkvolumes/nothing/files/a/b", None),
        manage(Method::DELETE, "/v1/networkvolumes/nothing/files/a/b", None),
        manage(Method::GET, "/v1/billing/endpoints", None),
        manage(Method::GET, "/metrics", None),
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
