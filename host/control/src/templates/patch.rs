//! The properties of a template that a caller may set, and the rules for them.

use std::collections::BTreeMap;

use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::catalog::View;
use gristmill_core::deploy::image::RemoteImage;
use gristmill_core::deploy::template::Template;
use gristmill_core::limits::{
    ARGUMENT_CHARS_MAX, ARGUMENTS_MAX, IMAGE_NAME_CHARS_MAX, PORTS_MAX, README_CHARS_MAX,
};
use gristmill_wire::management::TemplateCategory;

use crate::bounds::{check_count, check_env, check_name, check_text};
use crate::error::ControlError;
use crate::registry_auths::{check_registry, named_by_template};
use crate::volumes::check_mount_path;

/// The properties to set; the others keep their values.
#[derive(Debug, Clone, Default)]
pub struct TemplatePatch {
    /// Unique among the owner's templates.
    pub name: Option<String>,
    /// The image to run: an uploaded one, or one in a registry, which is fetched.
    pub image: Option<String>,
    /// A label for readers.
    pub category: Option<TemplateCategory>,
    /// Size of each job's scratch space.
    pub container_disk_gb: Option<u32>,
    /// Stored, without effect.
    pub volume_gb: Option<u32>,
    /// Where the endpoint's network volume is mounted.
    pub volume_mount_path: Option<String>,
    /// The id of the credentials for fetching the image; empty: none.
    pub registry_auth: Option<String>,
    /// First part of the handler's arguments.
    pub entrypoint: Option<Vec<String>>,
    /// Second part of the handler's arguments.
    pub start_command: Option<Vec<String>>,
    /// The handler's environment.
    pub env: Option<BTreeMap<String, String>>,
    /// Stored, without effect.
    pub ports: Option<Vec<String>>,
    /// A description in Markdown.
    pub readme: Option<String>,
    /// Whether other owners may see it and use it.
    pub is_public: Option<bool>,
    /// Whether endpoints can use it.
    pub is_serverless: Option<bool>,
    /// Whether it is a platform template.
    pub is_platform: Option<bool>,
}

impl TemplatePatch {
    /// The template with these properties, if the result is valid and the caller may write it.
    pub(super) fn apply(
        self,
        view: &View,
        caller: &ApiKey,
        current: Template,
    ) -> Result<Template, ControlError> {
        let is_platform = self.is_platform.unwrap_or(current.is_platform);
        if is_platform != current.is_platform && !caller.allows(Scope::Admin, None) {
            return Err(ControlError::MissingScope(Scope::Admin));
        }
        if is_platform && !current.owner.is_operator() {
            return Err(ControlError::invalid(
                "`isPlatform` can be true for a template of the operator's own only",
            ));
        }
        let is_serverless = self.is_serverless.unwrap_or(current.is_serverless);
        if current.is_serverless && !is_serverless && view.bound_to(&current.id).next().is_some() {
            let sentence =
                format!("`isServerless`: template `{}` is in use by an endpoint", current.id);
            return Err(ControlError::conflict(sentence));
        }
        let names_image = self.image.is_some();
        let names_registry = self.registry_auth.is_some() || self.image.is_some();
        let template = Template {
            // The component belongs to the previous image.
            fetched: current.fetched.filter(|_| self.image.is_none()),
            name: self.name.unwrap_or(current.name),
            image: self.image.unwrap_or(current.image),
            category: self.category.unwrap_or(current.category),
            container_disk_gb: self.container_disk_gb.unwrap_or(current.container_disk_gb),
            volume_gb: self.volume_gb.unwrap_or(current.volume_gb),
            volume_mount_path: self.volume_mount_path.unwrap_or(current.volume_mount_path),
            registry_auth: self.registry_auth.unwrap_or(current.registry_auth),
            entrypoint: self.entrypoint.unwrap_or(current.entrypoint),
            start_command: self.start_command.unwrap_or(current.start_command),
            env: self.env.unwrap_or(current.env),
            ports: self.ports.unwrap_or(current.ports),
            readme: self.readme.unwrap_or(current.readme),
            is_public: self.is_public.unwrap_or(current.is_public),
            is_serverless,
            is_platform,
            id: current.id,
            owner: current.owner,
            revision: current.revision,
            hidden_changes: current.hidden_changes,
            releases: current.releases,
        };
        check_name(&template.name)?;
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
}

/// Refuses texts and lists that are larger than a template may keep.
fn check_sizes(template: &Template) -> Result<(), ControlError> {
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
    check_env(&template.env)
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
