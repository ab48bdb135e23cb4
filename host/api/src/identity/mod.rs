//! Who calls: the key, the session, the address and the owner of a call.

pub(crate) mod access;
pub(crate) mod answer_owner;
pub(crate) mod auth;
pub(crate) mod call_origin;
pub(crate) mod caller;
pub(crate) mod session_cookie;
