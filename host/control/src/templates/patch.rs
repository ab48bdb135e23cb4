//! The rules for a change of a template.

use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::catalog::View;
use gristmill_core::deploy::image::RemoteImage;
use gristmill_core::deploy::template::Template;
use gristmill_core::limits::{
    ARGUMENT_CHARS_MAX, ARGUMENTS_MAX, IMAGE_NAME_CHARS_MAX, PORTS_MAX, README_CHARS_MAX,
};
use gristmill_wire::management::TemplateInput;
use gristmill_wire::settings::{InvalidField, check_count, check_env, check_name, check_text};

use crate::error::ControlError;
use crate::registry_auths::{check_registry, named_by_template};
use crate::volumes::check_mount_path;

/// The template with the given fields, if the result is valid and the caller may write it.
pub(super) fn changed(
    view: &View,
    caller: &ApiKey,
    current: Template,
    given: TemplateInput,
) -> Result<Template, ControlError> {
    let is_platform = given.is_platform.unwrap_or(current.is_platform);
    if is_platform != current.is_platform && !caller.allows(Scope::Admin, None) {
        return Err(ControlError::MissingScope(Scope::Admin));
    }
    if is_platform && !current.owner.is_operator() {
        return Err(ControlError::invalid(
            "`isPlatform` can be true for a template of the operator's own only",
        ));
    }
    let is_serverless = given.is_serverless.unwrap_or(current.is_serverless);
    if current.is_serverless && !is_serverless && view.bound_to(&current.id).next().is_some() {
        let sentence =
            format!("`isServerless`: template `{}` is in use by an endpoint", current.id);
        return Err(ControlError::conflict(sentence));
    }
    let names_image = given.image_name.is_some();
    let names_registry = given.container_registry_auth_id.is_some() || given.image_name.is_some();
    let template = Template {
        // The component belongs to the previous image.
        fetched: current.fetched.filter(|_| given.image_name.is_none()),
        name: given.name.unwrap_or(current.name),
        image: given.image_name.unwrap_or(current.image),
        category: given.category.unwrap_or(current.category),
        container_disk_gb: given.container_disk_in_gb.unwrap_or(current.container_disk_gb),
        volume_gb: given.volume_in_gb.unwrap_or(current.volume_gb),
        volume_mount_path: given.volume_mount_path.unwrap_or(current.volume_mount_path),
        registry_auth: given.container_registry_auth_id.unwrap_or(current.registry_auth),
        entrypoint: given.docker_entrypoint.unwrap_or(current.entrypoint),
        start_command: given.docker_start_cmd.unwrap_or(current.start_command),
        env: given.env.unwrap_or(current.env),
        ports: given.ports.unwrap_or(current.ports),
        readme: given.readme.unwrap_or(current.readme),
        is_public: given.is_public.unwrap_or(current.is_public),
        is_serverless,
        is_platform,
        ..current
    };
    check_name("name", &template.name)?;
    if template.image.is_empty() {
        return Err(ControlError::invalid(
            "`imageName` is required; it names an uploaded handler as `name:tag` or `name@sha256:…`, or an image in a registry",
        ));
    }
    check_sizes(&template)?;
    if names_image && RemoteImage::names_registry(&template.image) {
        remote_image(&template)?;
    }
    if names_registry {
        check_registry_auth(view, &template)?;
    }
    check_mount_path(&template.volume_mount_path)?;
    if let Some(port) = template.ports.iter().find(|port| !is_port(port)) {
        return Err(ControlError::invalid(format!(
            "`ports` has `{port}`; a port is written `<1 to 65535>/http` or `…/tcp`"
        )));
    }
    let is_taken = view.templates.values().any(|other| {
        other.name == template.name && other.owner == template.owner && other.id != template.id
    });
    if is_taken {
        return Err(ControlError::conflict(format!(
            "a template named `{}` exists already",
            template.name
        )));
    }
    Ok(template)
}

/// Refuses texts and lists that are larger than a template may keep.
fn check_sizes(template: &Template) -> Result<(), InvalidField> {
    check_text("imageName", &template.image, IMAGE_NAME_CHARS_MAX)?;
    check_text("readme", &template.readme, README_CHARS_MAX)?;
    let lists =
        [("dockerEntrypoint", &template.entrypoint), ("dockerStartCmd", &template.start_command)];
    for (field, arguments) in lists {
        check_count(field, arguments.len(), ARGUMENTS_MAX)?;
        for (at, argument) in arguments.iter().enumerate() {
            check_text(&format!("{field}[{at}]"), argument, ARGUMENT_CHARS_MAX)?;
        }
    }
    check_count("ports", template.ports.len(), PORTS_MAX)?;
    check_env("env", &template.env)
}

/// Refuses credentials that are not the owner's, or are bound to another registry than the image's.
fn check_registry_auth(view: &View, template: &Template) -> Result<(), ControlError> {
    if template.registry_auth.is_empty() {
        return Ok(());
    }
    let id = &template.registry_auth;
    let auth = named_by_template(view, &template.owner, id)?;
    match RemoteImage::names_registry(&template.image) {
        true => check_registry(auth, &remote_image(template)?),
        false => Ok(()),
    }
}

pub(super) fn remote_image(template: &Template) -> Result<RemoteImage, ControlError> {
    let image = template.image.parse();
    image.map_err(|error| ControlError::invalid(format!("`imageName` is not usable: {error}")))
}

fn is_port(text: &str) -> bool {
    text.split_once('/').is_some_and(|(number, protocol)| {
        // Only in the usual form of a number: no sign, no leading zero.
        let is_number = number.starts_with(|digit| matches!(digit, '1'..='9'));
        is_number && number.parse::<u16>().is_ok() && matches!(protocol, "http" | "tcp")
    })
}
