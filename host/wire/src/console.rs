//! The login of the web console.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::json_object::only_objects;

/// The body of a login: one of the two.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ConsoleLogin {
    /// The text of a key.
    pub key: Option<String>,
    /// The secret part of a [`ConsoleLink`].
    pub link: Option<String>,
}

only_objects!(ConsoleLogin);

/// The body of a question about a link.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ConsoleLinkQuestion {
    /// The secret part of a [`ConsoleLink`].
    pub link: String,
}

only_objects!(ConsoleLinkQuestion);

/// A link that begins one session of the console.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleLink {
    /// Its secret part.
    pub link: String,
    /// When it ends, used or not.
    pub expires_at: String,
}

impl fmt::Debug for ConsoleLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleLogin").finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsoleLinkQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleLinkQuestion").finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsoleLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleLink").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}
