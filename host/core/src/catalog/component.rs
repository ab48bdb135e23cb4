//! The record of an uploaded component: some KB for each, besides its files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::deploy::digest::ComponentDigest;
use crate::id::OwnerId;
use crate::time::Timestamp;
use gristmill_json_schema::SchemaText;

/// An uploaded component that was checked and compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// SHA-256 of the uploaded bytes.
    pub digest: ComponentDigest,
    /// Size of the uploaded bytes.
    pub bytes: u64,
    /// What it imports, as `namespace:package/interface@version`.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// When it was first uploaded.
    pub uploaded_at: Timestamp,
    /// Milliseconds that compiling took.
    pub compile_ms: u64,
    /// Each compiled file, by the key of the engine that it is for. A file with another digest is
    /// never loaded.
    pub artifacts: BTreeMap<String, ArtifactDigest>,
    /// Size of all its compiled files.
    pub compiled_bytes: u64,
    /// What it was made with, as it says itself.
    pub producers: Producers,
    /// The schema of its input, if it carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<SchemaText>,
    /// The owners who uploaded or fetched it, and still use it. Only they may name it by its
    /// digest.
    pub owners: BTreeSet<OwnerId>,
}

impl Component {
    /// The bytes of its files on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.compiled_bytes)
    }

    /// The record with the owners of the stored record and one more. Compiled files that were
    /// recorded since this record was made are kept.
    #[must_use]
    pub fn owned_by(mut self, owner: &OwnerId, stored: Option<&Self>) -> Self {
        self.owners = [owner.clone()].into();
        if let Some(stored) = stored {
            self.owners.extend(stored.owners.iter().cloned());
            for (engine, artifact) in &stored.artifacts {
                self.artifacts.entry(engine.clone()).or_insert_with(|| artifact.clone());
            }
            self.compiled_bytes = self.compiled_bytes.max(stored.compiled_bytes);
        }
        self
    }
}

/// BLAKE3 of a compiled file, in hexadecimal. Not SHA-256: 40 MB, a Python handler, take 7 ms
/// instead of 25, and the first job after a start waits for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactDigest(pub String);

/// What a component was made with, from its `producers` sections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producers {
    /// The languages that it was written in.
    pub languages: Vec<Producer>,
    /// Compilers, linkers and kits.
    pub tools: Vec<Producer>,
}

/// A language or a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// Such as `Rust`, `rustc`.
    pub name: String,
    /// As the tool writes it; may be empty.
    pub version: String,
}
