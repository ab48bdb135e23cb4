//! Placeholders for templates and endpoints that a damaged catalog has lost, for a repair. A host
//! does not start while an endpoint's template is missing, since it does not know what the
//! endpoint's jobs run with.
//!
//! A placeholder has the image and the component of the newest release in the endpoint's record, and
//! neither environment nor arguments: those are lost. The lost template may have run newer components
//! since the endpoint's record was written. So its endpoints are paused, and their jobs wait for the
//! operator.

use std::collections::BTreeMap;

use gristmill_core::catalog::{CatalogChange, CatalogEntry, missing_templates};
use gristmill_core::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::template::Template;
use gristmill_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::seal::Seal;
use crate::tables::catalog;

/// Adds placeholders for the missing templates to the catalog of these tables. Returns a sentence
/// for each endpoint.
///
/// # Errors
/// Those of the tables.
pub(crate) fn add(to: &Connection, seal: &Seal) -> rusqlite::Result<Vec<String>> {
    let bodies = catalog::read(to, seal)?;
    let entries: Vec<_> = bodies.iter().filter_map(|body| catalog::parse(body).ok()).collect();
    let mut templates: BTreeMap<TemplateId, Template> = BTreeMap::new();
    let mut sentences = Vec::new();
    for missing in missing_templates(&entries) {
        let is_it = |entry: &CatalogEntry| match entry {
            CatalogEntry::Endpoint(endpoint) if endpoint.id == missing.endpoint => {
                Some(endpoint.clone())
            }
            _ => None,
        };
        let Some(mut endpoint) = entries.iter().find_map(is_it) else { continue };
        let template = templates
            .entry(missing.template.clone())
            .or_insert_with(|| placeholder(&missing.template, &endpoint));
        template.revision = template.revision.max(endpoint.template_revision);
        sentences.push(format!(
            "{missing}: its environment and arguments are lost. The endpoint is paused, on a template \
             with the image `{}`, which may be an earlier one: complete the template, and set the \
             endpoint's workersMax",
            template.image
        ));
        endpoint.scaling.pause();
        put(to, seal, CatalogEntry::Endpoint(endpoint))?;
    }
    templates
        .into_values()
        .try_for_each(|template| put(to, seal, CatalogEntry::Template(template)))?;
    Ok(sentences)
}

/// Adds endpoints with these names to the catalog, so that their jobs are kept: paused, of the
/// operator, and on a placeholder template of the same id. Returns a sentence for each endpoint.
///
/// # Errors
/// Those of the tables.
pub(crate) fn add_endpoints(
    to: &Connection,
    seal: &Seal,
    names: &[String],
) -> rusqlite::Result<Vec<String>> {
    let mut sentences = Vec::new();
    for name in names {
        // An invalid name never belonged to an endpoint.
        let (Ok(id), Ok(template)) =
            (EndpointId::new(name), TemplateId::new(&format!("lost-{name}")))
        else {
            continue;
        };
        let owner = OwnerId::operator();
        let mut endpoint =
            Endpoint::new(id, owner.clone(), template.clone(), Timestamp::from_millis(0));
        endpoint.scaling.pause();
        sentences.push(format!(
            "endpoint `{name}` has a placeholder: its owner, template, environment and settings are \
             lost. It is paused, belongs to the operator, and keeps its jobs: set its template and \
             workersMax, or delete it with its jobs"
        ));
        put(to, seal, CatalogEntry::Template(Template::new(template, owner, "lost:latest")))?;
        put(to, seal, CatalogEntry::Endpoint(endpoint))?;
    }
    Ok(sentences)
}

fn placeholder(id: &TemplateId, endpoint: &Endpoint) -> Template {
    let last = endpoint.releases.last();
    let image = last.map_or("", |release| &*release.image);
    Template {
        fetched: last.map(|release| release.component),
        ..Template::new(id.clone(), endpoint.owner.clone(), image)
    }
}

fn put(to: &Connection, seal: &Seal, entry: CatalogEntry) -> rusqlite::Result<()> {
    let row = catalog::row(CatalogChange::Put(entry));
    let body = row.body.as_deref().map(|body| catalog::seal(seal, &row, body));
    let sql = "INSERT OR REPLACE INTO catalog (kind, name, body) VALUES (?1, ?2, ?3)";
    to.execute(sql, params![row.kind, row.name, body])?;
    Ok(())
}
