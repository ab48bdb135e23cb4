//! Fetches the images of handlers from OCI registries.
//!
//! A registry is somebody else's server, and every answer of it may name another: where to ask for
//! a token, where the bytes are. So each URL is looked at before it is connected to, like those of
//! webhooks ([`RegistryHosts`]), and credentials go to the registry and to the place where it has
//! its tokens made, nowhere else. That is why this is not a client library: those follow redirects
//! and challenges by themselves.
//!
//! **Bounds.** [`FETCHES_MAX`](fetch::FETCHES_MAX) images at one time, two minutes for one, a
//! manifest of 64 KiB, a component of 64 MiB, five redirects. What comes is staged on disk, and its
//! digests are those that were asked for, or it is not taken.

mod allow;
mod challenge;
mod fetch;

pub use allow::{InvalidRegistryPattern, RegistryHosts, RegistryPattern};
pub use fetch::Fetcher;
