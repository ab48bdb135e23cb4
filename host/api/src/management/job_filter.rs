//! The conditions of a filter of jobs, as a query and a body give them.

use std::sync::Arc;

use gristmill_control::ControlError;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::EndpointId;
use gristmill_core::job::filter::JobFilter;
use gristmill_core::job::state::{JobStatus, UnknownStatus};
use gristmill_core::job::tags::Tag;
use gristmill_core::limits::{
    FILTER_ENDPOINTS_MAX, FILTER_ERROR_CHARS_MAX, NAME_BYTES_MAX, TAGS_MAX,
};
use gristmill_core::time::Timestamp;
use gristmill_wire::management::JobActionFilter;

use crate::answer::error::ApiError;
use crate::request::query::Query;
use crate::request::time::{parse_time, time};
use crate::state::ApiState;

/// The endpoints with these names, or all, if there are none: as far as the key sees them, each
/// once.
///
/// # Errors
/// That of `missing` for a named endpoint that the key does not see; 400 for more than
/// [`FILTER_ENDPOINTS_MAX`].
pub(crate) fn endpoints(
    state: &ApiState,
    key: &Arc<ApiKey>,
    named: &[EndpointId],
    missing: impl Fn(ControlError) -> ApiError,
) -> Result<Vec<EndpointId>, ApiError> {
    let mut found = Vec::new();
    if named.is_empty() {
        let listed = state.control.endpoints.list(key);
        let ids = listed.iter().map(|endpoint| endpoint.id.clone());
        found.extend(ids.take(FILTER_ENDPOINTS_MAX + 1));
    } else {
        found.extend(named.iter().cloned());
        found.sort_unstable();
        found.dedup();
        for id in found.iter().take(FILTER_ENDPOINTS_MAX + 1) {
            state.control.endpoints.get(key, id).map_err(&missing)?;
        }
    }
    if found.len() > FILTER_ENDPOINTS_MAX {
        return Err(ApiError::bad_request(format!(
            "there are more than {FILTER_ENDPOINTS_MAX} endpoints; name at most so many of them"
        )));
    }
    Ok(found)
}

/// The conditions of a query.
pub(crate) fn of_query(query: Query<'_>) -> Result<JobFilter, ApiError> {
    let mut filter =
        JobFilter { from: time(query, "from")?, until: time(query, "to")?, ..JobFilter::default() };
    for text in query.all("status") {
        let status = text.parse().map_err(|error: UnknownStatus| {
            ApiError::bad_request(format!("query `status` {error}, not `{text:.99}`"))
        })?;
        add_status(&mut filter, status);
    }
    for text in query.all("tag") {
        let (key, value) = text.split_once(':').ok_or_else(|| {
            ApiError::bad_request(
                "query `tag` must be a key, a colon and a value, such as `env:prod`",
            )
        })?;
        add_tag(&mut filter, "query `tag`", key, value)?;
    }
    let text = |name| query.text(name).map(|text| text.into_owned());
    filter.id_prefix = part("query `idPrefix`", text("idPrefix"), NAME_BYTES_MAX)?;
    filter.id_part = part("query `idPart`", text("idPart"), NAME_BYTES_MAX)?;
    filter.error = part("query `error`", text("error"), FILTER_ERROR_CHARS_MAX)?;
    Ok(filter)
}

/// The conditions in the body of an action. There must be at least one.
pub(crate) fn of_body(given: JobActionFilter) -> Result<JobFilter, ApiError> {
    if given == JobActionFilter::default() {
        return Err(ApiError::bad_request(
            "`filter` must have at least one condition; for all jobs of an endpoint it names `endpoints`",
        ));
    }
    let JobActionFilter { endpoints: _, statuses, tags, from, to, id_prefix: id, error } = given;
    let time = |field: &str, text: Option<String>| -> Result<Option<Timestamp>, ApiError> {
        text.map(|text| parse_time(field, &text)).transpose()
    };
    let mut filter = JobFilter {
        from: time("`filter.from`", from)?,
        until: time("`filter.to`", to)?,
        id_prefix: part("`filter.idPrefix`", id, NAME_BYTES_MAX)?,
        error: part("`filter.error`", error, FILTER_ERROR_CHARS_MAX)?,
        ..JobFilter::default()
    };
    if statuses.len() > JobStatus::ALL.len() {
        return Err(ApiError::bad_request(format!(
            "`filter.statuses` has {} statuses; there are {}",
            statuses.len(),
            JobStatus::ALL.len()
        )));
    }
    statuses.into_iter().for_each(|status| add_status(&mut filter, status));
    for (key, value) in tags {
        add_tag(&mut filter, "`filter.tags`", &key, &value)?;
    }
    Ok(filter)
}

fn add_status(filter: &mut JobFilter, status: JobStatus) {
    if !filter.statuses.contains(&status) {
        filter.statuses.push(status);
    }
}

fn add_tag(filter: &mut JobFilter, field: &str, key: &str, value: &str) -> Result<(), ApiError> {
    let tag =
        Tag::new(key, value).map_err(|error| ApiError::bad_request(format!("{field}: {error}")))?;
    if filter.tags.len() == TAGS_MAX {
        return Err(ApiError::bad_request(format!(
            "{field} has more than {TAGS_MAX} tags, as many as a job may have"
        )));
    }
    filter.tags.push(tag);
    Ok(())
}

/// A part of an id or of an error.
fn part(field: &str, text: Option<String>, chars_max: usize) -> Result<Option<String>, ApiError> {
    let is_valid = |text: &String| (1..=chars_max).contains(&text.chars().count());
    if text.as_ref().is_none_or(is_valid) {
        return Ok(text);
    }
    Err(ApiError::bad_request(format!("{field} must have 1 to {chars_max} characters")))
}

#[cfg(test)]
#[path = "job_filter_tests.rs"]
mod tests;
