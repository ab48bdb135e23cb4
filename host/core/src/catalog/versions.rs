//! How a change leads from one view to the next, and what it counts: versions of endpoints,
//! revisions of templates, and the releases of both.
//!
//! **Promise.** A change writes the records that it names, and those of the templates whose
//! component changes with an image. It writes no record of an endpoint because of the endpoint's
//! template: an endpoint's record knows up to which revision of its template it has counted, and
//! [`follow`](Endpoint::follow) adds the rest, at each start too. So a change of a template costs
//! one row, however many endpoints of however many owners run it, and no owner's records grow
//! because of another owner's template.
//!
//! **Cost.** The maps of the view are copied, and each endpoint of a changed template once, in
//! memory. A change of an image or of a component resolves the images of all templates twice.

use std::collections::HashSet;
use std::sync::Arc;

use super::entry::{CatalogChange, CatalogEntry, CatalogKey};
use super::view::View;
use crate::deploy::endpoint::Endpoint;
use crate::deploy::release::Release;
use crate::deploy::template::Template;
use crate::id::{TemplateId, VolumeId};
use crate::time::Timestamp;

/// The next view, with the records to write for it.
pub(super) struct Step {
    pub(super) view: View,
    pub(super) written: Vec<CatalogChange>,
    /// Templates that are new, changed or deleted, or run another component.
    templates: HashSet<TemplateId>,
    /// Volumes that are new, changed or deleted.
    volumes: HashSet<VolumeId>,
}

impl Step {
    /// Makes the changes in a copy of `before`.
    pub(super) fn from(before: &View, changes: Vec<CatalogChange>, now: Timestamp) -> Self {
        let mut step = Self {
            view: before.clone(),
            written: Vec::new(),
            templates: HashSet::new(),
            volumes: HashSet::new(),
        };
        let resolve_anew = changes.iter().any(decides_what_images_name);
        // Endpoints are counted last: they depend on all other records.
        let endpoints = step.make(changes);
        if resolve_anew {
            let moved = step.moved(before);
            step.templates.extend(moved);
        }
        for id in step.templates.clone() {
            step.count_template(before, &id, now);
        }
        for endpoint in endpoints {
            step.count_endpoint(before, endpoint, now);
        }
        let affected = step.affected();
        for endpoint in affected.iter().filter(|endpoint| !endpoint.template_is_deleted) {
            if !step.view.templates.contains_key(&endpoint.template) {
                step.count_endpoint(before, Endpoint::clone(endpoint), now);
            }
        }
        step.view.rejoin(affected.iter().map(|endpoint| &endpoint.id));
        step
    }

    /// Makes all changes but those of endpoints, which it returns.
    fn make(&mut self, changes: Vec<CatalogChange>) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for change in changes {
            match &change {
                CatalogChange::Put(CatalogEntry::Template(template)) => {
                    self.templates.insert(template.id.clone());
                    self.view.apply(change);
                    continue;
                }
                CatalogChange::Put(CatalogEntry::Endpoint(endpoint)) => {
                    endpoints.push(endpoint.clone());
                    continue;
                }
                CatalogChange::Delete(CatalogKey::Template(id)) => {
                    self.templates.insert(id.clone());
                }
                CatalogChange::Put(CatalogEntry::Volume(volume)) => {
                    self.volumes.insert(volume.id.clone());
                }
                CatalogChange::Delete(CatalogKey::Volume(id)) => {
                    self.volumes.insert(id.clone());
                }
                _ => {}
            }
            self.write(change);
        }
        endpoints
    }

    /// The endpoints whose template or volume has changed.
    fn affected(&self) -> Vec<Arc<Endpoint>> {
        let endpoints = self.view.deployments.values().map(|deployment| &deployment.endpoint);
        let affected = endpoints.filter(|endpoint| {
            self.templates.contains(&endpoint.template)
                || endpoint.network_volume.as_ref().is_some_and(|id| self.volumes.contains(id))
        });
        affected.cloned().collect()
    }

    fn write(&mut self, change: CatalogChange) {
        self.view.apply(change.clone());
        self.written.push(change);
    }

    /// The templates that run another component than before.
    fn moved(&self, before: &View) -> Vec<TemplateId> {
        let moved = self.view.templates.values().filter(|template| {
            let earlier = before.templates.get(&template.id);
            let earlier = earlier.and_then(|earlier| before.component_of(earlier));
            self.view.component_of(template) != earlier
        });
        moved.map(|template| template.id.clone()).collect()
    }

    /// Writes a template, with its next revision if it or its component has changed.
    fn count_template(&mut self, before: &View, id: &TemplateId, now: Timestamp) {
        let Some(put) = self.view.templates.get(id) else { return };
        let earlier = before.templates.get(id);
        let mut template = Template::clone(put);
        // A caller's copy of the counts may be old.
        (template.revision, template.hidden_changes, template.releases) = earlier
            .map_or_else(Default::default, |t| (t.revision, t.hidden_changes, t.releases.clone()));
        let component = self.view.component_of(&template);
        let ran = earlier.and_then(|earlier| before.component_of(earlier));
        if earlier.is_none_or(|earlier| **earlier != template) || component != ran {
            template.revision = template.revision.saturating_add(1);
            let is_hidden = !template.is_shared() && earlier.is_none_or(|t| !t.is_shared());
            template.hidden_changes = template.hidden_changes.saturating_add(is_hidden.into());
        }
        if let Some(component) = component.filter(|_| component != ran) {
            let (version, image) = (template.revision, template.image.as_str().into());
            let settings = None;
            let release = Release { version, released_at: now, image, component, settings };
            template.releases.push(release);
        }
        self.write(CatalogChange::Put(CatalogEntry::Template(template)));
    }

    /// Writes an endpoint, with its next version if it has changed. It is marked if its template
    /// does not exist, with the owner of the template that this change deletes.
    fn count_endpoint(&mut self, before: &View, mut endpoint: Endpoint, now: Timestamp) {
        if !endpoint.template_is_deleted && !self.view.templates.contains_key(&endpoint.template) {
            let deleted = before.templates.get(&endpoint.template);
            endpoint.template_is_deleted = true;
            endpoint.deleted_template_owner = deleted.map(|deleted| deleted.owner.clone());
        }
        let earlier = before.deployments.get(&endpoint.id).map(|current| &*current.endpoint);
        (endpoint.version, endpoint.template_revision, endpoint.releases) = earlier
            .map_or_else(Default::default, |e| {
                (e.version, e.template_revision, e.releases.clone())
            });
        if earlier != Some(&endpoint) {
            let template = self.view.template_of(&endpoint);
            endpoint.version = endpoint.version.saturating_add(1);
            endpoint.template_revision =
                template.map_or(0, |template| template.revision_for(&endpoint.owner));
            // While it keeps another owner's template, its record does not grow with that owner's
            // changes.
            let is_listed = |template: &Template| {
                template.owner == endpoint.owner
                    || earlier.is_none_or(|earlier| earlier.template != endpoint.template)
            };
            if let Some(template) = template.filter(|template| is_listed(template))
                && let Some(component) = self.view.component_for(&endpoint, template)
            {
                let (version, image) = (endpoint.version, template.image.as_str().into());
                let settings = Some(Arc::new(endpoint.release_settings()));
                let release = Release { version, released_at: now, image, component, settings };
                endpoint.releases.push_new(release);
            }
        }
        self.write(CatalogChange::Put(CatalogEntry::Endpoint(endpoint)));
    }
}

/// Whether the change may lead an image's name to another component.
fn decides_what_images_name(change: &CatalogChange) -> bool {
    match change {
        CatalogChange::Put(entry) => {
            matches!(entry, CatalogEntry::Image(_) | CatalogEntry::Component(_))
        }
        CatalogChange::Delete(key) => {
            matches!(key, CatalogKey::Image(_) | CatalogKey::Component(_))
        }
    }
}
