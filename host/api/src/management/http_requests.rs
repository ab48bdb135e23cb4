//! `GET /v1/endpoints/{id}/requests`: the newest HTTP requests of an endpoint.

use axum::extract::RawQuery;
use axum::response::Response;
use gristmill_core::http_requests::EndedRequest;
use gristmill_core::limits::LIST_JOBS;
use gristmill_wire::management::HttpRequest;

use super::document;
use super::input::Named;
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Read};
use crate::openapi::parameters::HttpRequestFilter;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query::Query;

/// The newest HTTP requests of the endpoint that have ended, the newest end first.
///
/// The host keeps 1,000 of each endpoint in memory, fewer while all endpoints together have more
/// than 32 MiB of them, and none after a restart. An endpoint with jobs has none.
#[utoipa::path(
    get, path = "/endpoints/{id}/requests", operation_id = "ListHttpRequests", tag = tag::ENDPOINTS,
    params(HttpRequestFilter),
    responses((status = 200, description = "Newest first", body = Vec<HttpRequest>), Mistaken, Missing),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Read>,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let status = query.text("status").map(|text| StatusFilter::parse(&text)).transpose()?;
    let count_max = query.bounded("limit", LIST_JOBS)?;
    let is_wanted = |ended: &EndedRequest| status.is_none_or(|wanted| wanted.matches(ended.status));
    let found = state.control.endpoints.requests(&key, &named.id()?, count_max, is_wanted)?;
    let document = move || found.iter().map(|ended| shown(ended)).collect::<Vec<_>>();
    document::answer(&state, &key, document).await
}

/// Selects statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusFilter {
    /// Only this one.
    One(u16),
    /// All of the hundred.
    Class(u16),
}

impl StatusFilter {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
        let filter = match class {
            Some(class) => {
                class.parse().ok().filter(|class| (1..=9).contains(class)).map(Self::Class)
            }
            None => text.parse().ok().filter(|code| (100..=999).contains(code)).map(Self::One),
        };
        filter.ok_or_else(|| {
            let text: String = text.chars().take(100).collect();
            ApiError::bad_request(format!(
                "query `status` must be a status such as `404`, or a class such as `5xx`, not `{text}`"
            ))
        })
    }

    fn matches(self, status: u16) -> bool {
        match self {
            Self::One(one) => status == one,
            Self::Class(class) => status / 100 == class,
        }
    }
}

/// The answer's form of a request.
fn shown(ended: &EndedRequest) -> HttpRequest {
    HttpRequest {
        id: ended.id.to_string(),
        at: rfc3339(ended.at),
        method: ended.method().to_owned(),
        path: ended.path().to_owned(),
        status: ended.status,
        code: ended.code.map(str::to_owned),
        waited_ms: ended.waited_ms,
        ran_ms: ended.ran_ms,
        bytes_in: ended.bytes_in,
        bytes_out: ended.bytes_out,
        worker_id: ended.worker.as_ref().map(ToString::to_string),
        version: ended.release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_status_or_a_class() {
        for (text, matching, other) in [("404", 404, 405), ("5xx", 503, 499), ("4xx", 499, 500)] {
            let filter = StatusFilter::parse(text).unwrap();
            assert!(filter.matches(matching) && !filter.matches(other), "{text}");
        }
        for text in ["", "xx", "0xx", "55xx", "99", "1000", "5XX", "-1", "FAILED"] {
            assert!(StatusFilter::parse(text).is_err(), "{text}");
        }
    }
}
