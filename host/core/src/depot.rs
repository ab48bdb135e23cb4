//! Components in a place that all hosts of a cluster share.
//!
//! A host with a data directory of its own needs none: its components are files there. Hosts that
//! share a database keep the components in it, and their data directories are only caches.

use std::fmt::Debug;
use std::io;

use async_trait::async_trait;
use bytes::Bytes;

use crate::deploy::digest::ComponentDigest;

/// Bytes of a part of a component. The last part of a component may be shorter.
pub const PART_BYTES: usize = 1 << 20;

/// The bytes of components, in parts that are numbered from 0.
///
/// A component's parts have the same bytes on each host, so an interrupted upload is completed by
/// the next one. A reader checks the digest of the whole.
#[async_trait]
pub trait Depot: Debug + Send + Sync {
    /// Stores a part, unless it is stored already. It is durable when this returns.
    ///
    /// # Errors
    /// When the depot cannot be reached, has no space, or belongs to another host now.
    async fn put_part(&self, component: ComponentDigest, part: u32, bytes: Bytes)
    -> io::Result<()>;

    /// A part; `None` when it is not stored, as behind the last part.
    ///
    /// # Errors
    /// When the depot cannot be reached.
    async fn part(&self, component: ComponentDigest, part: u32) -> io::Result<Option<Bytes>>;

    /// Removes all parts of a component.
    ///
    /// # Errors
    /// When the depot cannot be reached, or belongs to another host now.
    async fn remove(&self, component: ComponentDigest) -> io::Result<()>;

    /// The components with at least one part.
    ///
    /// # Errors
    /// When the depot cannot be reached.
    async fn components(&self) -> io::Result<Vec<ComponentDigest>>;
}
