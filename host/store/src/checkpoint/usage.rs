//! From memory to the table of usage, and out of it when a row is too old.

use gristmill_core::billing::usage::{Hour, UsageQuery, UsageRow};

use crate::checkpoint::database::Database;
use crate::error::Failure;
use crate::tables::db::Sync;
use crate::tables::usage;

impl Database {
    /// Writes the visible usage to the table, and deletes rows that are too old.
    pub(crate) fn store_usage(&self) -> Result<(), Failure> {
        let rows = self.shared.index().meters_mut().unstored();
        if rows.is_empty() {
            return Ok(());
        }
        let too_old = Hour::of(self.shared.clock.now()).first_kept();
        let (expiry, elapsed) = (&self.bill_expiry, self.shared.clock.elapsed());
        // The journal has the same rows, so a crash may undo this commit.
        let has_expired = self.db.transaction(Sync::Later, |db| {
            rows.iter().try_for_each(|row| usage::put(db, &row.image()))?;
            let oldest = usage::oldest(db)?;
            let first_kept = expiry.first_kept(oldest, too_old, elapsed);
            usage::delete_before(db, first_kept)?;
            Ok(first_kept > oldest)
        })?;
        if has_expired {
            expiry.record(elapsed);
        }
        self.shared.index().meters_mut().stored(rows);
        Ok(())
    }

    /// The rows of a query.
    pub(crate) fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, Failure> {
        self.store_usage()?;
        let first_kept = Hour::of(self.shared.clock.now()).first_kept();
        Ok(usage::read(self.db.connection(), query, first_kept)?)
    }
}
