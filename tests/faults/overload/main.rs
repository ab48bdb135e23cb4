//! More load than the host can handle: calls beyond its capacity, idle connections, clients that
//! read or write slowly, and many large bodies at once. The host must stay within its bounds,
//! refuse excess work in order, finish accepted work, and recover without a restart.
//!
//! Each scenario needs the machine for itself, so `cargo test` ignores them. `make faults` runs
//! them for seconds each and checks the answers and the memory: first the one that keeps all cores
//! busy, then the others side by side, which mostly wait. `make overload` runs them one after the
//! other at full size and checks the times as well.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "variables have the size of a run")]

mod capacity;
mod idle;
mod large_bodies;
mod memory;
mod pulse;
mod scale;
mod slow_readers;
mod slow_writers;
