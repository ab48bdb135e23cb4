//! Faults of the disk: the power fails, space runs out, a write or a sync fails.
//!
//! A preloaded library (`shim`) intercepts the file calls of a process. It records every change and
//! every sync, from which tests compute the possible contents of a disk after a loss of power
//! ([`simulated`]), or makes calls fail. The host itself is unchanged.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod clock;
mod faults;
mod full;
mod ledger;
mod log;
mod power;
mod simulated;
mod upgrade;
mod workload;
