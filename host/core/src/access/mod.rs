//! API keys, and the key of the stored secrets.

pub mod key;
pub mod secrets;
