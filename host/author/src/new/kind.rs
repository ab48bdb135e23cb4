//! The kinds of new projects.

use clap::ValueEnum;

/// What a new handler answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum NewKind {
    /// Jobs of a queue.
    Job,
    /// HTTP requests: with wstd in Rust, Hono in TypeScript, and WSGI, such as Bottle, in Python.
    Http,
}
