//! The edge of the host: TLS, the bounds of connections, backups, and the key of stored secrets, through the real binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod authority;
mod backup;
mod connections;
mod data_dir;
mod early_answers;
mod early_answers_http2;
mod half_close;
mod heads;
mod http2;
mod rotation;
mod tls;
mod unauthenticated;
