//! Names of components: adding, moving and removing a name, for the management API and for pushes.
//! A component without any name is deleted, with its record and files.

use std::sync::Arc;

use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, Component, Image, View};
use gristmill_core::digest::ComponentDigest;
use gristmill_core::endpoint::Endpoint;
use gristmill_core::id::OwnerId;
use gristmill_core::image::PushedManifest;
use gristmill_core::key::ApiKey;
use gristmill_core::limits::NAME_BYTES_MAX;
use gristmill_core::runtime::AddedComponent;
use tracing::{error, warn};

use crate::error::ApiError;
use crate::state::ApiState;

/// Most endpoints that the refusal of a deletion names.
const NAMED_USERS_MAX: usize = 20;

/// `name:tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageName {
    pub(crate) name: String,
    pub(crate) tag: String,
}

impl ImageName {
    /// Parses `name` or `name:tag`; without a tag it is `latest`.
    ///
    /// # Errors
    /// 400 when the text is not such a name.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let (name, tag) = text.split_once(':').unwrap_or((text, "latest"));
        if is_part(name) && is_part(tag) {
            return Ok(Self { name: name.to_owned(), tag: tag.to_owned() });
        }
        Err(ApiError::bad_request(format!(
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
pub(crate) fn is_part(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The component for a name.
pub(crate) enum Named {
    /// A component that has just been uploaded.
    Added(AddedComponent),
    /// A stored component, unless it was deleted meanwhile.
    Known(ComponentDigest),
}

/// Makes the owner's `name` refer to a component. Endpoints that run this image run the new
/// component from their next job on. To be run as a whole, by
/// [`complete`](crate::complete::complete).
///
/// # Errors
/// When a known component is not stored any more.
pub(crate) async fn tag(
    state: &ApiState,
    caller: &ApiKey,
    name: ImageName,
    named: Named,
    manifest: Option<PushedManifest>,
) -> Result<(Image, Component), ApiError> {
    // Kept until the record is in the catalog, or is refused: then the files are removed.
    let (digest, added) = match named {
        Named::Added(added) => (added.component.digest, Some(added)),
        Named::Known(digest) => (digest, None),
    };
    let owner = &caller.owner;
    let ImageName { name, tag } = name;
    let updated_at = state.jobs.now();
    let image = Image { name, tag, digest, owner: owner.clone(), updated_at, manifest };
    let named = state
        .change(caller, |view| {
            let stored = view.components.get(&digest).map(|stored| &**stored);
            let known = || stored.filter(|stored| stored.owners.contains(owner)).cloned();
            let added = added.as_ref().map(|added| added.component.clone());
            let component = added.or_else(known).ok_or_else(|| {
                ApiError::not_found("the component was deleted meanwhile; push it again")
            })?;
            let component = component.owned_by(owner, stored);
            let entries =
                [CatalogEntry::Component(component.clone()), CatalogEntry::Image(image.clone())];
            Ok::<_, ApiError>((entries.map(CatalogChange::Put).into(), (image, component)))
        })
        .await;
    drop(added);
    let (image, component) = named?;
    for endpoint in state.catalog.view().users_of([&image]) {
        state.workers.refresh(&endpoint.id);
    }
    remove_unused_components(state).await;
    Ok((image, component))
}

/// Removes a name.
///
/// # Errors
/// 404 when the owner has no such name; 400 when endpoints run its component.
pub(crate) async fn untag(
    state: &ApiState,
    caller: &ApiKey,
    name: &ImageName,
) -> Result<(), ApiError> {
    let reference = name.reference();
    untag_all(state, caller, &reference, |view| {
        view.image(&caller.owner, &reference).into_iter().cloned().collect()
    })
    .await?
    .ok_or_else(|| not_found(name))
}

/// Takes away the names that `select` finds, which are the caller's: all of them in one change, or none.
/// `None`: it finds none. `label` names them in a refusal.
///
/// # Errors
/// 400 when endpoints run the component of one of them.
pub(crate) async fn untag_all(
    state: &ApiState,
    caller: &ApiKey,
    label: &str,
    select: impl FnOnce(&View) -> Vec<Arc<Image>>,
) -> Result<Option<()>, ApiError> {
    let deleted = state
        .change(caller, |view| {
            let images = select(view);
            let users = view.users_of(images.iter().map(|image| &**image));
            if !users.is_empty() {
                return Err(in_use(label, &users, &caller.owner));
            }
            let deleted = images.iter().map(|image| CatalogKey::Image(image.key()));
            let found = (!images.is_empty()).then_some(());
            Ok((deleted.map(CatalogChange::Delete).collect(), found))
        })
        .await?;
    if deleted.is_some() {
        remove_unused_components(state).await;
    }
    Ok(deleted)
}

/// The refusal of a deletion. It names the first endpoints of the caller, and no other owner's.
fn in_use(label: &str, users: &[&Arc<Endpoint>], owner: &OwnerId) -> ApiError {
    let mine = users.iter().filter(|endpoint| endpoint.owner == *owner);
    let mut names: Vec<_> = mine.map(|endpoint| format!("`{}`", endpoint.id)).collect();
    names.sort_unstable();
    let others = (names.len() < users.len()).then(|| "another owner's".to_owned());
    let more = names.len().saturating_sub(NAMED_USERS_MAX);
    names.truncate(NAMED_USERS_MAX);
    names.extend((more > 0).then(|| format!("{more} more")));
    names.extend(others);
    ApiError::conflict(format!(
        "handler `{label}` is in use by the endpoints {}; give their templates another image first",
        names.join(", ")
    ))
}

/// The answer for a name that the owner does not have.
pub(crate) fn not_found(name: &ImageName) -> ApiError {
    ApiError::not_found(format!("handler `{}` not found", name.reference()))
}

/// Deletes unused components. A component that still runs is deleted by a later call of this, or by
/// the next start.
pub(crate) async fn remove_unused_components(state: &ApiState) {
    // A backup in progress must still read the files that it names.
    let Ok(_turn) = state.backup_turn.try_acquire() else { return };
    let unused = match state.catalog.remove_unused_components().await {
        Ok(unused) => unused,
        // The preceding change was written; the deletion can wait.
        Err(error) => return warn!("unused components are not removed yet: {error}"),
    };
    if let Err(error) = state.components.remove_components(unused).await {
        error!("cannot remove the files of components that are not used: {error}");
    }
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
