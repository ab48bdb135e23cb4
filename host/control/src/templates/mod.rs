//! Templates: reusable definitions of the image that workers run.

mod patch;

use std::collections::HashSet;
use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::deploy::image::RemoteImage;
use gristmill_core::deploy::template::{Template, TemplateFilter};
use gristmill_core::id::TemplateId;
use gristmill_core::registries::Registries;
use gristmill_core::runtime::AddedComponent;
use gristmill_wire::management::TemplateInput;

use crate::billing::{Billing, TemplateUsage};
use crate::complete::complete;
use crate::deployed::{Deployed, Extent};
use crate::error::ControlError;
use crate::owned::{find_owned, missing, random_id, taken};
use crate::registry_auths::named_by_template;

/// The service for templates.
#[derive(Debug, Clone)]
pub struct Templates {
    deployed: Arc<Deployed>,
    registries: Arc<dyn Registries>,
    billing: Billing,
}

impl Templates {
    pub(crate) fn new(
        deployed: Arc<Deployed>,
        registries: Arc<dyn Registries>,
        billing: Billing,
    ) -> Self {
        Self { deployed, registries, billing }
    }

    /// One template, if the caller may see it with this filter.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(
        &self,
        caller: &ApiKey,
        id: &TemplateId,
        filter: TemplateFilter,
    ) -> Result<Arc<Template>, ControlError> {
        let view = self.deployed.view();
        let template = view.templates.get(id).filter(|t| is_visible(&view, caller, t, filter));
        template.cloned().ok_or_else(|| missing::<Template>(id))
    }

    /// The templates that the caller may see with this filter.
    pub fn list(&self, caller: &Arc<ApiKey>, filter: TemplateFilter) -> TemplateList {
        TemplateList { view: self.deployed.view(), caller: caller.clone(), filter }
    }

    /// The usage of all templates until now.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn usage(&self) -> Result<TemplateUsage, ControlError> {
        self.billing.of_templates(self.deployed.now()).await
    }

    /// A new template of the caller's owner, with a random id by default. An image in a registry is
    /// fetched before, unless the template is only checked; it is returned in both cases.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] when the id or the name is taken; [`ControlError::Invalid`] for
    /// values out of bounds and for credentials that are not the owner's;
    /// [`ControlError::MissingScope`] for a platform template; [`ControlError::Fetch`]; and those
    /// of every change.
    pub async fn create(
        &self,
        caller: &Arc<ApiKey>,
        mut new: TemplateInput,
        extent: Extent,
    ) -> Result<Template, ControlError> {
        let (this, caller) = (self.clone(), caller.clone());
        let id = new.id.take().unwrap_or_else(random_id);
        complete(async move {
            let create = |view: &View| {
                if view.templates.contains_key(&id) {
                    return Err(taken::<Template>(&id));
                }
                id.check_new().map_err(|error| ControlError::invalid(error.to_string()))?;
                let blank = Template::new(id.clone(), caller.owner.clone(), "");
                let blank = Template { name: String::new(), ..blank };
                patch::changed(view, &caller, blank, new.clone())
            };
            this.put(&caller, create, new.image_name.is_some(), extent).await
        })
        .await?
    }

    /// Changes the given fields. A given image in a registry is fetched, even if its name is
    /// unchanged, but not if the change is only checked. Endpoints with the template run the new
    /// version from their next job on.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], and those of [`create`](Self::create).
    pub async fn update(
        &self,
        caller: &Arc<ApiKey>,
        id: TemplateId,
        given: TemplateInput,
        extent: Extent,
    ) -> Result<Template, ControlError> {
        let (this, caller) = (self.clone(), caller.clone());
        complete(async move {
            let update = |view: &View| {
                let current: &Arc<Template> = find_owned(view, &caller, &id)?;
                patch::changed(view, &caller, Template::clone(current), given.clone())
            };
            let template = this.put(&caller, update, given.image_name.is_some(), extent).await?;
            if extent == Extent::CheckOnly {
                return Ok(template);
            }
            this.deployed.refresh_bound(&id);
            this.deployed.remove_unused_components().await;
            Ok(template)
        })
        .await?
    }

    /// Writes the template that `decide` returns, and the component that is fetched for it.
    async fn put(
        &self,
        caller: &ApiKey,
        decide: impl Fn(&View) -> Result<Template, ControlError>,
        names_image: bool,
        extent: Extent,
    ) -> Result<Template, ControlError> {
        if extent == Extent::CheckOnly {
            let put = |view: &View| decide(view).map(|new| changes(view, new, None));
            return self.deployed.check(caller, put);
        }
        let decided = decide(&self.deployed.view())?;
        let fetched = if names_image { self.fetch(&decided).await? } else { None };
        let put = |view: &View| decide(view).map(|new| changes(view, new, fetched.as_ref()));
        let template = self.deployed.change(caller, put).await;
        if let Some(fetched) = fetched {
            self.deployed.release(fetched).await;
        }
        template
    }

    /// Fetches the image of a template before it is written, if the image is in a registry. An
    /// unchanged name is fetched again, since its tag may have moved.
    async fn fetch(&self, template: &Template) -> Result<Option<AddedComponent>, ControlError> {
        if !RemoteImage::names_registry(&template.image) {
            return Ok(None);
        }
        let image = patch::remote_image(template)?;
        let view = self.deployed.view();
        let auth = match template.registry_auth.as_str() {
            "" => None,
            id => Some(named_by_template(&view, &template.owner, id)?),
        };
        match self.registries.fetch(&image, auth, &template.owner).await {
            Ok(fetched) => Ok(Some(fetched)),
            Err(error) => Err(ControlError::Fetch { image: Box::new(image), error }),
        }
    }

    /// Deletes a template that no endpoint uses. Endpoints of other owners that may no longer use
    /// it do not prevent this: their jobs wait.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; [`ControlError::Conflict`] when an endpoint uses it; and those
    /// of every change.
    pub async fn delete(&self, caller: &Arc<ApiKey>, id: TemplateId) -> Result<(), ControlError> {
        let (deployed, caller) = (self.deployed.clone(), caller.clone());
        complete(async move {
            let delete = |view: &View| {
                let owner = &find_owned::<Template>(view, &caller, &id)?.owner;
                if let Some(user) = view.bound_to(&id).max_by_key(|user| user.owner == *owner) {
                    let whose = if user.owner == *owner { "an" } else { "another owner's" };
                    let sentence = format!("template `{id}` is in use by {whose} endpoint");
                    return Err(ControlError::conflict(sentence));
                }
                Ok((vec![CatalogChange::Delete(CatalogKey::Template(id.clone()))], ()))
            };
            deployed.change(&caller, delete).await?;
            deployed.refresh_bound(&id);
            deployed.remove_unused_components().await;
            Ok(())
        })
        .await?
    }
}

/// The templates that a key sees at one moment. Making it costs nothing; the templates are looked
/// through by [`iter`](Self::iter).
#[derive(Debug)]
pub struct TemplateList {
    view: Arc<View>,
    caller: Arc<ApiKey>,
    filter: TemplateFilter,
}

impl TemplateList {
    /// The templates, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Template>> {
        let Self { view, caller, filter } = self;
        // One pass over the endpoints for all templates.
        let bound: HashSet<_> = templates_in_use(view, caller).collect();
        let templates = view.templates.values();
        templates.filter(move |t| t.is_visible_to(caller, bound.contains(&t.id), *filter))
    }
}

fn is_visible(view: &View, reader: &ApiKey, template: &Template, filter: TemplateFilter) -> bool {
    let is_bound = templates_in_use(view, reader).any(|used| *used == template.id);
    template.is_visible_to(reader, is_bound, filter)
}

/// The templates that endpoints use, in the eyes of this reader: only endpoints that the reader
/// sees count, so that a public template stays visible when another owner uses it. A template can
/// be returned more than once.
fn templates_in_use<'v>(
    view: &'v View,
    reader: &'v ApiKey,
) -> impl Iterator<Item = &'v TemplateId> {
    let seen = view.bound().filter(move |endpoint| reader.sees(&endpoint.owner));
    seen.map(|endpoint| &endpoint.template)
}

/// The changes of a template write: the template, and the component that was fetched for it.
fn changes(
    view: &View,
    template: Template,
    fetched: Option<&AddedComponent>,
) -> (Vec<CatalogChange>, Template) {
    let component = fetched.map(|added| {
        let stored = view.components.get(&added.component.digest);
        added.component.clone().owned_by(&template.owner, stored.map(|stored| &**stored))
    });
    let template = match &component {
        Some(component) => Template { fetched: Some(component.digest), ..template },
        None => template,
    };
    let component = component.map(CatalogEntry::Component);
    let entries = component.into_iter().chain([CatalogEntry::Template(template.clone())]);
    (entries.map(CatalogChange::Put).collect(), template)
}
