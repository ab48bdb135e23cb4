//! The callers of routes. A route names the permission that it needs in the type of an argument:
//! [`Caller<Manage>`](Caller) on the management API, [`Admitted<Submit>`](Admitted) on the queue
//! API, [`RegistryCaller`] on the registry, [`KeyHolder`] and [`Visitor`] at the console's login,
//! and [`Anyone`], [`AnyReader`] or [`Probe`] where no key is needed.
//!
//! **Promise.** A route without such an argument reaches nothing: the state of the router,
//! [`Guarded`], shows its content to this module alone, and only these arguments contain it. So a
//! route that forgets its check does not compile as soon as it uses the state. Only the routes of
//! [`Api::private`](crate::Api::private) have the state itself.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use bytes::Bytes;
use gristmill_control::{SessionId, Sessions};
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::id::KeyId;

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::admission::Call;
use crate::identity::auth::{self, Form, Identity, KeyCheck};
use crate::identity::session_cookie;
use crate::limits::rate_limit::ConcurrencyPermit;
use crate::request::known_query::KnownQuery;
use crate::state::ApiState;

/// The state of the router. Its content reaches a route only as a part of a checked caller.
#[derive(Debug, Clone)]
pub(crate) struct Guarded(ApiState);

impl Guarded {
    pub(crate) fn new(state: ApiState) -> Self {
        Self(state)
    }
}

/// Most bytes of the body of a login.
const LOGIN_BYTES_MAX: usize = 4 << 10;

/// A permission that a route needs.
pub(crate) trait Permission {
    /// The scope that the key must have.
    const SCOPE: Scope;

    /// Whether the route shows data of the whole host, which only the operator's keys may see.
    const IS_OPERATORS: bool = false;
}

/// Defines types without values that name permissions.
macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident: $scope:ident $(, $operators:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum $name {}

        impl Permission for $name {
            const SCOPE: Scope = Scope::$scope;
            $(const $operators: bool = true;)?
        }
    )*};
}

permissions! {
    /// Everything, including keys.
    Admin: Admin;
    /// Templates, endpoints, handlers, volumes and credentials of the key's owner.
    Manage: Manage;
    /// Counters of the whole host.
    ReadMetrics: Metrics, IS_OPERATORS;
    /// Submission and changes of jobs.
    Submit: Submit;
    /// Reading of jobs.
    Read: Read;
}

/// The caller of a route of the management API, whose key has the permission `P`. The call counts
/// as concurrent until this is dropped.
#[derive(Debug)]
pub(crate) struct Caller<P> {
    /// The services of the host.
    pub(crate) state: ApiState,
    /// The caller's key.
    pub(crate) key: Arc<ApiKey>,
    /// Its session of the console, if the key itself is not in the head.
    pub(crate) session: Option<SessionId>,
    _permit: ConcurrencyPermit,
    _permission: PhantomData<P>,
}

impl<P: Permission> FromRequestParts<Guarded> for Caller<P> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        let identity = auth::identify(parts, state, Form::Bearer)?;
        parts.extensions.insert(KeyCheck::new(state, &identity));
        let Identity { key, session } = identity;
        let permit = state.limiter.enter_management(&key)?;
        auth::require(&key, P::SCOPE, None)?;
        if P::IS_OPERATORS {
            auth::require_operator(&key)?;
        }
        KnownQuery::check(parts)?;
        let state = state.clone();
        Ok(Self { state, key, session, _permit: permit, _permission: PhantomData })
    }
}

/// The caller of a route of the registry, with the scope `manage`: the key is the password, with
/// any user name, or the token. The call counts for the limits of the management API until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct RegistryCaller {
    /// The services of the host.
    pub(crate) state: ApiState,
    /// The caller's key.
    pub(crate) key: Arc<ApiKey>,
    _permit: ConcurrencyPermit,
}

impl FromRequestParts<Guarded> for RegistryCaller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        let Identity { key, .. } = auth::identify(parts, state, Form::BasicOrBearer)?;
        let permit = state.limiter.enter_management(&key)?;
        auth::require(&key, Scope::Manage, None)?;
        Ok(Self { state: state.clone(), key, _permit: permit })
    }
}

/// A call that the [admission layer](crate::identity::admission) has admitted to a route of the
/// queue API, and whose key has the permission `P` on the endpoint.
#[derive(Debug)]
pub(crate) struct Admitted<P> {
    /// The services of the host.
    pub(crate) state: ApiState,
    /// The key, the endpoint and the job of the call.
    pub(crate) call: Call,
    _permission: PhantomData<P>,
}

impl<P: Permission> FromRequestParts<Guarded> for Admitted<P> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        let call = parts.extensions.remove::<Call>().ok_or_else(|| {
            ApiError::new(ErrorCode::Internal, "this route is not behind the admission layer")
        })?;
        // The layer has checked the scope of the operation that the call counts as. The scope of
        // the route is this one, even if the table of routes names another operation.
        if !call.scope.covers(P::SCOPE) {
            auth::require(&call.key, P::SCOPE, Some(&call.deployment.endpoint.id))?;
        }
        KnownQuery::check(parts)?;
        Ok(Self { state: state.clone(), call, _permission: PhantomData })
    }
}

/// A caller with a valid key in the head of the call, of any scope. The session of a key is not
/// enough, so that a session cannot begin the next one.
#[derive(Debug)]
pub(crate) struct KeyHolder {
    /// The sessions of the console.
    pub(crate) sessions: Sessions,
    /// The caller's key.
    pub(crate) key: Arc<ApiKey>,
}

impl FromRequestParts<Guarded> for KeyHolder {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        session_cookie::remove(&mut parts.headers);
        let Identity { key, .. } = auth::identify(parts, state, Form::Bearer)?;
        state.limiter.enter_management(&key)?;
        Ok(Self { sessions: state.control.sessions.clone(), key })
    }
}

/// A caller of the console's login: a page of this host, with or without a session. It is counted
/// as [`Anyone`] is, so that strangers on its address do not keep a session from its logout.
#[derive(Debug)]
pub(crate) struct Visitor(ApiState);

impl FromRequestParts<Guarded> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        if let Some(key) = auth::count_unauthenticated(parts, state)? {
            state.limiter.count_other(&key)?;
        }
        session_cookie::check_site(parts, false)?;
        Ok(Self(state.clone()))
    }
}

impl Visitor {
    /// The sessions of the console.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.control.sessions
    }

    /// The key that every call counts as, on a host that requires none.
    pub(crate) fn key_of_all(&self) -> Option<&Arc<ApiKey>> {
        self.0.control.keys.access().key_of_all()
    }

    /// The body of a login. It is short, and the memory of all of them is one share.
    ///
    /// # Errors
    /// Those of [`BodyReader::read`](crate::request::body::BodyReader::read).
    pub(crate) async fn read(&self, head: &Parts, body: Body) -> Result<Bytes, ApiError> {
        let logins = KeyId::new("logins").expect("letters are an id");
        Ok(self.0.bodies.read(&logins, head, body, LOGIN_BYTES_MAX).await?.bytes)
    }

    /// The valid key with this text, which the call has shown.
    ///
    /// # Errors
    /// 401; 429 when the owner of the key has too many connections, or calls too often.
    pub(crate) fn key_of_text(&self, head: &Parts, text: &str) -> Result<Arc<ApiKey>, ApiError> {
        let wrong = || ApiError::new(ErrorCode::Unauthorized, auth::WRONG_KEY);
        self.admit(head, auth::key_of_text(text, &self.0).ok_or_else(wrong)?)
    }

    /// The key of this link, which is used up then.
    ///
    /// # Errors
    /// Those of [`key_of_text`](Self::key_of_text).
    pub(crate) fn key_of_link(&self, head: &Parts, link: &str) -> Result<Arc<ApiKey>, ApiError> {
        self.admit(head, self.sessions().redeem(link).ok_or_else(wrong_link)?)
    }

    /// The key of this link, which stays valid.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn key_of_unused_link(&self, link: &str) -> Result<Arc<ApiKey>, ApiError> {
        self.sessions().preview(link).ok_or_else(wrong_link)
    }

    fn admit(&self, head: &Parts, key: Arc<ApiKey>) -> Result<Arc<ApiKey>, ApiError> {
        auth::show_key(&head.extensions, &key)?;
        self.0.limiter.enter_management(&key)?;
        Ok(key)
    }
}

fn wrong_link() -> ApiError {
    let sentence =
        "this link was used, or is older than a minute; make another one with `gristmill console`";
    ApiError::new(ErrorCode::Unauthorized, sentence)
}

/// Any caller, with or without a key. A call without a valid key is counted for its address, and
/// one with a key for the [other calls](crate::limits::rate_limit::RateLimiter::count_other) of its
/// owner.
#[derive(Debug)]
pub(crate) struct Anyone;

impl FromRequestParts<Guarded> for Anyone {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        if let Some(key) = auth::count_unauthenticated(parts, state)? {
            state.limiter.count_other(&key)?;
        }
        KnownQuery::check(parts)?;
        Ok(Self)
    }
}

/// Any caller; with a valid key, also the services of the host, for what the key may see. A call
/// without a valid key is counted for its address, and one with a key for the limits of the
/// management API until this is dropped.
#[derive(Debug)]
pub(crate) struct AnyReader {
    /// The services and the key.
    pub(crate) reader: Option<(ApiState, Arc<ApiKey>)>,
    _permit: Option<ConcurrencyPermit>,
}

impl FromRequestParts<Guarded> for AnyReader {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        Guarded(state): &Guarded,
    ) -> Result<Self, ApiError> {
        let key = auth::count_unauthenticated(parts, state)?;
        let permit = key.as_ref().map(|key| state.limiter.enter_management(key)).transpose()?;
        KnownQuery::check(parts)?;
        Ok(Self { reader: key.map(|key| (state.clone(), key)), _permit: permit })
    }
}

/// A handler whose first argument is a caller with a permission.
pub(crate) trait HasCaller<Arguments> {
    /// The scope that it needs.
    const SCOPE: Scope;
}

macro_rules! has_caller {
    ($($caller:ident($($other:ident),*);)*) => {$(
        impl<F, Answer, P: Permission, $($other),*> HasCaller<($caller<P>, $($other,)*)> for F
        where
            F: Fn($caller<P>, $($other),*) -> Answer,
        {
            const SCOPE: Scope = P::SCOPE;
        }
    )*};
}

has_caller! {
    Caller();
    Caller(A);
    Caller(A, B);
    Caller(A, B, C);
    Caller(A, B, C, D);
    Admitted();
    Admitted(A);
    Admitted(A, B);
    Admitted(A, B, C);
}

/// The scope that a handler needs, which is in the type of its first argument.
pub(crate) fn scope_of<H: HasCaller<Arguments>, Arguments>(_: H) -> Scope {
    H::SCOPE
}

/// A call that checks whether the host accepts jobs. It is not counted.
#[derive(Debug)]
pub(crate) struct Probe {
    /// The answer.
    pub(crate) is_ready: bool,
}

impl FromRequestParts<Guarded> for Probe {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, Guarded(state): &Guarded) -> Result<Self, ApiError> {
        Ok(Self { is_ready: state.jobs.is_accepting() })
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::State;

    use super::*;

    /// Whether a type can be an argument of a route: the constant of the type itself if its bound
    /// is met, and else that of the trait.
    struct IsArgument<T>(PhantomData<T>);

    impl<T: FromRequestParts<Guarded>> IsArgument<T> {
        const ANSWER: bool = true;
    }

    trait Otherwise {
        const ANSWER: bool = false;
    }

    impl<T> Otherwise for IsArgument<T> {}

    #[test]
    fn a_route_cannot_have_the_services_without_a_check_of_its_caller() {
        const {
            assert!(!IsArgument::<State<ApiState>>::ANSWER);
            assert!(!IsArgument::<Caller<()>>::ANSWER, "`()` is no permission");
            assert!(!IsArgument::<Admitted<()>>::ANSWER);
            assert!(IsArgument::<State<Guarded>>::ANSWER, "which shows nothing");
            assert!(IsArgument::<Caller<Manage>>::ANSWER);
            assert!(IsArgument::<Admitted<Submit>>::ANSWER);
            assert!(IsArgument::<RegistryCaller>::ANSWER);
            assert!(IsArgument::<Anyone>::ANSWER);
            assert!(IsArgument::<Probe>::ANSWER);
        }
    }
}
