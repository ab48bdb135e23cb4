//! Calls of a host: repeated while they are refused for a reason that passes, interrupted by
//! signals, with the progress of uploads, and with advice when they fail.

mod advice;
mod interrupt;
pub(crate) mod repetition;
mod upload;

pub use advice::{describe, in_options};
pub use interrupt::{signalled, unless_signalled};
pub use repetition::until_accepted;
pub use upload::upload;
