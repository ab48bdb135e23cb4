//! Data directories that no host has open: reading them without a change ([`inspect`]), listing damage
//! ([`check`]), and copying what is intact ([`repair`]).

pub(crate) mod check;
pub(crate) mod inspect;
mod placeholders;
pub(crate) mod repair;
