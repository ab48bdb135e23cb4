//! The permissions of API keys.

use serde::{Deserialize, Serialize};

/// A permission of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything, including keys.
    Admin,
    /// Templates, endpoints and handlers of the key's owner, and everything that `metrics` permits.
    Manage,
    /// Submit, cancel, retry and purge jobs, and everything that `read` permits.
    Submit,
    /// Read jobs and health.
    Read,
    /// Read the counters of the host; for keys of the operator.
    Metrics,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 5] = [Self::Admin, Self::Manage, Self::Submit, Self::Read, Self::Metrics];

    /// The scope's name in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Manage => "manage",
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Metrics => "metrics",
        }
    }

    /// Whether a key with this scope may use an operation that needs `needed`.
    pub fn covers(self, needed: Self) -> bool {
        self == Self::Admin
            || self == needed
            || matches!((self, needed), (Self::Submit, Self::Read) | (Self::Manage, Self::Metrics))
    }
}
