//! The contract in `wit/handler.wit` as Rust. `make bindings` writes both files with `wit-bindgen`, so that the first
//! build of a handler does not compile the generator and its 40 crates.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code"
)]

#[rustfmt::skip]
pub mod handler;
/// The world of a handler with an initialisation before its first job.
#[rustfmt::skip]
pub mod with_init;
