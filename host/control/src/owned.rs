//! Lookup of an owner's objects by id: they are found for the owner's keys and for admin keys. For
//! any other key they do not exist: the lookup and its refusal are the same as for an unknown id.

use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::View;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::deploy::registry_auth::RegistryAuth;
use gristmill_core::deploy::template::Template;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::id::{EndpointId, OwnerId, RegistryAuthId, ScheduleId, TemplateId, VolumeId};
use gristmill_core::schedule::record::Schedule;

use crate::error::ControlError;

/// A kind of object that has an id and an owner.
pub trait Owned: Sized + 'static {
    /// Its id.
    type Id: Display;

    /// Its name in messages.
    const WHAT: &'static str;

    /// The object with this id.
    fn find<'v>(view: &'v View, id: &Self::Id) -> Option<&'v Arc<Self>>;

    /// All objects of this kind.
    fn all(view: &View) -> impl Iterator<Item = &Arc<Self>>;

    /// Its owner.
    fn owner(&self) -> &OwnerId;
}

/// The refusal of a new object with a used id. Ids are unique on the host, so it is the same for
/// every owner's object.
pub(crate) fn taken<T: Owned>(id: &T::Id) -> ControlError {
    ControlError::conflict(format!(
        "{} `{id}` exists already: ids are unique on this host, and another owner may have this one; choose \
         another id (`gristmill deploy`: another `--name`)",
        T::WHAT
    ))
}

/// The object with this id, if the key may see it.
///
/// # Errors
/// [`ControlError::NotFound`] when there is no such object, or it belongs to another owner.
pub(crate) fn find_owned<'v, T: Owned>(
    view: &'v View,
    key: &ApiKey,
    id: &T::Id,
) -> Result<&'v Arc<T>, ControlError> {
    T::find(view, id).filter(|found| key.sees(found.owner())).ok_or_else(|| missing::<T>(id))
}

/// The owner's object with this id, for another object of the same owner.
///
/// # Errors
/// Those of [`find_owned`].
pub(crate) fn of_owner<'v, T: Owned>(
    view: &'v View,
    owner: &OwnerId,
    id: &T::Id,
) -> Result<&'v Arc<T>, ControlError> {
    T::find(view, id).filter(|found| found.owner() == owner).ok_or_else(|| missing::<T>(id))
}

/// The error for an id that the caller does not have.
pub(crate) fn missing<T: Owned>(id: &T::Id) -> ControlError {
    ControlError::NotFound { what: T::WHAT, name: id.to_string() }
}

/// A random id for an object that was created without one: 16 hexadecimal digits.
pub(crate) fn random_id<I: FromStr<Err: Debug>>() -> I {
    let text = format!("{:016x}", rand::random::<u64>());
    text.parse().expect("hexadecimal digits are an id")
}

/// The objects of one kind that a key sees at one moment. Making it costs nothing; the objects are
/// looked through by [`iter`](Self::iter).
#[derive(Debug)]
pub struct Listed<T> {
    view: Arc<View>,
    caller: Arc<ApiKey>,
    _kind: PhantomData<fn() -> T>,
}

impl<T: Owned> Listed<T> {
    pub(crate) fn new(view: Arc<View>, caller: &Arc<ApiKey>) -> Self {
        Self { view, caller: caller.clone(), _kind: PhantomData }
    }

    /// The objects, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        T::all(&self.view).filter(|object| self.caller.sees(object.owner()))
    }
}

impl Owned for Endpoint {
    type Id = EndpointId;

    const WHAT: &'static str = "endpoint";

    fn find<'v>(view: &'v View, id: &EndpointId) -> Option<&'v Arc<Self>> {
        view.deployments.get(id).map(|deployment| &deployment.endpoint)
    }

    fn all(view: &View) -> impl Iterator<Item = &Arc<Self>> {
        view.deployments.values().map(|deployment| &deployment.endpoint)
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

/// Implements [`Owned`] for the objects of a map of the view.
macro_rules! owned {
    ($($object:ty, $id:ty, $map:ident, $what:expr;)*) => {$(
        impl Owned for $object {
            type Id = $id;

            const WHAT: &'static str = $what;

            fn find<'v>(view: &'v View, id: &$id) -> Option<&'v Arc<Self>> {
                view.$map.get(id)
            }

            fn all(view: &View) -> impl Iterator<Item = &Arc<Self>> {
                view.$map.values()
            }

            fn owner(&self) -> &OwnerId {
                &self.owner
            }
        }
    )*};
}

owned! {
    Template, TemplateId, templates, "template";
    Volume, VolumeId, volumes, "network volume";
    RegistryAuth, RegistryAuthId, registry_auths, "registry credentials";
    Schedule, ScheduleId, schedules, "schedule";
}
