//! The rollback of an endpoint to a handler that it has run before.

use std::sync::Arc;

use gristmill_core::catalog::View;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::release::Release;
use gristmill_core::deploy::template::Template;
use gristmill_wire::management::Rollback;

use crate::error::ControlError;

/// The endpoint's template with the component of an earlier release.
pub(super) fn rolled_back(
    view: &View,
    endpoint: &Endpoint,
    to: Rollback,
) -> Result<Template, ControlError> {
    if let Some(seen) = to.from.filter(|seen| *seen != u64::from(endpoint.version)) {
        return Err(ControlError::conflict(format!(
            "endpoint `{}` has version {}, not {seen} as in `from`: it was changed or rolled back meanwhile; look at its releases before another rollback",
            endpoint.id, endpoint.version
        )));
    }
    let deployment = view.deployments.get(&endpoint.id).ok_or_else(|| nowhere(endpoint))?;
    let release = target(deployment, to.version)?;
    if endpoint.template_is_deleted {
        return Err(ControlError::conflict(deployment.missing_component()));
    }
    let template = &deployment.template;
    if template.owner != endpoint.owner {
        return Err(ControlError::conflict(format!(
            "template `{}` is another owner's, and a rollback would change it; give the endpoint a template of its own owner",
            template.id
        )));
    }
    if !view.has_component(&template.owner, &release.component) {
        return Err(ControlError::conflict(format!(
            "the handler of version {} is no longer stored: sha256 {}",
            release.version, release.component
        )));
    }
    // Endpoints of other owners follow a public template, as with any change of it.
    let shares = |other: &&Arc<Endpoint>| other.owner == endpoint.owner && other.id != endpoint.id;
    if let Some(other) = view.bound_to(&template.id).find(shares) {
        return Err(ControlError::conflict(format!(
            "endpoint `{}` runs the same template `{}`; change the template's `imageName`",
            other.id, template.id
        )));
    }
    // The local name, without the registry that it once came from.
    let name = release.image.rsplit('/').next().unwrap_or_default();
    let name = name.split(['@', ':']).next().unwrap_or_default();
    let image = format!("{name}@{}", release.component.oci());
    Ok(Template { image, fetched: None, ..(**template).clone() })
}

fn target(deployment: &Deployment, to: Option<u64>) -> Result<&Release, ControlError> {
    let endpoint = &deployment.endpoint;
    let Some(version) = to else {
        let mut earlier = endpoint.releases.iter().rev();
        let target = earlier.find(|release| Some(release.component) != deployment.component);
        return target.ok_or_else(|| nowhere(endpoint));
    };
    let target = endpoint.releases.iter().find(|release| u64::from(release.version) == version);
    target.ok_or_else(|| {
        let versions: Vec<_> = endpoint.releases.iter().map(|r| r.version.to_string()).collect();
        ControlError::invalid(format!(
            "`version` must be that of a release, not {version}: {}",
            versions.join(", ")
        ))
    })
}

pub(super) fn nowhere(endpoint: &Endpoint) -> ControlError {
    ControlError::conflict(format!("endpoint `{}` has run no other handler", endpoint.id))
}
