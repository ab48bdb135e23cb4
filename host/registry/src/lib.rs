//! Fetches the images of handlers from OCI registries.
//!
//! A registry is a foreign server, and its answers may name further servers: a token service, or
//! the target of a redirect. Each URL is therefore checked before the host connects to it, as for
//! webhooks ([`RegistryHosts`]), and credentials are sent only to the registry and to its token
//! service. For this reason no client library is used: those follow redirects and challenges by
//! themselves.
//!
//! **Bounds.** [`FETCHES_MAX`](fetch_turns::FETCHES_MAX) images at one time, three of them for one
//! owner. For one image: two minutes, 10 s for the head of an answer, 30 s between two pieces of
//! its body, a manifest of 64 KiB, a component of 64 MiB, and five redirects. Received bytes are
//! staged on disk, and refused if their digest is not the requested one.

mod allow;
mod challenge;
mod fetch;
mod fetch_turns;

pub use allow::{InvalidRegistryPattern, RegistryHosts, RegistryPattern};
pub use fetch::Fetcher;
