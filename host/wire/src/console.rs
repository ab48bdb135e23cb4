//! The login of the web console.

use serde::{Deserialize, Serialize};

/// A link that begins one session of the console.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleLink {
    /// Its secret part.
    pub link: String,
    /// When it ends, used or not.
    pub expires_at: String,
}

impl std::fmt::Debug for ConsoleLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleLink").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}
