//! `GET /v1/jobs`: the jobs of all endpoints that a key sees, by status, tag, time, id and error.

use std::sync::Arc;

use axum::Json;
use axum::extract::RawQuery;
use gristmill_core::id::EndpointId;
use gristmill_core::job::UnknownStatus;
use gristmill_core::job_filter::{JobFilter, JobSearch};
use gristmill_core::key::ApiKey;
use gristmill_core::limits::{
    FILTER_ENDPOINTS_MAX, FILTER_ERROR_BYTES_MAX, LIST_JOBS, NAME_BYTES_MAX, TAGS_MAX,
};
use gristmill_core::tags::Tag;
use gristmill_wire::management::JobList;

use super::billing::time;
use super::dto;
use crate::caller::{Caller, Read};
use crate::error::ApiError;
use crate::openapi::parameters::JobListFilter;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::query::Query;
use crate::queue::routes::requests::cursor;
use crate::state::ApiState;

/// Jobs of all endpoints that the key sees, the newest submission first.
///
/// All conditions must hold; of several statuses, or several endpoints, any one. A page ends after a
/// bounded number of jobs was examined, so it may be short, or empty, and still have a `cursor`.
#[utoipa::path(
    get, path = "/jobs", operation_id = "ListJobs", tag = tag::JOBS,
    params(JobListFilter),
    responses((status = 200, description = "A page of them", body = JobList), Mistaken, Missing),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Read>,
    RawQuery(query): RawQuery,
) -> Result<Json<JobList>, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let named = query.all("endpoint").map(|text| text.parse()).collect::<Result<Vec<_>, _>>();
    let named =
        named.map_err(|error| ApiError::bad_request(format!("query `endpoint`: {error}")))?;
    let search = JobSearch {
        endpoints: endpoints(&state, &key, &named)?,
        filter: filter(query)?,
        after: cursor(query)?,
        count_max: query.bounded("limit", LIST_JOBS)?,
    };
    let (page, read_at) = state.jobs.search(&search).await?;
    Ok(Json(dto::job_list(page, read_at)))
}

/// The endpoints with these names, or all, if there are none: as far as the key sees them.
fn endpoints(
    state: &ApiState,
    key: &Arc<ApiKey>,
    named: &[EndpointId],
) -> Result<Vec<EndpointId>, ApiError> {
    let mut found = Vec::new();
    if named.is_empty() {
        let listed = state.control.endpoints.list(key);
        let ids = listed.iter().map(|endpoint| endpoint.id.clone());
        found.extend(ids.take(FILTER_ENDPOINTS_MAX + 1));
    } else {
        for id in named.iter().take(FILTER_ENDPOINTS_MAX + 1) {
            state.control.endpoints.get(key, id)?;
            found.push(id.clone());
        }
        found.sort_unstable();
        found.dedup();
    }
    if found.len() > FILTER_ENDPOINTS_MAX {
        return Err(ApiError::bad_request(format!(
            "there are more than {FILTER_ENDPOINTS_MAX} endpoints; name at most so many of them by query `endpoint`"
        )));
    }
    Ok(found)
}

/// The conditions of a query.
fn filter(query: Query<'_>) -> Result<JobFilter, ApiError> {
    let mut filter =
        JobFilter { from: time(query, "from")?, until: time(query, "to")?, ..JobFilter::default() };
    for text in query.all("status") {
        let status = text.parse().map_err(|error: UnknownStatus| {
            ApiError::bad_request(format!("query `status` {error}, not `{text:.99}`"))
        })?;
        if !filter.statuses.contains(&status) {
            filter.statuses.push(status);
        }
    }
    for text in query.all("tag") {
        let (key, value) = text.split_once(':').ok_or_else(|| {
            ApiError::bad_request(
                "query `tag` must be a key, a colon and a value, such as `env:prod`",
            )
        })?;
        let wanted = Tag::new(key, value)
            .map_err(|error| ApiError::bad_request(format!("query `tag`: {error}")))?;
        if filter.tags.len() == TAGS_MAX {
            return Err(ApiError::bad_request(format!(
                "query `tag` is given more than {TAGS_MAX} times, as often as a job may have tags"
            )));
        }
        filter.tags.push(wanted);
    }
    if let Some(text) = query.text("idPrefix") {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(ApiError::bad_request(format!(
                "query `idPrefix` must have 1 to {NAME_BYTES_MAX} characters"
            )));
        }
        filter.id_prefix = Some(text.into_owned());
    }
    if let Some(text) = query.text("error") {
        if text.is_empty() || text.len() > FILTER_ERROR_BYTES_MAX {
            return Err(ApiError::bad_request(format!(
                "query `error` must have 1 to {FILTER_ERROR_BYTES_MAX} bytes"
            )));
        }
        filter.error = Some(text.into_owned());
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use gristmill_core::job::JobStatus;
    use gristmill_core::time::Timestamp;
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn each_condition_is_read() {
        let query = "status=FAILED&status=TIMED_OUT&status=FAILED&tag=env:prod&tag=team/run:a:b%20c\
                     &from=1970-01-01T00:00:01Z&to=1970-01-01T00:00:02Z&idPrefix=019&error=100%25_";
        let tag = |key, value| Tag::new(key, value).unwrap();
        let expected = JobFilter {
            statuses: vec![JobStatus::Failed, JobStatus::TimedOut],
            tags: vec![tag("env", "prod"), tag("team/run", "a:b c")],
            from: Some(Timestamp::from_millis(1_000)),
            until: Some(Timestamp::from_millis(2_000)),
            id_prefix: Some("019".to_owned()),
            error: Some("100%_".to_owned()),
        };
        assert_eq!(filter(Query(query)).unwrap(), expected);
        assert_eq!(filter(Query("")).unwrap(), JobFilter::default());
    }

    #[tokio::test]
    async fn mistakes_are_named() {
        let many = "&tag=a:b".repeat(17);
        let long = format!("error={}", "x".repeat(257));
        let long_id = format!("idPrefix={}", "x".repeat(129));
        let long_status = format!("status={}", "x".repeat(9_999));
        for (query, expected) in [
            ("status=DONE", "query `status` must be one of"),
            (&long_status, "query `status` must be one of"),
            ("tag=env", "query `tag` must be a key, a colon and a value"),
            ("tag=Env:a", "query `tag`: each key of `tags`"),
            ("tag=a:%00", "query `tag`: `tags.a` has a control character"),
            (&many, "query `tag` is given more than 16 times"),
            ("from=today", "query `from` must be a time"),
            ("to=1", "query `to` must be a time"),
            ("idPrefix=", "query `idPrefix` must have 1 to 128"),
            (&long_id, "query `idPrefix` must have 1 to 128"),
            ("error=", "query `error` must have 1 to 256 bytes"),
            (&long, "query `error` must have 1 to 256 bytes"),
        ] {
            let refused = filter(Query(query)).expect_err(query).into_response();
            let said = refused.into_body().collect().await.unwrap().to_bytes();
            let said = String::from_utf8(said.to_vec()).unwrap();
            assert!(said.contains(expected) && said.len() < 500, "{query:.99}: {said:.999}");
        }
    }
}
