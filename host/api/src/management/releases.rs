//! `/v1/endpoints/{id}/…` about handlers: the releases of the endpoint, and the rollback to one of
//! them.

use axum::Json;
use axum::extract::Request;
use axum::response::Response;
use gristmill_core::deploy::release::Release;
use gristmill_core::id::EndpointId;
use gristmill_wire::management::{self as wire, ReleaseWithSettings, Rollback};

use super::document;
use super::input::{self, Named, NamedPart};
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// The handlers that the endpoint has run, the newest first: 20 at most.
///
/// While the endpoint uses another owner's template, the handlers that the template's owner changes
/// are counted in `version` and not listed.
#[utoipa::path(
    get, path = "/endpoints/{id}/releases", operation_id = "ListReleases", tag = tag::ENDPOINTS,
    params(PageOfList),
    responses((status = 200, description = "Newest first", body = Vec<wire::Release>), Mistaken, Missing),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    page: Page,
) -> Result<Paged, ApiError> {
    let releases = state.control.endpoints.releases(&key, &named.id()?)?;
    // There are at most 20 releases.
    let cursor_position = |release: &&Release| format!("{:010}", u32::MAX - release.version);
    page.of(&releases, cursor_position, shown)
}

/// One of these handlers, with the settings of the endpoint when it began to run it.
///
/// Of the environment the host keeps names and fingerprints of values: another value has another
/// fingerprint.
#[utoipa::path(
    get, path = "/endpoints/{id}/releases/{version}", operation_id = "GetRelease", tag = tag::ENDPOINTS,
    responses((status = 200, description = "The release", body = ReleaseWithSettings), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    NamedPart(named, version): NamedPart,
) -> Result<Response, ApiError> {
    let id = named.id::<EndpointId>()?;
    let releases = state.control.endpoints.releases(&key, &id)?;
    let missing = || {
        let version: String = version.chars().take(100).collect();
        ApiError::not_found(format!("endpoint `{id}` has no release `{version}`"))
    };
    let found = releases.into_iter().find(|release| release.version.to_string() == version);
    let release = found.ok_or_else(missing)?;
    document::answer(&state, &key, move || release_with_settings(&release)).await
}

/// Returns to an earlier handler of the endpoint: from now on its template names that component.
///
/// Running jobs finish with the handler that they began with; waiting jobs start with the earlier
/// handler. The settings are unchanged. Refused when another endpoint runs the same template, when
/// the template is another owner's, and with `conflict` when `from` is not the present version. A
/// call without `version` and `from` is not idempotent: do not repeat it after a lost answer.
#[utoipa::path(
    post, path = "/endpoints/{id}/rollback", operation_id = "RollBackEndpoint", tag = tag::ENDPOINTS,
    request_body = Rollback,
    responses((status = 200, description = "The release that runs now", body = wire::Release), BodyRefused, Missing),
)]
pub(crate) async fn roll_back(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    request: Request,
) -> Result<Json<wire::Release>, ApiError> {
    let to: Rollback = input::json_or_default(&state, &key, request).await?;
    let release = state.control.endpoints.roll_back(&key, named.id()?, to).await?;
    Ok(Json(shown(&release)))
}

/// The answer's form of a release.
fn shown(release: &Release) -> wire::Release {
    wire::Release {
        version: release.version,
        released_at: rfc3339(release.released_at),
        image: release.image.to_string(),
        sha256: release.component.to_string(),
    }
}

/// The answer's form of a release with its settings.
fn release_with_settings(of: &Release) -> ReleaseWithSettings {
    let settings = of.settings.as_deref().cloned();
    ReleaseWithSettings { release: shown(of), settings }
}
