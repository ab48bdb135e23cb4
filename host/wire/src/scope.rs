//! The permissions of API keys.

use crate::words::words;

words! {
    /// A permission of a key.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Scope {
        /// Everything, including keys.
        Admin = "admin",
        /// Templates, endpoints and handlers of the key's owner, and everything that `metrics`
        /// permits.
        Manage = "manage",
        /// Submit, cancel, retry and purge jobs, and everything that `read` permits.
        Submit = "submit",
        /// Read jobs and health.
        Read = "read",
        /// Read the counters of the host; for keys of the operator.
        Metrics = "metrics",
    }
}

impl Scope {
    /// Whether a key with this scope may use an operation that needs `needed`.
    pub fn covers(self, needed: Self) -> bool {
        self == Self::Admin
            || self == needed
            || matches!((self, needed), (Self::Submit, Self::Read) | (Self::Manage, Self::Metrics))
    }
}
