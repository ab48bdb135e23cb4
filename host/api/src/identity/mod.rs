//! Who calls, and what they may do: the key and the session of a call, the owner of its answer, and
//! the checks before its route.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod answer_owner;
pub(crate) mod auth;
pub(crate) mod caller;
pub(crate) mod session_cookie;
