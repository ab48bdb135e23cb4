//! The array of a page of a list, within the bound of all pages.

use gristmill_core::limits::PAGE_BYTES_MAX;
use serde::Serialize;

use crate::answer::error::{ApiError, ErrorCode};

/// The elements of a page, as JSON. They take [`PAGE_BYTES_MAX`] at most, or are one element.
#[derive(Debug, Default)]
pub(crate) struct Elements(Vec<u8>);

impl Elements {
    /// Adds a document. `false`: it has no room.
    ///
    /// # Errors
    /// 500 when it has no JSON form.
    pub(crate) fn add(&mut self, document: &impl Serialize) -> Result<bool, ApiError> {
        let end = self.0.len();
        if end > 0 {
            self.0.push(b',');
        }
        serde_json::to_writer(&mut self.0, document).map_err(|error| {
            ApiError::new(ErrorCode::Internal, format!("a document has no JSON form: {error}"))
        })?;
        let has_room = end == 0 || self.0.len() < PAGE_BYTES_MAX;
        if !has_room {
            self.0.truncate(end);
        }
        Ok(has_room)
    }

    /// The array.
    pub(crate) fn into_json(self) -> Vec<u8> {
        [&b"["[..], &self.0, b"]"].concat()
    }
}
