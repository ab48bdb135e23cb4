//! Components on the disk: uploads in progress, uploaded components, and their compiled files.

pub(crate) mod artifacts;
pub(crate) mod depot;
pub(crate) mod metadata;
pub(crate) mod records;
pub(crate) mod staging;
pub(crate) mod upload;
