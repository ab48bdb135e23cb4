//! The suites of the store in one program, so that they are linked once and run in
//! parallel.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that meets the unexpected has failed"
)]

mod archive;
mod attempts;
mod backup;
mod bounds;
mod contract;
mod damage;
mod deliveries;
mod durability;
mod history;
mod journal;
mod limits;
mod long_errors;
mod lost_records;
mod model;
mod nearly_full;
mod neighbours;
mod postgres;
mod salvage;
mod search;
mod submissions;
mod support;
mod upgrade;
