//! Faults of the disk: the power fails, space runs out, a write or a sync fails.
//!
//! A preloaded library (`shim`) intercepts the file calls of a process. It records every change and
//! every sync, from which tests compute the possible contents of a disk after a loss of power
//! ([`simulated`]), or makes calls fail. The host itself is unchanged.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "variables have the size of a run")]

mod clock;
mod faults;
mod full;
mod ledger;
mod log;
mod power;
mod simulated;
mod upgrade;
mod workload;
