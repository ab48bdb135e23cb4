//! The rules for a change of an endpoint that need other objects.

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::View;
use gristmill_core::deploy::endpoint::{Endpoint, EndpointType};
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::id::{OwnerId, TemplateId, VolumeId};
use gristmill_core::limits::NETWORK_VOLUMES_MAX;
use gristmill_wire::management::EndpointInput;
use gristmill_wire::settings::{check_count, check_name};

use crate::error::ControlError;
use crate::volumes::attached;

/// The endpoint with the given fields, if the result is valid.
pub(super) fn changed(
    view: &View,
    current: Endpoint,
    mut given: EndpointInput,
) -> Result<Endpoint, ControlError> {
    let kind = chosen_kind(view, &current, given.kind.take())?;
    let (template, template_is_deleted) =
        chosen_template(view, &current, given.template_id.take())?;
    let deleted_template_owner = current.deleted_template_owner.filter(|_| template_is_deleted);
    let name = given.name.take().unwrap_or(current.name);
    check_name("name", &name)?;
    let present = current.network_volume.as_ref();
    let (one, list) = (given.network_volume_id.take(), given.network_volume_ids.take());
    let network_volume = match named_volume(present, one, list)? {
        Some((field, id)) => attached(view, &current.owner, field, &id)?,
        None => current.network_volume,
    };
    let mut settings = current.settings;
    settings.change(given)?;
    Ok(Endpoint {
        name,
        kind,
        template,
        template_is_deleted,
        deleted_template_owner,
        network_volume,
        settings,
        ..current
    })
}

/// Refuses host names that another endpoint has, and new ones that the operator has not given: an
/// owner could claim the name of anybody.
pub(super) fn check_hosts(
    view: &View,
    caller: &ApiKey,
    endpoint: &Endpoint,
) -> Result<(), ControlError> {
    let before = view.deployments.get(&endpoint.id).map(|found| &found.endpoint.settings.http);
    let hosts = &endpoint.settings.http.hosts;
    if hosts.is_empty() || before.is_some_and(|before| before.hosts == *hosts) {
        return Ok(());
    }
    if !caller.owner.is_operator() {
        return Err(ControlError::invalid("`http.hosts` is for the operator's keys only"));
    }
    let taken = hosts.iter().find_map(|host| {
        let other = view.hosts.get(host).filter(|other| **other != endpoint.id)?;
        Some(format!("`http.hosts`: `{host}` is a name of endpoint `{other}`"))
    });
    taken.map_or(Ok(()), |taken| Err(ControlError::invalid(taken)))
}

/// The type of a new endpoint; that of an existing one stays.
fn chosen_kind(
    view: &View,
    current: &Endpoint,
    given: Option<EndpointType>,
) -> Result<EndpointType, ControlError> {
    let is_new = !view.deployments.contains_key(&current.id);
    match given {
        Some(given) if !is_new && given != current.kind => Err(ControlError::invalid(format!(
            "`type` of endpoint `{}` is `{}` and cannot be changed; create another endpoint",
            current.id,
            current.kind.as_str()
        ))),
        Some(given) => Ok(given),
        None => Ok(current.kind),
    }
}

/// Refuses a handler of the other kind, if the template's image is stored already.
pub(super) fn check_handler(view: &View, endpoint: &Endpoint) -> Result<(), ControlError> {
    let (kind, owner) = (endpoint.kind, &endpoint.owner);
    let template = view.templates.get(&endpoint.template);
    let template = template.filter(|template| template.is_usable_by(owner));
    let component =
        template.and_then(|template| view.components.get(&view.component_of(template)?));
    let has = |kind: EndpointType| {
        component.is_some_and(|found| HandlerKind::from(kind).is_among(&found.exports))
    };
    let fault = match kind {
        EndpointType::Queue if has(EndpointType::LoadBalancer) && !has(kind) => {
            "`type`: the template's handler answers HTTP requests and handles no jobs; its endpoint needs the type \
             `LOAD_BALANCER`"
        }
        EndpointType::LoadBalancer if has(EndpointType::Queue) && !has(kind) => {
            "`type`: the template's handler handles jobs and answers no HTTP requests; its endpoint needs the type \
             `QUEUE`"
        }
        EndpointType::Queue | EndpointType::LoadBalancer => return Ok(()),
    };
    Err(ControlError::invalid(fault))
}

/// The id of the network volume that a change names, empty for none, and the field with it; `None`:
/// the change names none. Of two different ones the present one does not count, so that a client
/// can send an answer back after it has changed one of the fields.
fn named_volume(
    present: Option<&VolumeId>,
    one: Option<String>,
    list: Option<Vec<String>>,
) -> Result<Option<(&'static str, String)>, ControlError> {
    const ONE: &str = "networkVolumeId";
    const LIST: &str = "networkVolumeIds";
    let list = list.map(|ids| check_count(LIST, ids.len(), NETWORK_VOLUMES_MAX).map(|()| ids));
    let listed = list.transpose()?.map(|ids| ids.into_iter().next().unwrap_or_default());
    let present = present.map_or("", VolumeId::as_str);
    match (one, listed) {
        (Some(one), Some(listed)) if one == present => Ok(Some((LIST, listed))),
        (Some(one), Some(listed)) if listed != one && listed != present => {
            Err(ControlError::invalid(format!(
                "`{ONE}` and `{LIST}` name different network volumes; send one of the fields"
            )))
        }
        (Some(one), _) => Ok(Some((ONE, one))),
        (None, listed) => Ok(listed.map(|id| (LIST, id))),
    }
}

/// The endpoint's template after the change, and whether it is a deleted one. The endpoint's
/// present template is not checked again.
///
/// While its template is deleted, the present id still means that template. Otherwise another owner
/// could take the id for a public template of their own, and a client that sends the whole endpoint
/// back with another change would run their handler with this owner's inputs, environment and
/// network volume.
fn chosen_template(
    view: &View,
    current: &Endpoint,
    given: Option<TemplateId>,
) -> Result<(TemplateId, bool), ControlError> {
    // A new endpoint has the given template already.
    let is_new = !view.deployments.contains_key(&current.id);
    match given {
        Some(id) if is_new || id != current.template => {
            check_template(view, &current.owner, &id)?;
            Ok((id, false))
        }
        Some(id) => Ok((id, current.template_is_deleted && !is_made_again(view, current))),
        None => Ok((current.template.clone(), current.template_is_deleted)),
    }
}

/// Whether there is a template with the id of the endpoint's deleted one that may take its place:
/// the endpoint's owner may use it, and the same owner has made it again, or it belongs to the
/// endpoint's owner or to the operator.
fn is_made_again(view: &View, endpoint: &Endpoint) -> bool {
    view.templates.get(&endpoint.template).is_some_and(|template| {
        let is_known = template.owner == endpoint.owner
            || template.owner.is_operator()
            || endpoint.deleted_template_owner.as_ref() == Some(&template.owner);
        is_known && check_template(view, &endpoint.owner, &template.id).is_ok()
    })
}

/// Refuses a template that this owner's endpoints may not use.
fn check_template(view: &View, owner: &OwnerId, id: &TemplateId) -> Result<(), ControlError> {
    let usable = view.templates.get(id).filter(|template| template.is_usable_by(owner));
    let template = usable
        .ok_or_else(|| ControlError::invalid(format!("`templateId`: template `{id}` not found")))?;
    if !template.is_serverless {
        return Err(ControlError::invalid(format!(
            "`templateId`: template `{id}` has `isServerless` false; an endpoint needs one where it is true"
        )));
    }
    Ok(())
}
