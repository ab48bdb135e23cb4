//! Refuses query parameters that a call does not have, or has once only. A misspelt parameter would
//! otherwise be a filter or a check that was silently left out: `dryRun` in a deletion, for
//! example, would not keep it from deleting. The same holds for the second value of a parameter
//! that has one.
//!
//! The parameters of a call are those of its documentation, so a parameter that is not documented
//! is refused. The calls of the contract's queue API have no such check, since SDKs may send more
//! parameters.

use std::collections::HashSet;
use std::sync::Arc;

use axum::http::request::Parts;
use utoipa::openapi::path::{Parameter, ParameterIn, PathItem, Paths};
use utoipa::openapi::{RefOr, Schema};

use crate::answer::error::ApiError;
use crate::request::brand::{NEUTRAL, PLATFORM_FLAG, branded_flag};
use crate::request::query::shown_name;

/// The query parameters of one handler, as an extension of its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownQuery(Arc<[Known]>);

#[derive(Debug)]
struct Known {
    name: String,
    /// Whether a call may give it several times.
    is_list: bool,
}

impl KnownQuery {
    /// The parameters in the documentation of the handler. The flag for platform templates is also
    /// known under `brand`.
    pub(crate) fn of(paths: &Paths, brand: &str) -> Self {
        let operations =
            paths.paths.values().flat_map(|PathItem { get, put, post, delete, patch, .. }| {
                [get, put, post, delete, patch].into_iter().flatten()
            });
        let parameters = operations.flat_map(|operation| operation.parameters.iter().flatten());
        let in_query = parameters.filter_map(|parameter| match parameter {
            RefOr::T(parameter) if is_in_query(parameter) => {
                let is_list = matches!(parameter.schema, Some(RefOr::T(Schema::Array(_))));
                Some(Known { name: parameter.name.clone(), is_list })
            }
            RefOr::T(_) | RefOr::Ref(_) => None,
        });
        let mut known: Vec<_> = in_query.collect();
        if brand != NEUTRAL && known.iter().any(|known| known.name == PLATFORM_FLAG) {
            known.push(Known { name: branded_flag(brand), is_list: false });
        }
        Self(known.into())
    }

    /// Checks the query of a call; a route without known parameters accepts each query.
    ///
    /// # Errors
    /// 400 that names the parameter that is unknown, with those of the call, or that is given
    /// twice.
    pub(crate) fn check(call: &Parts) -> Result<(), ApiError> {
        let Some(known) = call.extensions.get::<Self>() else { return Ok(()) };
        known.check_query(call.uri.query().unwrap_or_default())
    }

    fn check_query(&self, query: &str) -> Result<(), ApiError> {
        let mut given = HashSet::new();
        for (name, _) in url::form_urlencoded::parse(query.as_bytes()) {
            let Some(known) = self.0.iter().find(|known| known.name == name) else {
                return Err(self.unknown(&name));
            };
            if !given.insert(&known.name) && !known.is_list {
                return Err(ApiError::bad_request(format!(
                    "query parameter `{name}` must be given once"
                )));
            }
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> ApiError {
        let name = shown_name(name);
        let allowed = match &*self.0 {
            [] => "this call has no query parameters".to_owned(),
            all => {
                let names: Vec<_> = all.iter().map(|known| format!("`{}`", known.name)).collect();
                format!("this call has {}", names.join(", "))
            }
        };
        ApiError::bad_request(format!("unknown query parameter `{name}`; {allowed}"))
    }
}

fn is_in_query(parameter: &Parameter) -> bool {
    matches!(parameter.parameter_in, ParameterIn::Query)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::response::IntoResponse as _;
    use utoipa::IntoParams;
    use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathsBuilder};

    use super::*;
    use crate::openapi::parameters::{JobListFilter, LogFilter, PageOfList, TemplateFlags};

    fn known<P: IntoParams>(brand: &str) -> KnownQuery {
        let operation = OperationBuilder::new().parameters(Some(P::into_params(|| None))).build();
        let item = PathItem::new(HttpMethod::Get, operation);
        KnownQuery::of(&PathsBuilder::new().path("/things/{id}", item).build(), brand)
    }

    async fn complaint(known: &KnownQuery, query: &str) -> String {
        let refused = known.check_query(query).expect_err(query).into_response();
        assert_eq!(refused.status(), 400, "{query}");
        let body = to_bytes(refused.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()["error"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[tokio::test]
    async fn a_call_without_parameters_has_none() {
        let known = KnownQuery::default();
        let said = complaint(&known, "dryRun=true").await;
        assert_eq!(said, "unknown query parameter `dryRun`; this call has no query parameters");
        assert!(known.check_query("").is_ok());
        assert!(known.check_query("&").is_ok());
    }

    #[tokio::test]
    async fn a_misspelt_parameter_is_refused_with_those_of_the_call() {
        let known = known::<PageOfList>("Mill");
        assert!(known.check_query("cursor=a%20b&limit=1").is_ok());
        let said = complaint(&known, "limit=1&limt=2").await;
        assert_eq!(said, "unknown query parameter `limt`; this call has `limit`, `cursor`");
        let said = complaint(&known, &"x".repeat(1_000)).await;
        assert!(said.len() < 200, "{said}");
        // A header is no query parameter.
        complaint(&self::known::<LogFilter>("Mill"), "Last-Event-ID=1").await;
    }

    #[tokio::test]
    async fn a_second_value_is_refused_unless_the_parameter_is_a_list() {
        let known = known::<JobListFilter>("Mill");
        let lists = "status=FAILED&limit=1&status=COMPLETED&tag=a:1&tag=a:1&endpoint=e&endpoint=f";
        assert!(known.check_query(lists).is_ok());
        for query in ["limit=1&limit=5", "error=a&status=FAILED&error=a", "limit=1&%6Cimit=1"] {
            let name = query.split('=').next().unwrap();
            let said = complaint(&known, query).await;
            assert_eq!(said, format!("query parameter `{name}` must be given once"));
        }
    }

    #[tokio::test]
    async fn the_flag_for_platform_templates_is_known_under_the_brand() {
        let known = known::<TemplateFlags>("Mill");
        for flag in ["includePlatformTemplates", "includeMillTemplates"] {
            assert!(known.check_query(flag).is_ok(), "{flag}");
        }
        complaint(&known, "includeOtherTemplates=true").await;
    }
}
