//! More than the host can do: calls beyond its capacity, connections that do nothing, clients that
//! read or write slowly, and large bodies all at once. It must stay within its bounds, refuse in
//! order what it does not take, finish what it took, and be well again without a restart.
//!
//! `make test` runs each scenario for seconds; `make overload` at full size.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod capacity;
mod idle;
mod large_bodies;
mod memory;
mod pulse;
mod scale;
mod slow_readers;
mod slow_writers;
