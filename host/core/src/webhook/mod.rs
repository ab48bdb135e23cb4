//! Webhooks: the outbox of their deliveries, and their signatures.

pub mod delivery;
pub mod signature;
