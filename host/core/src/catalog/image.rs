//! Names of components: `name:tag`, separate for each owner.

use serde::{Deserialize, Serialize};

use crate::deploy::digest::ComponentDigest;
use crate::deploy::image::PushedManifest;
use crate::id::OwnerId;
use crate::time::Timestamp;

/// A name for a component, such as `echo:latest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The name before the colon.
    pub name: String,
    /// The tag after it.
    pub tag: String,
    /// The component that it names now.
    pub digest: ComponentDigest,
    /// Who uploaded it.
    pub owner: OwnerId,
    /// When it was last moved to another component.
    pub updated_at: Timestamp,
    /// The manifest with which it was pushed; `None` when it was uploaded without one.
    pub manifest: Option<PushedManifest>,
}

impl Image {
    /// `name:tag`.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }

    /// What it is found by.
    pub fn key(&self) -> ImageKey {
        ImageKey { owner: self.owner.clone(), reference: self.reference() }
    }
}

/// What an image is found by: each owner has names of their own. In order, the tags of a name are
/// neighbours: `:` is in no name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageKey {
    /// Whose name it is.
    pub owner: OwnerId,
    /// `name:tag`.
    pub reference: String,
}

impl ImageKey {
    /// The key that an owner means by `name`, which stands for `name:latest`, or by `name:tag`.
    pub fn new(owner: &OwnerId, reference: &str) -> Self {
        let reference = match reference.contains(':') {
            true => reference.to_owned(),
            false => format!("{reference}:latest"),
        };
        Self { owner: owner.clone(), reference }
    }

    /// The name of the stored row. The operator's rows are named as all rows were when the operator
    /// was the only owner; no `name:tag` has a slash.
    pub(super) fn row_name(&self) -> String {
        match self.owner.is_operator() {
            true => self.reference.clone(),
            false => format!("{}/{}", self.owner, self.reference),
        }
    }
}
