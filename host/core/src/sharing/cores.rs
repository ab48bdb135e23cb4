//! The cores of this machine.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

/// The cores that this process may use, at least one.
pub fn cores() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}
