//! The rules by which owners, keys and endpoints share the host: calls, permits and disk space.
//!
//! All of them are pure logic; the host measures and enforces.

pub mod cores;
pub(crate) mod disk_accounts;
pub mod disk_share;
pub mod disk_space;
pub mod key_shares;
pub mod permits;
pub(crate) mod ranking;
pub mod shares;
pub mod tenancy;
pub mod turns;
