//! The usage of attempts, and its price.

pub mod price;
pub mod usage;
