//! Templates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::billing::Amount;
use crate::id::TemplateId;
#[cfg(feature = "openapi")]
use crate::schema;
use crate::whole_number;
use crate::words::words;

words! {
    /// The hardware that a template was made for: a label, by which the web console groups
    /// templates. Handlers run on the CPU in any case.
    #[derive(Default)]
    pub enum TemplateCategory {
        /// Processors.
        #[default]
        Cpu = "CPU",
        /// GPUs of NVIDIA.
        Nvidia = "NVIDIA",
        /// GPUs of AMD.
        Amd = "AMD",
    }
}

/// A template to create, or the fields of one to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TemplateInput {
    /// Allowed only for a new template; a random id by default.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<TemplateId>,
    /// Unique among the owner's templates.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The handler that it runs. It may be uploaded later; until then the jobs of the template's
    /// endpoints wait. An image in a registry is fetched before the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ImageName>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_name: Option<String>,
    /// A label, by which the web console groups templates; `CPU` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<TemplateCategory>,
    /// Size of each job's scratch space at `/tmp`; 0, the default: none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Gigabytes>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub container_disk_in_gb: Option<u32>,
    /// Stored and shown, without effect; use a network volume for persistent space.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Gigabytes>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub volume_in_gb: Option<u32>,
    /// Where handlers find the endpoint's network volume.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::MountPath>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mount_path: Option<String>,
    /// The credentials for fetching the image, those of its registry; empty: none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::OptionalId>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_registry_auth_id: Option<String>,
    /// First part of the handler's arguments.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Arguments>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_entrypoint: Option<Vec<String>>,
    /// Second part of the handler's arguments.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Arguments>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_start_cmd: Option<Vec<String>>,
    /// The handler's environment.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Environment>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Shown, never opened.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Ports>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<String>>,
    /// A description in Markdown.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Readme>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readme: Option<String>,
    /// Whether other owners may see the whole template, including `env`, and use it for endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_public: Option<bool>,
    /// Whether its instances are serverless workers; endpoints can use only such templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_serverless: Option<bool>,
    /// Whether it is a platform template; only a template of the operator can be one, and only an
    /// admin key may change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_platform: Option<bool>,
}

#[cfg(feature = "openapi")]
schema::variant! {
    /// A template to create.
    NewTemplate = TemplateInput, |object| schema::require(object, &["name", "imageName"])
}

/// The answer's form of a template: the 18 documented fields, none of them null, and `isPlatform` a
/// second time under the operator's brand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: TemplateId,
    /// Unique among the owner's templates.
    pub name: String,
    /// The handler that it runs.
    pub image_name: String,
    /// A label, by which the web console groups templates.
    pub category: TemplateCategory,
    /// Size of each job's scratch space at `/tmp`, in gigabytes; 0: none.
    pub container_disk_in_gb: u32,
    /// Without effect, in gigabytes.
    pub volume_in_gb: u32,
    /// Where the endpoint's network volume is mounted.
    pub volume_mount_path: String,
    /// The credentials for fetching the image; empty: none.
    pub container_registry_auth_id: String,
    /// First part of the handler's arguments.
    pub docker_entrypoint: Vec<String>,
    /// Second part of the handler's arguments.
    pub docker_start_cmd: Vec<String>,
    /// The handler's environment.
    pub env: BTreeMap<String, String>,
    /// Shown, never opened.
    pub ports: Vec<String>,
    /// A description in Markdown.
    pub readme: String,
    /// Whether other owners may see and use it.
    pub is_public: bool,
    /// Whether it is a platform template.
    pub is_platform: bool,
    /// Whether its instances are serverless workers.
    pub is_serverless: bool,
    /// Credits, by the current prices, for the jobs of other owners that ran with it.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub earned: Amount,
    /// Whole minutes that jobs ran with it, for all owners.
    pub runtime_in_min: u64,
    /// At most one field, whose name has the brand; the OpenAPI document adds it.
    #[serde(flatten, skip_deserializing)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub branded: BTreeMap<String, bool>,
}
