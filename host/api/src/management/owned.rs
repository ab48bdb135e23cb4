//! Lookup of an owner's objects by id: they are found for the owner's keys and for admin keys. For
//! any other key they do not exist: the lookup, the status code and the sentence are the same as
//! for an unknown id.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use gristmill_core::catalog::View;
use gristmill_core::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, InvalidId, OwnerId, RegistryAuthId, TemplateId, VolumeId};
use gristmill_core::key::ApiKey;
use gristmill_core::registry_auth::RegistryAuth;
use gristmill_core::template::Template;
use gristmill_core::volume::Volume;

use crate::error::ApiError;

/// An object of the catalog that has an id and an owner.
pub(super) trait Owned: Sized {
    type Id: FromStr<Err = InvalidId> + Display;

    /// Its name in error messages.
    const WHAT: &'static str;

    fn find<'v>(view: &'v View, id: &Self::Id) -> Option<&'v Self>;

    fn owner(&self) -> &OwnerId;
}

/// The object with this id, if the key may see it.
///
/// # Errors
/// 400 when the text is not an id; 404 when there is no such object, or it belongs to another
/// owner.
pub(super) fn find_owned<'v, T: Owned>(
    view: &'v View,
    key: &ApiKey,
    id: &str,
) -> Result<&'v T, ApiError> {
    find(view, id, |found: &&T| key.sees(found.owner()))
}

/// The owner's object with this id, for another object of the same owner.
///
/// # Errors
/// Errors of [`find_owned`].
pub(super) fn of_owner<'v, T: Owned>(
    view: &'v View,
    owner: &OwnerId,
    id: &str,
) -> Result<&'v T, ApiError> {
    find(view, id, |found: &&T| found.owner() == owner)
}

fn find<'v, T: Owned>(
    view: &'v View,
    id: &str,
    exists: impl FnOnce(&&'v T) -> bool,
) -> Result<&'v T, ApiError> {
    let id = read_id(id)?;
    T::find(view, &id).filter(exists).ok_or_else(|| missing::<T>(&id))
}

/// Parses an id.
///
/// # Errors
/// 400 when the text is not an id.
pub(super) fn read_id<I: FromStr<Err = InvalidId>>(text: &str) -> Result<I, ApiError> {
    text.parse().map_err(|error: InvalidId| ApiError::bad_request(error.to_string()))
}

/// The error for an id that the caller does not have.
pub(super) fn missing<T: Owned>(id: &T::Id) -> ApiError {
    ApiError::not_found(format!("{} `{id}` not found", T::WHAT))
}

/// A random id for an object that was created without one: 16 hexadecimal digits.
pub(super) fn random_id<I: FromStr<Err: Debug>>() -> I {
    let text = format!("{:016x}", rand::random::<u64>());
    text.parse().expect("hexadecimal digits are an id")
}

impl Owned for Endpoint {
    type Id = EndpointId;

    const WHAT: &'static str = "endpoint";

    fn find<'v>(view: &'v View, id: &EndpointId) -> Option<&'v Self> {
        view.deployments.get(id).map(|deployment| &*deployment.endpoint)
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Owned for Template {
    type Id = TemplateId;

    const WHAT: &'static str = "template";

    fn find<'v>(view: &'v View, id: &TemplateId) -> Option<&'v Self> {
        view.templates.get(id).map(|template| &**template)
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Owned for Volume {
    type Id = VolumeId;

    const WHAT: &'static str = "network volume";

    fn find<'v>(view: &'v View, id: &VolumeId) -> Option<&'v Self> {
        view.volumes.get(id).map(|volume| &**volume)
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Owned for RegistryAuth {
    type Id = RegistryAuthId;

    const WHAT: &'static str = "registry credentials";

    fn find<'v>(view: &'v View, id: &RegistryAuthId) -> Option<&'v Self> {
        view.registry_auths.get(id).map(|auth| &**auth)
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}
