//! The edge of the host: TLS, the bounds of connections, backups, and the key of stored secrets,
//! through the real binary.

#![cfg(test)]

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
