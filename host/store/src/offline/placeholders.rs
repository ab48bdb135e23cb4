//! Placeholders for templates and endpoints that a damaged catalog has lost, for a repair. A host
//! does not start while an endpoint's template is missing, since it does not know what the
//! endpoint's jobs run with.
//!
//! A placeholder has the image and the component of the newest release in the endpoint's record,
//! and neither environment nor arguments: those are lost. The lost template may have run newer
//! components since the endpoint's record was written. So its endpoints are paused, and their jobs
//! wait for the operator.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter;

use gristmill_core::catalog::{CatalogChange, CatalogEntry, missing_templates};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::seal::Seal;
use crate::tables::catalog;

/// Characters of a long endpoint's name in the id of its placeholder template: with `lost-` and a
/// number the id has at most 126 of the 128 characters that an id may have.
const NAME_KEPT: usize = 100;

/// Adds placeholders for the missing templates to the catalog of these tables. Returns a sentence
/// for each endpoint.
///
/// # Errors
/// Those of the tables.
pub(crate) fn add(to: &Connection, seal: &Seal) -> rusqlite::Result<Vec<String>> {
    let entries = entries(to, seal)?;
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
             endpoint's `paused` to false",
            template.image
        ));
        endpoint.settings.paused = true;
        put(to, seal, CatalogEntry::Endpoint(endpoint))?;
    }
    templates
        .into_values()
        .try_for_each(|template| put(to, seal, CatalogEntry::Template(template)))?;
    Ok(sentences)
}

/// Adds endpoints with these names to the catalog, so that their jobs are kept: paused, of the
/// owner whose keys submitted the newest jobs, and each on a new placeholder template. No record is
/// replaced. Returns a sentence for each name.
///
/// # Errors
/// Those of the tables.
pub(crate) fn add_endpoints(
    to: &Connection,
    seal: &Seal,
    names: &[String],
) -> rusqlite::Result<Vec<String>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut taken = template_names(entries(to, seal)?);
    let owners = owners_of_jobs(to)?;
    let mut sentences = Vec::new();
    for name in names {
        let id = match EndpointId::new(name) {
            Ok(id) => id,
            Err(error) => {
                sentences.push(format!("endpoint `{name}` gets no placeholder: {error}"));
                continue;
            }
        };
        let Some(template) = free_template_id(name, &taken) else {
            sentences.push(format!(
                "endpoint `{name}` gets no placeholder: no template id is free for it"
            ));
            continue;
        };
        let (owner, whose) = match owners.get(name) {
            Some(owner) => (owner.clone(), format!("`{owner}`, who submitted its newest job")),
            None => (OwnerId::operator(), "the operator".to_owned()),
        };
        sentences.push(format!(
            "endpoint `{name}` has a placeholder: its template, environment and settings are lost. It \
             is paused, belongs to {whose}, and keeps its jobs, on the new template `{template}`: set \
             its template, and `paused` to false, or delete it with its jobs"
        ));
        let mut endpoint =
            Endpoint::new(id, owner.clone(), template.clone(), Timestamp::from_millis(0));
        endpoint.settings.paused = true;
        taken.insert(template.to_string());
        put(to, seal, CatalogEntry::Template(Template::new(template, owner, "lost:latest")))?;
        put(to, seal, CatalogEntry::Endpoint(endpoint))?;
    }
    Ok(sentences)
}

/// Ids and names that a new template may not have: those of the templates of this catalog, and the
/// ids that its endpoints name.
fn template_names(entries: Vec<CatalogEntry>) -> HashSet<String> {
    let mut taken = HashSet::new();
    for entry in entries {
        match entry {
            CatalogEntry::Template(template) => {
                taken.extend([template.id.to_string(), template.name]);
            }
            CatalogEntry::Endpoint(endpoint) => drop(taken.insert(endpoint.template.to_string())),
            _ => {}
        }
    }
    taken
}

/// The template id `lost-NAME`, or a shorter one with a number when it is taken or too long.
fn free_template_id(endpoint: &str, taken: &HashSet<String>) -> Option<TemplateId> {
    let begin = endpoint.get(..NAME_KEPT).unwrap_or(endpoint);
    let numbered = (2_u64..).map(|number| format!("lost-{begin}-{number}"));
    let mut ids = iter::once(format!("lost-{endpoint}")).chain(numbered);
    ids.find_map(|id| TemplateId::new(&id).ok().filter(|_| !taken.contains(&id)))
}

/// The owner of the newest job of each endpoint, by the endpoint's name. A key of the operator may
/// submit jobs to every endpoint, so these jobs do not count: an endpoint that is absent is the
/// operator's.
fn owners_of_jobs(to: &Connection) -> rusqlite::Result<HashMap<String, OwnerId>> {
    // With `max`, SQLite takes the other columns from the row of the maximum.
    let sql = "SELECT e.name, j.owner, max(j.seq) FROM job j JOIN endpoint e ON e.seq = j.endpoint \
               WHERE j.owner <> ?1 AND e.seq NOT IN (SELECT endpoint FROM deleting) \
               GROUP BY e.name";
    let mut statement = to.prepare(sql)?;
    let mut rows = statement.query([OwnerId::OPERATOR])?;
    let mut owners = HashMap::new();
    while let Some(row) = rows.next()? {
        let owner: String = row.get(1)?;
        // The text of a damaged row may be no owner.
        if let Ok(owner) = OwnerId::new(&owner) {
            owners.insert(row.get(0)?, owner);
        }
    }
    Ok(owners)
}

/// The components that a start with the catalog of these tables keeps.
///
/// # Errors
/// Those of the tables.
pub(crate) fn kept_components(
    to: &Connection,
    seal: &Seal,
) -> rusqlite::Result<BTreeSet<ComponentDigest>> {
    Ok(gristmill_core::catalog::kept_components(entries(to, seal)?))
}

/// The readable records of the catalog.
fn entries(to: &Connection, seal: &Seal) -> rusqlite::Result<Vec<CatalogEntry>> {
    let bodies = catalog::read(to, seal)?;
    Ok(bodies.iter().filter_map(|body| catalog::parse(body).ok()).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_template_has_an_id_that_is_free() {
        let (long, cut) = ("n".repeat(128), "n".repeat(NAME_KEPT));
        for (endpoint, taken, expected) in [
            ("e", vec![], "lost-e".to_owned()),
            ("e", vec!["lost-e", "e"], "lost-e-2".to_owned()),
            ("e", vec!["lost-e", "lost-e-2", "lost-e-3"], "lost-e-4".to_owned()),
            (&long[..123], vec![], format!("lost-{}", &long[..123])),
            (&long[..124], vec![], format!("lost-{cut}-2")),
            (&long, vec![], format!("lost-{cut}-2")),
            (&long, vec![&*format!("lost-{cut}-2")], format!("lost-{cut}-3")),
        ] {
            let taken = taken.into_iter().map(str::to_owned).collect();
            let id = free_template_id(endpoint, &taken).unwrap();
            assert_eq!(id.as_str(), expected, "{endpoint}");
        }
    }
}
