//! The records of the store in bytes: the encoding of a batch in a frame of the journal
//! ([`image`]), and the bytes of inputs, outputs ([`payload`]) and chunks ([`pages`]), which the
//! journal and the tables share.
//!
//! Plain data: nothing here knows the state in memory or SQL. Codes and layouts are on disk and
//! must not change.

pub(crate) mod archived;
pub(crate) mod decode;
pub(crate) mod image;
pub(crate) mod pages;
pub(crate) mod past;
pub(crate) mod payload;
pub(crate) mod trace;

use gristmill_core::job::state::JobStatus;

/// The number of an endpoint in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EndpointKey(pub(crate) u32);

/// A row of the catalog to write, or to remove when it has no body. The body contains secrets.
pub(crate) struct CatalogRow {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) body: Option<String>,
}

impl std::fmt::Debug for CatalogRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CatalogRow({} {})", self.kind, self.name)
    }
}

/// The codes are on disk and must not change.
pub(crate) fn status_code(status: Option<JobStatus>) -> u8 {
    match status {
        Some(JobStatus::InQueue) => 0,
        Some(JobStatus::InProgress) => 1,
        Some(JobStatus::Completed) => 2,
        Some(JobStatus::Failed) => 3,
        Some(JobStatus::Cancelled) => 4,
        Some(JobStatus::TimedOut) => 5,
        None => unreachable!("a removed job has no row"),
    }
}

pub(crate) fn status_from(code: u8) -> Option<JobStatus> {
    Some(match code {
        0 => JobStatus::InQueue,
        1 => JobStatus::InProgress,
        2 => JobStatus::Completed,
        3 => JobStatus::Failed,
        4 => JobStatus::Cancelled,
        5 => JobStatus::TimedOut,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_their_codes() {
        for status in JobStatus::ALL {
            assert_eq!(status_from(status_code(Some(status))), Some(status));
        }
        assert_eq!(status_from(6), None);
    }
}
