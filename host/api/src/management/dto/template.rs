//! Templates.

use std::collections::BTreeMap;

use gristmill_control::{TemplatePatch, TemplateUsage};
use gristmill_core::id::TemplateId;
use gristmill_core::price::Prices;
use gristmill_core::template;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, ComputeType, requiring};
use crate::openapi::schema;
use crate::whole_number;

/// The brand in the neutral field names, which always exist.
pub(crate) const NEUTRAL: &str = "Platform";

/// The field under `brand` that is true for the operator's own templates.
pub(crate) fn branded_field(brand: &str) -> String {
    format!("is{brand}")
}

/// The query that includes the operator's own templates, in its neutral spelling.
pub(crate) const PLATFORM_FLAG: &str = "includePlatformTemplates";

/// The query that includes the operator's own templates, under `brand`.
pub(crate) fn branded_flag(brand: &str) -> String {
    format!("include{brand}Templates")
}

/// A template to create, or the fields of one to change.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateInput {
    /// Allowed only for a new template; a random id by default.
    #[schema(value_type = Option<schema::Id>)]
    pub(crate) id: Option<TemplateId>,
    /// Unique among the owner's templates.
    #[schema(value_type = Option<schema::Name>)]
    pub(crate) name: Option<String>,
    #[schema(value_type = Option<schema::ImageName>)]
    pub(crate) image_name: Option<String>,
    /// The hardware of its workers; always `CPU`.
    #[expect(dead_code, reason = "there is one value, and reading it refuses all others")]
    category: Option<ComputeType>,
    /// Size of each job's scratch space at `/tmp`; 0: none.
    #[schema(value_type = Option<schema::Gigabytes>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) container_disk_in_gb: Option<u32>,
    /// Stored and shown, without effect; use a network volume for persistent space.
    #[schema(value_type = Option<schema::Gigabytes>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) volume_in_gb: Option<u32>,
    /// Where the endpoint's network volume is mounted.
    #[schema(value_type = Option<schema::MountPath>)]
    pub(crate) volume_mount_path: Option<String>,
    /// The credentials for fetching the image; empty: none.
    #[schema(value_type = Option<schema::OptionalId>)]
    pub(crate) container_registry_auth_id: Option<String>,
    /// First part of the handler's arguments.
    #[schema(value_type = Option<schema::Arguments>)]
    pub(crate) docker_entrypoint: Option<Vec<String>>,
    /// Second part of the handler's arguments.
    #[schema(value_type = Option<schema::Arguments>)]
    pub(crate) docker_start_cmd: Option<Vec<String>>,
    /// The handler's environment.
    #[schema(value_type = Option<schema::Environment>)]
    pub(crate) env: Option<BTreeMap<String, String>>,
    #[schema(value_type = Option<schema::Ports>)]
    pub(crate) ports: Option<Vec<String>>,
    /// A description in Markdown.
    #[schema(value_type = Option<schema::Readme>)]
    pub(crate) readme: Option<String>,
    /// Whether other owners may see the whole template, including `env`, and use it for endpoints.
    pub(crate) is_public: Option<bool>,
    /// Whether its instances are serverless workers; endpoints can use only such templates.
    pub(crate) is_serverless: Option<bool>,
    /// Whether it is a platform template; only a template of the operator can be one, and only an
    /// admin key may change it.
    pub(crate) is_platform: Option<bool>,
}

requiring! {
    /// A template to create.
    NewTemplate = TemplateInput, &["name", "imageName"]
}

impl From<TemplateInput> for gristmill_control::NewTemplate {
    fn from(mut input: TemplateInput) -> Self {
        Self { id: input.id.take(), properties: input.into() }
    }
}

impl From<TemplateInput> for TemplatePatch {
    fn from(input: TemplateInput) -> Self {
        Self {
            name: input.name,
            image: input.image_name,
            container_disk_gb: input.container_disk_in_gb,
            volume_gb: input.volume_in_gb,
            volume_mount_path: input.volume_mount_path,
            registry_auth: input.container_registry_auth_id,
            entrypoint: input.docker_entrypoint,
            start_command: input.docker_start_cmd,
            env: input.env,
            ports: input.ports,
            readme: input.readme,
            is_public: input.is_public,
            is_serverless: input.is_serverless,
            is_platform: input.is_platform,
        }
    }
}

/// The answer's form of a template: the 18 documented fields, none of them null, and `isPlatform` a
/// second time under the operator's brand.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Template {
    #[schema(value_type = schema::Id)]
    id: TemplateId,
    name: String,
    image_name: String,
    category: ComputeType,
    container_disk_in_gb: u32,
    volume_in_gb: u32,
    volume_mount_path: String,
    container_registry_auth_id: String,
    docker_entrypoint: Vec<String>,
    docker_start_cmd: Vec<String>,
    env: BTreeMap<String, String>,
    ports: Vec<String>,
    readme: String,
    is_public: bool,
    is_platform: bool,
    is_serverless: bool,
    /// Credits, by the current prices, for the jobs of other owners that ran with it.
    #[schema(value_type = f64)]
    earned: Amount,
    /// Whole minutes that jobs ran with it, for all owners.
    runtime_in_min: u64,
    /// At most one field, whose name has the brand; the OpenAPI document adds it.
    #[serde(flatten)]
    #[schema(ignore)]
    branded: BTreeMap<String, bool>,
}

impl Template {
    pub(crate) fn new(
        template: &template::Template,
        brand: &str,
        used: &TemplateUsage,
        prices: &Prices,
    ) -> Self {
        let earned = Amount(used.earned(template, prices));
        let runtime_in_min = used.runtime_min(template);
        let template = template.clone();
        let branded = (brand != NEUTRAL).then(|| (branded_field(brand), template.is_platform));
        Self {
            id: template.id,
            name: template.name,
            image_name: template.image,
            category: ComputeType::Cpu,
            container_disk_in_gb: template.container_disk_gb,
            volume_in_gb: template.volume_gb,
            volume_mount_path: template.volume_mount_path,
            container_registry_auth_id: template.registry_auth,
            docker_entrypoint: template.entrypoint,
            docker_start_cmd: template.start_command,
            env: template.env,
            ports: template.ports,
            readme: template.readme,
            is_public: template.is_public,
            is_platform: template.is_platform,
            is_serverless: template.is_serverless,
            earned,
            runtime_in_min,
            branded: branded.into_iter().collect(),
        }
    }
}
