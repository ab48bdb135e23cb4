//! The numbers of commits, by which a host notices that the database has lost some that it had
//! confirmed, as a failover to an asynchronous standby can do.
//!
//! Each thread that commits has a series of its own. The commits of two threads may end in another
//! order than that of their numbers, and the greatest number would then not show that a smaller one
//! is missing.
//!
//! **Bound.** Some 1,000 rows of the table `commit_log` for each series.

use std::sync::atomic::{AtomicI64, Ordering};

use gristmill_postgres::DatabaseError;

/// Commits after which the records of earlier ones are removed.
pub(crate) const PRUNE_EVERY: i64 = 1_000;

/// The commits of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Series {
    /// The batches.
    Jobs,
    /// The catalog, and actions on many jobs.
    Catalog,
    /// The parts of components.
    Components,
}

impl Series {
    pub(crate) const ALL: [Self; 3] = [Self::Jobs, Self::Catalog, Self::Components];

    /// The column `session` of its rows. No session has a negative number. Each begin of a session
    /// removes all rows.
    pub(crate) fn key(self, session: i64) -> i64 {
        match self {
            Self::Jobs => session,
            Self::Catalog => -2 * session,
            Self::Components => -2 * session - 1,
        }
    }
}

/// The number of the newest commit of each series; 0 before the first one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) jobs: i64,
    pub(crate) catalog: i64,
    pub(crate) components: i64,
}

impl Numbers {
    /// Compares these confirmed numbers with those that a server has. Commits may have been
    /// confirmed in between, so the confirmed numbers are read first.
    ///
    /// # Errors
    /// When a commit is missing.
    pub(crate) fn check(self, found: Self) -> Result<(), DatabaseError> {
        let pairs = [
            ("jobs", self.jobs, found.jobs),
            ("catalog", self.catalog, found.catalog),
            ("components", self.components, found.components),
        ];
        match pairs.into_iter().find(|(_, confirmed, last)| last < confirmed) {
            Some((of, confirmed, last)) => Err(lost_commits(of, confirmed, last)),
            None => Ok(()),
        }
    }
}

/// After a failover to a server that had not received the newest commits.
pub(crate) fn lost_commits(of: &str, confirmed: i64, last: i64) -> DatabaseError {
    DatabaseError::Refused(format!(
        "the database has lost commits that it had confirmed: commit {confirmed} of this host's {of} is missing, the \
         last one is {last}"
    ))
}

/// The numbers of the newest commits that the database has confirmed.
#[derive(Debug, Default)]
pub(crate) struct Confirmed {
    jobs: AtomicI64,
    catalog: AtomicI64,
    components: AtomicI64,
}

impl Confirmed {
    /// Records a commit.
    pub(crate) fn add(&self, series: Series, n: i64) {
        let newest = match series {
            Series::Jobs => &self.jobs,
            Series::Catalog => &self.catalog,
            Series::Components => &self.components,
        };
        newest.fetch_max(n, Ordering::Relaxed);
    }

    pub(crate) fn newest(&self) -> Numbers {
        let of = |newest: &AtomicI64| newest.load(Ordering::Relaxed);
        let Self { jobs, catalog, components } = self;
        Numbers { jobs: of(jobs), catalog: of(catalog), components: of(components) }
    }
}
