//! Names of components: adding, moving and removing a name, for uploads and for pushes. A component
//! without any name is deleted, with its record and files.

use std::io;
use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, Component, Image, View};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::deploy::image::PushedManifest;
use gristmill_core::id::OwnerId;
use gristmill_core::limits::NAME_BYTES_MAX;
use gristmill_core::runtime::{AddedComponent, Staged};
use tokio::io::AsyncRead;

use crate::complete::complete;
use crate::deployed::Deployed;
use crate::error::ControlError;

/// Most endpoints that the refusal of a deletion names.
const NAMED_USERS_MAX: usize = 20;

/// The service for image names and their components.
#[derive(Debug, Clone)]
pub struct Images(Arc<Deployed>);

/// `name:tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// The part before the colon.
    pub name: String,
    /// The part after it.
    pub tag: String,
}

impl ImageName {
    /// Parses `name` or `name:tag`; without a tag it is `latest`.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] when the text is not such a name.
    pub fn parse(text: &str) -> Result<Self, ControlError> {
        let (name, tag) = text.split_once(':').unwrap_or((text, "latest"));
        if is_image_part(name) && is_image_part(tag) {
            return Ok(Self { name: name.to_owned(), tag: tag.to_owned() });
        }
        Err(ControlError::invalid(format!(
            "`{text}` is not a handler name: write `name:tag`, each 1 to {NAME_BYTES_MAX} letters, \
             digits, `.`, `_` or `-`"
        )))
    }

    fn reference(&self) -> String {
        let Self { name, tag } = self;
        format!("{name}:{tag}")
    }
}

/// Whether a text is valid as a handler's name or tag.
pub fn is_image_part(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The component for a name.
#[derive(Debug)]
pub enum NamedComponent<'s> {
    /// Uploaded bytes, which are checked and compiled first.
    Uploaded(&'s dyn Staged),
    /// A stored component, unless it was deleted meanwhile.
    Known(ComponentDigest),
}

impl Images {
    pub(crate) fn new(deployed: Arc<Deployed>) -> Self {
        Self(deployed)
    }

    /// The caller's own image with this name, and its component.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(
        &self,
        caller: &ApiKey,
        name: &ImageName,
    ) -> Result<(Arc<Image>, Arc<Component>), ControlError> {
        let view = self.0.view();
        let image = view.image(&caller.owner, &name.reference());
        let found = image.and_then(|image| Some((image, view.components.get(&image.digest)?)));
        let (image, component) = found.ok_or_else(|| not_found(name))?;
        Ok((image.clone(), component.clone()))
    }

    /// The caller's own images; with `name`, those with this name and any tag.
    pub fn list(&self, caller: &ApiKey, name: Option<String>) -> NamedImages {
        NamedImages { view: self.0.view(), owner: caller.owner.clone(), name }
    }

    /// Begins an upload that arrives piece by piece, for [`upload`](Self::upload) or
    /// [`push`](Self::push).
    ///
    /// # Errors
    /// [`ControlError::Stage`].
    pub async fn stage(&self, caller: &ApiKey) -> Result<Box<dyn Staged>, ControlError> {
        Ok(self.0.components.stage(&caller.owner).await?)
    }

    /// The bytes of a component with a record, for reading from their start.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn open(
        &self,
        component: ComponentDigest,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        self.0.components.open_component(component).await
    }

    /// Makes the owner's `name` refer to uploaded bytes, which are checked and compiled first.
    /// Endpoints that run this image run the new component from their next job on.
    ///
    /// Until the component is compiled, the call ends with its caller and has changed nothing; from
    /// then on it is completed.
    ///
    /// # Errors
    /// [`ControlError::Component`], and those of every change.
    pub async fn upload(
        &self,
        caller: &Arc<ApiKey>,
        name: ImageName,
        staged: Box<dyn Staged>,
    ) -> Result<(Image, Component), ControlError> {
        self.0.check_key(caller, &self.0.view())?;
        self.name(caller, name, NamedComponent::Uploaded(&*staged), None, || ()).await
    }

    /// Like [`upload`](Self::upload), for a component that a manifest names. `on_named` runs once
    /// the name refers to the component, even if the caller has stopped waiting; it is dropped if
    /// the push has failed. Uploaded bytes can be pushed again then.
    ///
    /// # Errors
    /// [`ControlError::ComponentDeleted`] when a known component is not stored any more, and those
    /// of [`upload`](Self::upload).
    pub async fn push(
        &self,
        caller: &Arc<ApiKey>,
        name: ImageName,
        component: NamedComponent<'_>,
        manifest: PushedManifest,
        on_named: impl FnOnce() + Send + 'static,
    ) -> Result<(), ControlError> {
        self.name(caller, name, component, Some(manifest), on_named).await.map(drop)
    }

    async fn name(
        &self,
        caller: &Arc<ApiKey>,
        name: ImageName,
        component: NamedComponent<'_>,
        manifest: Option<PushedManifest>,
        on_named: impl FnOnce() + Send + 'static,
    ) -> Result<(Image, Component), ControlError> {
        let (digest, added) = match component {
            NamedComponent::Uploaded(staged) => {
                let added = staged.add(&caller.owner).await?;
                (added.component.digest, Some(added))
            }
            NamedComponent::Known(digest) => (digest, None),
        };
        let ImageName { name, tag } = name;
        let (owner, updated_at) = (caller.owner.clone(), self.0.now());
        let image = Image { name, tag, digest, owner, updated_at, manifest };
        let (this, caller) = (self.clone(), caller.clone());
        complete(async move {
            let named = this.put(&caller, image, added).await?;
            on_named();
            Ok(named)
        })
        .await?
    }

    async fn put(
        &self,
        caller: &ApiKey,
        image: Image,
        added: Option<AddedComponent>,
    ) -> Result<(Image, Component), ControlError> {
        let owner = &caller.owner;
        let put = |view: &View| {
            let stored = view.components.get(&image.digest).map(|stored| &**stored);
            let known = || stored.filter(|stored| stored.owners.contains(owner)).cloned();
            let added = added.as_ref().map(|added| added.component.clone());
            let component = added.or_else(known).ok_or(ControlError::ComponentDeleted)?;
            let component = component.owned_by(owner, stored);
            let entries =
                [CatalogEntry::Component(component.clone()), CatalogEntry::Image(image.clone())];
            Ok((entries.map(CatalogChange::Put).into(), component))
        };
        let put = self.0.change(caller, put).await;
        if let Some(added) = added {
            self.0.release(added).await;
        }
        let component = put?;
        for endpoint in self.0.view().users_of([&image]) {
            self.0.refresh(&endpoint.id);
        }
        self.0.remove_unused_components().await;
        Ok((image, component))
    }

    /// Removes a name.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; [`ControlError::Conflict`] when endpoints run its component; and
    /// those of every change.
    pub async fn remove(&self, caller: &Arc<ApiKey>, name: ImageName) -> Result<(), ControlError> {
        let reference = name.reference();
        let (owner, wanted) = (caller.owner.clone(), reference.clone());
        let select = move |view: &View| view.image(&owner, &wanted).into_iter().cloned().collect();
        match self.remove_selected(caller, reference, select).await? {
            true => Ok(()),
            false => Err(not_found(&name)),
        }
    }

    /// Removes those of these names that still refer to the same component: all of them in one
    /// change, or none. Returns whether there were any. `label` names them in a refusal.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] when endpoints run the component of one of them, and those of
    /// every change.
    pub async fn remove_all(
        &self,
        caller: &Arc<ApiKey>,
        label: String,
        images: Vec<Arc<Image>>,
    ) -> Result<bool, ControlError> {
        // A tag that has been moved meanwhile is not the one that was meant.
        let select = move |view: &View| {
            let is_there = |image: &Arc<Image>| view.images.get(&image.key()) == Some(image);
            images.into_iter().filter(is_there).collect()
        };
        self.remove_selected(caller, label, select).await
    }

    async fn remove_selected(
        &self,
        caller: &Arc<ApiKey>,
        label: String,
        select: impl FnOnce(&View) -> Vec<Arc<Image>> + Send + 'static,
    ) -> Result<bool, ControlError> {
        let (this, caller) = (self.clone(), caller.clone());
        complete(async move {
            let remove = |view: &View| {
                let images = select(view);
                let users = view.users_of(images.iter().map(|image| &**image));
                if !users.is_empty() {
                    return Err(in_use(&label, &users, &caller.owner));
                }
                let removed = images.iter().map(|image| CatalogKey::Image(image.key()));
                Ok((removed.map(CatalogChange::Delete).collect(), !images.is_empty()))
            };
            let is_removed = this.0.change(&caller, remove).await?;
            if is_removed {
                this.0.remove_unused_components().await;
            }
            Ok(is_removed)
        })
        .await?
    }
}

/// An owner's images at one moment. Making it costs nothing; the images are looked through by
/// [`iter`](Self::iter).
#[derive(Debug)]
pub struct NamedImages {
    view: Arc<View>,
    owner: OwnerId,
    name: Option<String>,
}

impl NamedImages {
    /// The images, each with its component: in the order of their names and tags.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Image>, &Component)> {
        let Self { view, owner, name } = self;
        let with_name = name.as_deref().map(|name| view.images_named(owner, name));
        let all = name.is_none().then(|| view.images.values());
        let all = all.into_iter().flatten().filter(move |image| image.owner == *owner);
        let images = with_name.into_iter().flatten().chain(all);
        images.filter_map(move |image| Some((image, &**view.components.get(&image.digest)?)))
    }
}

/// The refusal of a deletion. It names the first endpoints of the caller, and no other owner's.
fn in_use(label: &str, users: &[&Arc<Endpoint>], owner: &OwnerId) -> ControlError {
    let mine = users.iter().filter(|endpoint| endpoint.owner == *owner);
    let mut names: Vec<_> = mine.map(|endpoint| format!("`{}`", endpoint.id)).collect();
    names.sort_unstable();
    let others = (names.len() < users.len()).then(|| "another owner's".to_owned());
    let more = names.len().saturating_sub(NAMED_USERS_MAX);
    names.truncate(NAMED_USERS_MAX);
    names.extend((more > 0).then(|| format!("{more} more")));
    names.extend(others);
    ControlError::conflict(format!(
        "handler `{label}` is in use by the endpoints {}; give their templates another image first",
        names.join(", ")
    ))
}

fn not_found(name: &ImageName) -> ControlError {
    ControlError::NotFound { what: "handler", name: name.reference() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_a_name_and_a_tag() {
        let pair = |name: &str, tag: &str| Some((name.to_owned(), tag.to_owned()));
        let cases = [
            ("echo", pair("echo", "latest")),
            ("echo:v1.2", pair("echo", "v1.2")),
            ("", None),
            (":x", None),
            ("a:", None),
            ("a:b:c", None),
            ("a/b", None),
            ("..", pair("..", "latest")),
        ];
        for (text, expected) in cases {
            let read = ImageName::parse(text).ok().map(|image| (image.name, image.tag));
            assert_eq!(read, expected, "{text}");
        }
    }
}
