//! What a call of the queue API is aimed at.

use std::sync::Arc;

use gristmill_core::endpoint::Deployment;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::key::Scope;

use crate::auth::QueueCaller;
use crate::error::ApiError;
use crate::state::ApiState;

/// The endpoint named in the path, once the caller's key was found good for it.
pub(crate) fn endpoint(
    state: &ApiState,
    caller: &QueueCaller,
    needed: Scope,
    text: &str,
) -> Result<Arc<Deployment>, ApiError> {
    let not_found = || ApiError::not_found(format!("endpoint `{text}` not found"));
    let id = EndpointId::new(text).map_err(|_| not_found())?;
    caller.require(needed, &id)?;
    state.catalog.deployment(&id).ok_or_else(not_found)
}

/// The endpoint and the job named in the path.
pub(crate) fn job(
    state: &ApiState,
    caller: &QueueCaller,
    needed: Scope,
    (endpoint_text, job_text): &(String, String),
) -> Result<(Arc<Deployment>, JobId), ApiError> {
    let deployment = endpoint(state, caller, needed, endpoint_text)?;
    let id = job_text.parse().map_err(|_| ApiError::job_not_found())?;
    Ok((deployment, id))
}
