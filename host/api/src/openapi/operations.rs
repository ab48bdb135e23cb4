//! The operations of a path, and their names.

use utoipa::openapi::path::{Operation, PathItem};

/// Prefix of the operations' names under `/sdk/v2`.
pub(super) const SDK: &str = "Sdk";

/// Suffix of the names of changes by POST.
pub(super) const BY_POST: &str = "ByPost";

/// The methods of a path.
pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

pub(super) fn rename(operation: &mut Operation, name: impl FnOnce(&str) -> String) {
    operation.operation_id = operation.operation_id.as_deref().map(name);
}
