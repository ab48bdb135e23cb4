//! Credentials for fetching images from registries.

use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::deploy::image::{RegistryHost, RemoteImage};
use gristmill_core::deploy::registry_auth::RegistryAuth;
use gristmill_core::id::{OwnerId, RegistryAuthId};
use gristmill_core::limits::REGISTRY_SECRET_BYTES_MAX;
use gristmill_wire::management::NewRegistryAuth;
use gristmill_wire::settings::check_name;

use crate::deployed::Deployed;
use crate::error::ControlError;
use crate::owned::{Listed, find_owned, random_id};

/// The service for credentials of registries.
#[derive(Debug, Clone)]
pub struct RegistryAuths(Arc<Deployed>);

impl RegistryAuths {
    pub(crate) fn new(deployed: Arc<Deployed>) -> Self {
        Self(deployed)
    }

    /// One set of credentials.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(
        &self,
        caller: &ApiKey,
        id: &RegistryAuthId,
    ) -> Result<Arc<RegistryAuth>, ControlError> {
        find_owned::<RegistryAuth>(&self.0.view(), caller, id).cloned()
    }

    /// The credentials that the caller sees.
    pub fn list(&self, caller: &Arc<ApiKey>) -> Listed<RegistryAuth> {
        Listed::new(self.0.view(), caller)
    }

    /// Stores credentials for the caller's owner.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] for values that no registry takes; [`ControlError::Conflict`] when
    /// the owner has credentials of this name; and those of every change.
    pub async fn create(
        &self,
        caller: &ApiKey,
        new: NewRegistryAuth,
    ) -> Result<RegistryAuth, ControlError> {
        let NewRegistryAuth { name, registry, username, password } = new;
        let registry = registry.as_deref().unwrap_or(RegistryHost::DEFAULT).parse();
        let registry: RegistryHost =
            registry.map_err(|error| ControlError::invalid(format!("`registry`: {error}")))?;
        check_name("name", &name)?;
        check_secret("username", &username)?;
        check_secret("password", &password)?;
        if username.contains(':') {
            return Err(ControlError::invalid(
                "`username` must not have a colon: HTTP ends it there",
            ));
        }
        let auth = RegistryAuth {
            id: random_id(),
            owner: caller.owner.clone(),
            name,
            registry,
            username,
            password,
            created_at: self.0.now(),
        };
        let create = |view: &View| {
            let mut all = view.registry_auths.values();
            if all.any(|other| other.owner == auth.owner && other.name == auth.name) {
                let sentence = format!("registry credentials named `{}` exist already", auth.name);
                return Err(ControlError::conflict(sentence));
            }
            Ok((vec![CatalogChange::Put(CatalogEntry::RegistryAuth(auth.clone()))], auth))
        };
        self.0.change(caller, create).await
    }

    /// Deletes credentials that no template names.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; [`ControlError::Conflict`] when a template names them; and those
    /// of every change.
    pub async fn delete(&self, caller: &ApiKey, id: &RegistryAuthId) -> Result<(), ControlError> {
        let delete = |view: &View| {
            let auth: &Arc<RegistryAuth> = find_owned(view, caller, id)?;
            let mut users = view.templates.values().filter(|template| {
                template.owner == auth.owner && template.registry_auth == id.as_str()
            });
            if let Some(user) = users.next() {
                let sentence =
                    format!("registry credentials `{id}` are in use by template `{}`", user.id);
                return Err(ControlError::conflict(sentence));
            }
            Ok((vec![CatalogChange::Delete(CatalogKey::RegistryAuth(id.clone()))], ()))
        };
        self.0.change(caller, delete).await
    }
}

/// The credentials with this id, for a template of this owner.
///
/// # Errors
/// [`ControlError::Invalid`] when there are none.
pub(crate) fn named_by_template<'v>(
    view: &'v View,
    owner: &OwnerId,
    id: &str,
) -> Result<&'v RegistryAuth, ControlError> {
    let found = RegistryAuthId::new(id).ok().and_then(|id| view.registry_auths.get(&id));
    found.map(|auth| &**auth).filter(|auth| auth.owner == *owner).ok_or_else(|| {
        ControlError::invalid(format!(
            "`containerRegistryAuthId`: registry credentials `{id}` not found"
        ))
    })
}

/// Refuses to send credentials to a registry that they are not bound to.
///
/// # Errors
/// [`ControlError::Invalid`], which names both registries.
pub(crate) fn check_registry(auth: &RegistryAuth, image: &RemoteImage) -> Result<(), ControlError> {
    if image.is_at(&auth.registry) {
        return Ok(());
    }
    Err(ControlError::invalid(format!(
        "`containerRegistryAuthId`: the credentials `{}` are for the registry `{}`, and the image is in `{}`",
        auth.id,
        auth.registry,
        image.registry()
    )))
}

fn check_secret(field: &str, text: &str) -> Result<(), ControlError> {
    if text.is_empty() || text.len() > REGISTRY_SECRET_BYTES_MAX || text.contains(char::is_control)
    {
        return Err(ControlError::invalid(format!(
            "`{field}` is required and has 1 to {REGISTRY_SECRET_BYTES_MAX} bytes without control characters"
        )));
    }
    Ok(())
}
