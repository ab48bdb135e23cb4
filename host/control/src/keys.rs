//! API keys, of the operator and of other owners.

use std::sync::Arc;

use gristmill_core::access::key::{ApiKey, KeyText, NewKey, Scope};
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::id::{KeyId, OwnerId};
use gristmill_core::limits::{KEY_ENDPOINTS_MAX, KEY_LIFETIME_S};
use gristmill_core::time::Timestamp;
use gristmill_wire::management as wire;
use gristmill_wire::settings::{check_count, check_name, number};

use crate::access::Access;
use crate::deployed::Deployed;
use crate::error::ControlError;

/// How long a key that has expired is listed at least.
const EXPIRED_KEPT_MS: u64 = 30 * 86_400_000;

/// Most keys that one change removes, since all other changes wait for it.
const EXPIRED_REMOVED_MAX: usize = 1_000;

/// The service for API keys.
#[derive(Debug, Clone)]
pub struct Keys(Arc<Deployed>);

impl Keys {
    pub(crate) fn new(deployed: Arc<Deployed>) -> Self {
        Self(deployed)
    }

    /// Whether the host requires keys.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// The valid key with this id and secret. In memory, without a wait.
    pub fn accepted(&self, id: &KeyId, secret: &str) -> Option<Arc<ApiKey>> {
        let key = self.0.view().keys.get(id).cloned()?;
        key.accepts(secret, self.0.now()).then_some(key)
    }

    /// Refuses a key that was revoked, or has expired, since its call began.
    ///
    /// # Errors
    /// [`ControlError::KeyEnded`].
    pub fn check(&self, key: &ApiKey) -> Result<(), ControlError> {
        self.0.check_key(key, &self.0.view())
    }

    /// Whether this key exists and has not expired; true on a host that requires no keys.
    pub fn is_valid(&self, id: &KeyId) -> bool {
        let key = self.0.view().keys.get(id).cloned();
        self.access().key_of_all().is_some() || key.is_some_and(|key| !key.is_expired(self.0.now()))
    }

    /// All keys of all owners, in no particular order.
    pub fn list(&self) -> Vec<Arc<ApiKey>> {
        self.0.view().keys.values().cloned().collect()
    }

    /// A new key, and its text, which is stored nowhere. Removes keys of the same owner that
    /// expired more than 30 days ago, so that they do not count for the owner's bound for ever.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] for properties that no key may have, and those of every change.
    pub async fn create(
        &self,
        caller: &ApiKey,
        request: wire::NewKey,
    ) -> Result<(ApiKey, KeyText), ControlError> {
        check_name("name", &request.name)?;
        if request.scopes.is_empty() {
            return Err(ControlError::invalid(
                "`scopes` must have at least one of admin, manage, submit, read, metrics",
            ));
        }
        check_count("scopes", request.scopes.len(), Scope::ALL.len())?;
        let endpoints = request.endpoints.as_ref().map_or(0, Vec::len);
        check_count("endpoints", endpoints, KEY_ENDPOINTS_MAX)?;
        let owner = request.owner.unwrap_or_else(|| caller.owner.clone());
        let is_operators = |scope: &&Scope| matches!(scope, Scope::Admin | Scope::Metrics);
        if let Some(scope) = request.scopes.iter().find(is_operators)
            && !owner.is_operator()
        {
            return Err(ControlError::invalid(format!(
                "`scopes`: `{}` is for keys of the operator, `{}`; a key of `{owner}` may have manage, submit and read",
                scope.as_str(),
                OwnerId::OPERATOR
            )));
        }
        let now = self.0.now();
        let expires_at = match request.expires_in_seconds {
            Some(seconds) => {
                let seconds: u64 = number("expiresInSeconds", seconds, KEY_LIFETIME_S)?;
                Some(now.plus_millis(seconds * 1_000))
            }
            None => None,
        };
        let new = NewKey {
            name: request.name,
            owner,
            scopes: request.scopes,
            endpoints: request.endpoints,
            expires_at,
        };
        let (key, text) = ApiKey::generate(new, now);
        let put = |view: &View| {
            let mut changes = removals_of_expired(view, &key.owner, now);
            changes.push(CatalogChange::Put(CatalogEntry::Key(key.clone())));
            Ok((changes, ()))
        };
        self.0.change(caller, put).await?;
        Ok((key, text))
    }

    /// Revokes a key: from now on it is refused.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] for the last admin key that does not expire: without it no new
    /// keys could be created.
    pub async fn revoke(&self, caller: &ApiKey, id: &str) -> Result<(), ControlError> {
        let revoke = |view: &View| {
            let key = KeyId::new(id).ok().and_then(|id| view.keys.get(&id));
            let missing = || ControlError::NotFound { what: "key", name: id.to_owned() };
            let key = key.ok_or_else(missing)?;
            check_replaced(view, key, self.0.now())?;
            Ok((vec![CatalogChange::Delete(CatalogKey::Key(key.id.clone()))], ()))
        };
        self.0.change(caller, revoke).await
    }
}

/// The removals of an owner's keys that expired long ago.
fn removals_of_expired(view: &View, owner: &OwnerId, now: Timestamp) -> Vec<CatalogChange> {
    let is_old = |key: &&Arc<ApiKey>| {
        let ended = key.expires_at.map(|at| at.plus_millis(EXPIRED_KEPT_MS));
        key.owner == *owner && ended.is_some_and(|ended| ended < now)
    };
    let old = view.keys.values().filter(is_old).take(EXPIRED_REMOVED_MAX);
    old.map(|key| CatalogChange::Delete(CatalogKey::Key(key.id.clone()))).collect()
}

/// Refuses to revoke an admin key unless another admin key remains; if the key does not expire, the
/// other key must not expire either.
fn check_replaced(view: &View, key: &ApiKey, now: Timestamp) -> Result<(), ControlError> {
    let makes_keys = |key: &ApiKey| key.allows(Scope::Admin, None) && !key.is_expired(now);
    let lasts = |other: &ApiKey| other.expires_at.is_none() || key.expires_at.is_some();
    let mut others = view.keys.values().filter(|other| other.id != key.id);
    if !makes_keys(key) || others.any(|other| makes_keys(other) && lasts(other)) {
        return Ok(());
    }
    let missing = match key.expires_at {
        None => "no other admin key without an expiry",
        Some(_) => "no other admin key",
    };
    Err(ControlError::conflict(format!(
        "key `{}` cannot be revoked: there is {missing}, so no new keys could be created; create \
         one first, with `gristmill keys create --scope admin` or `POST /v1/keys`",
        key.id
    )))
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::EndpointId;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn key(scope: Scope, endpoints: Option<&str>, expires_at: Option<u64>) -> ApiKey {
        let endpoints = endpoints.map(|id| vec![EndpointId::new(id).unwrap()]);
        let expires_at = expires_at.map(Timestamp::from_millis);
        let owner = OwnerId::operator();
        let new = NewKey { name: String::new(), owner, scopes: vec![scope], endpoints, expires_at };
        ApiKey::generate(new, NOW).0
    }

    fn is_revoked(key: &ApiKey, others: &[ApiKey]) -> bool {
        let all = others.iter().chain([key]).cloned().map(|key| (key.id.clone(), Arc::new(key)));
        let mut view = View::default();
        view.keys = all.collect();
        check_replaced(&view, key, NOW).is_ok()
    }

    #[test]
    fn the_last_admin_key_is_not_revoked() {
        let lasting = || key(Scope::Admin, None, None);
        let expiring = || key(Scope::Admin, None, Some(2_000));
        let expired = || key(Scope::Admin, None, Some(1_000));
        let bound = || key(Scope::Admin, Some("e"), None);
        let other = || key(Scope::Manage, None, None);
        // (the key, the others, whether it is revoked)
        let cases = [
            (lasting(), vec![], false),
            (lasting(), vec![other(), expired(), bound()], false),
            (lasting(), vec![expiring()], false),
            (lasting(), vec![lasting()], true),
            (expiring(), vec![], false),
            (expiring(), vec![expired()], false),
            (expiring(), vec![expiring()], true),
            (expiring(), vec![lasting()], true),
            (expired(), vec![], true),
            (bound(), vec![], true),
            (other(), vec![], true),
        ];
        for (number, (key, others, expected)) in cases.into_iter().enumerate() {
            assert_eq!(is_revoked(&key, &others), expected, "case {number}");
        }
    }
}
