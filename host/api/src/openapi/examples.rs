//! An example body for each operation with a JSON body, which the page of the document can send.
//! Without an example the page would send a body with every field of the schema and invented
//! values.
//!
//! The bodies work unedited, in this order, on a host with a handler `echo:latest`. A test sends
//! all of them.

use serde_json::{Value, json};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{RefOr, Required};

use super::operations::{BY_POST, SDK};

/// Adds the example of an operation, if it takes JSON. An empty example may be left out.
///
/// # Panics
/// When an operation takes JSON and has no example here, so that every test fails for such a route.
pub(super) fn add(operation: &mut Operation) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    let Some(RefOr::T(content)) = body.content.get_mut("application/json") else { return };
    let name = operation.operation_id.as_deref().unwrap_or_default();
    let name = name.strip_prefix(SDK).unwrap_or(name);
    let name = name.strip_suffix(BY_POST).unwrap_or(name);
    let example = example(name).expect("each operation that takes JSON is below");
    if example == json!({}) {
        body.required = Some(Required::False);
    }
    content.example = Some(example);
}

fn example(operation: &str) -> Option<Value> {
    Some(match operation {
        "CreateTemplate" => {
            json!({ "id": "example", "name": "example", "imageName": "echo:latest" })
        }
        "UpdateTemplate" => json!({ "readme": "Returns its input." }),
        "CreateEndpoint" => json!({ "id": "example", "templateId": "example" }),
        "UpdateEndpoint" => json!({ "workersMax": 8 }),
        // The release before the present one.
        "RollBackEndpoint" => json!({}),
        "BeginJobAction" => json!({
            "action": "retry",
            "filter": { "endpoints": ["example"], "statuses": ["FAILED"] },
        }),
        "Run" | "RunSync" => json!({ "input": { "prompt": "grain by grain" } }),
        "PostOpenAi" => json!({
            "model": "example",
            "messages": [{ "role": "user", "content": "grain by grain" }],
        }),
        // One endpoint and one day, so that a key that was created by mistake does little harm.
        "CreateKey" => json!({
            "name": "example",
            "scopes": ["submit"],
            "endpoints": ["example"],
            "expiresInSeconds": 86_400,
        }),
        "CreateContainerRegistryAuth" => {
            json!({ "name": "example", "username": "example", "password": "example" })
        }
        "CreateNetworkVolume" => json!({ "name": "example", "size": 1 }),
        "CreateSchedule" => {
            json!({ "id": "example", "endpointId": "example", "cron": "0 4 * * *", "input": {} })
        }
        "UpdateSchedule" => json!({ "paused": true }),
        "UpdateNetworkVolume" => json!({ "size": 2 }),
        _ => return None,
    })
}
