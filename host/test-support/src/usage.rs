//! Queries for usage.

use gristmill_core::billing::usage::{Hour, UsageFilter, UsageQuery};

/// The first `rows_max` rows of all hours.
pub fn usage_of_all_hours(filter: UsageFilter, rows_max: usize) -> UsageQuery {
    UsageQuery { hours: Hour::default()..Hour(u32::MAX), filter, after: None, rows_max }
}
