//! Why a catalog cannot be opened: templates that are missing.

use std::collections::HashSet;

use super::entry::CatalogEntry;
use crate::deploy::endpoint::Endpoint;
use crate::id::{EndpointId, TemplateId};
use crate::store_error::StoreError;

/// An endpoint whose template is not in the catalog. The API never lets that happen: a row was
/// lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint `{endpoint}` uses template `{template}`, which is not in the catalog")]
pub struct MissingTemplate {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The template that it names.
    pub template: TemplateId,
}

/// The endpoints whose templates are missing, by id. An endpoint whose template was deleted,
/// because its owner could use it no more, does not count.
pub fn missing_templates(entries: &[CatalogEntry]) -> Vec<MissingTemplate> {
    let templates: HashSet<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            CatalogEntry::Template(template) => Some(&template.id),
            _ => None,
        })
        .collect();
    let missing = entries.iter().filter_map(|entry| match entry {
        CatalogEntry::Endpoint(Endpoint { id, template, template_is_deleted: false, .. })
            if !templates.contains(template) =>
        {
            Some(MissingTemplate { endpoint: id.clone(), template: template.clone() })
        }
        _ => None,
    });
    let mut missing: Vec<_> = missing.collect();
    missing.sort_unstable_by(|a, b| a.endpoint.cmp(&b.endpoint));
    missing
}

/// Why a catalog cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenCatalogError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Endpoints without a template cannot run their jobs. They are not left out: the jobs of an
    /// endpoint that is not in the catalog are deleted.
    #[error(
        "the catalog is damaged: {first}{}; restore a backup, or save the rest with `gristmill repair`, \
         which keeps the endpoint, paused, with its jobs",
        more(*.others)
    )]
    MissingTemplates {
        /// The first of them.
        first: MissingTemplate,
        /// How many more there are.
        others: usize,
    },
}

fn more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(", and {others} more like it") }
}
