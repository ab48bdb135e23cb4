//! Links from an answer with a job to further calls, with the sources of their parameters.

use utoipa::openapi::RefOr;
use utoipa::openapi::link::Link;
use utoipa::openapi::path::{Operation, Paths};

use super::operations::operations;

/// The job's id in an answer.
const IN_BODY: &str = "$response.body#/id";

/// For answers without an id: the job in the path of the call.
const IN_PATH: &str = "$request.path.job";

/// Each operation with its following operations.
const LEADS_TO: [(&str, &str, &[&str]); 7] = [
    ("Run", IN_BODY, &["GetStatus", "GetStatusSync", "GetStream", "Cancel"]),
    ("RunSync", IN_BODY, &["GetStatus", "GetStream", "Cancel", "Retry"]),
    ("GetStatus", IN_BODY, &["GetStatusSync", "GetStream", "Cancel", "Retry"]),
    ("GetStatusSync", IN_BODY, &["GetStream", "Retry"]),
    ("GetStream", IN_PATH, &["GetStream", "GetStatus", "Cancel"]),
    ("Cancel", IN_BODY, &["GetStatus", "GetStream", "Retry"]),
    ("Retry", IN_BODY, &["GetStatus", "GetStatusSync", "GetStream", "Cancel"]),
];

/// Adds the links to the operations of one mount of the queue API, whose names have their prefix
/// already.
pub(super) fn add(paths: &mut Paths, prefix: &str) {
    for operation in paths.paths.values_mut().flat_map(operations) {
        let name = operation.operation_id.as_deref().and_then(|id| id.strip_prefix(prefix));
        let leads = LEADS_TO.iter().find(|(from, ..)| Some(*from) == name);
        if let Some((_, job, targets)) = leads {
            targets.iter().for_each(|target| add_link(operation, prefix, job, target));
        }
    }
}

fn add_link(operation: &mut Operation, prefix: &str, job: &str, target: &str) {
    if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
        let link = Link::builder()
            .operation_id(format!("{prefix}{target}"))
            .parameter("endpoint", "$request.path.endpoint")
            .parameter("job", job)
            .build();
        answer.links.insert(target.to_owned(), link.into());
    }
}
