//! The comparison of the documents before the end of a host and after the next start, and the
//! differences that may be.

use gristmill_core::deploy::endpoint::EndpointSettings;
use gristmill_tests::Client;
use serde_json::{Value, json};

use super::archive::{Document, Expected};

/// A change of a field that is no loss. In paths, fields and values, `*` stands for anything within
/// one segment or value.
struct MayDiffer {
    /// The path of the document, without its query.
    path: &'static str,
    /// The JSON pointer of the field in the document's `status`, `headers` and `body`.
    field: &'static str,
    /// The JSON text of the value before, or `nothing`.
    before: &'static str,
    /// The JSON text of the value after, or `nothing`.
    after: &'static str,
}

const fn change(
    path: &'static str,
    field: &'static str,
    before: &'static str,
    after: &'static str,
) -> MayDiffer {
    MayDiffer { path, field, before, after }
}

/// All permitted differences, with their reasons.
const MAY_DIFFER: &[MayDiffer] = &[
    // Workers end with their process.
    change("/v2/*/health", "/body/workers/*", "*", "*"),
    // The job that was running waits again, as after each end of a host: it has no worker. The
    // recorder paused its endpoint. A drain is no failed attempt, so only a crash counts as a
    // retry.
    change(INTERRUPTED, "/body/status", "\"IN_PROGRESS\"", "\"IN_QUEUE\""),
    change(INTERRUPTED, "/body/executionTime", "*", "0"),
    change(INTERRUPTED, "/body/workerId", "*", "nothing"),
    change(INTERRUPTED, "/body/retries", "nothing", "1"),
    change(INTERRUPTED, "/body/reason", "nothing", PAUSED),
    change(REQUESTS, "/body/requests/0/status", "\"IN_PROGRESS\"", "\"IN_QUEUE\""),
    change(REQUESTS, "/body/requests/0/executionTime", "*", "0"),
    change(REQUESTS, "/body/requests/0/workerId", "*", "nothing"),
    change("/v2/interrupted/health", "/body/jobs/inProgress", "1", "0"),
    change("/v2/interrupted/health", "/body/jobs/inQueue", "0", "1"),
    change("/v2/interrupted/health", "/body/jobs/retried", "0", "1"),
    change(INTERRUPTED_TIMELINE, "/body/status", "\"IN_PROGRESS\"", "\"IN_QUEUE\""),
    change(INTERRUPTED_TIMELINE, "/body/events/1/workerId", "*", "nothing"),
    change(INTERRUPTED_TIMELINE, "/body/events/2", "nothing", "*"),
    // A later version has added the types, and a stored endpoint has jobs.
    change("/v1/endpoints", "/body/*/type", "nothing", "\"QUEUE\""),
    change("/v1/endpoints/*", "/body/type", "nothing", "\"QUEUE\""),
];

const INTERRUPTED: &str = "/v2/interrupted/status/*";
const INTERRUPTED_TIMELINE: &str = "/v2/interrupted/timeline/*";
const REQUESTS: &str = "/v2/interrupted/requests";
const PAUSED: &str = "\"the endpoint is paused: workersMax is 0\"";

/// The placeholder of a field that a document lacks.
const NOTHING: &str = "nothing";

/// Whether the field is a setting of an endpoint, with its default: a later version has added it,
/// and a stored record without a setting gets the default.
fn is_later_setting(path: &str, field: &str, value: &str) -> bool {
    let defaults = serde_json::to_value(EndpointSettings::default()).unwrap();
    let setting = field.rsplit('/').next().and_then(|name| defaults.get(name));
    path.starts_with("/v1/endpoints") && setting.map(Value::to_string).as_deref() == Some(value)
}

/// Reads the documents again, and returns a line for each difference that is neither in the table
/// nor a setting that the recording could not know.
pub(super) async fn differences(client: &Client, expected: &Expected) -> Vec<String> {
    let mut found = vec![];
    for document in &expected.documents {
        let after = read(client, expected, document).await;
        let path = document.path.split('?').next().unwrap();
        let may_differ = |field: &str, before: &str, after: &str| {
            MAY_DIFFER.iter().any(|may| {
                matches(may.path, path)
                    && matches(may.field, field)
                    && [(may.before, before), (may.after, after)]
                        .iter()
                        .all(|(wanted, found)| *wanted == "*" || wanted == found)
            })
        };
        let key = document.key.as_deref().unwrap_or("admin");
        for (field, before, after) in differing(document, &after) {
            let is_added = || before == NOTHING && is_later_setting(path, &field, &after);
            if !may_differ(&field, &before, &after) && !is_added() {
                found.push(format!("{} ({key}) {field}: {before} -> {after}", document.path));
            }
        }
    }
    found
}

/// Reads the document again with the same key.
pub(super) async fn read(client: &Client, expected: &Expected, document: &Document) -> Document {
    let client = match &document.key {
        Some(key) => client.with_key(&expected.keys[key]),
        None => client.clone(),
    };
    let answer = client.get(&document.path).await;
    let names = ["x-job-status", "x-stream-next", "x-stream-attempt", "link"];
    let header = |name: &str| {
        let value = answer.headers.get(name)?.to_str().ok()?;
        Some((name.to_owned(), value.to_owned()))
    };
    Document {
        key: document.key.clone(),
        path: document.path.clone(),
        status: answer.status,
        headers: names.into_iter().filter_map(header).collect(),
        body: serde_json::from_str(&answer.text).unwrap_or(Value::Null),
    }
}

/// The differing fields, with their values before and after.
fn differing(before: &Document, after: &Document) -> Vec<(String, String, String)> {
    let fields = |document: &Document| json!({ "status": document.status, "headers": document.headers, "body": document.body });
    let mut found = vec![];
    compare("", Some(&fields(before)), Some(&fields(after)), &mut found);
    found
}

fn compare(
    pointer: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<(String, String, String)>,
) {
    match (before, after) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let further = b.keys().filter(|name| !a.contains_key(*name));
            for name in a.keys().chain(further) {
                compare(&format!("{pointer}/{name}"), a.get(name), b.get(name), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for n in 0..a.len().max(b.len()) {
                compare(&format!("{pointer}/{n}"), a.get(n), b.get(n), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((pointer.to_owned(), short(a), short(b))),
    }
}

fn short(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| NOTHING.to_owned(), Value::to_string);
    text.chars().take(200).collect()
}

/// Whether the pattern matches, segment by segment.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.split('/'), text.split('/'));
    pattern.clone().count() == text.clone().count()
        && pattern.zip(text).all(|(wanted, found)| wanted == "*" || wanted == found)
}
