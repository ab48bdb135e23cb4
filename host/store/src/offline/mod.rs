//! Data directories that no host has open: reading them without a change ([`inspect`]), listing
//! damage ([`check`]), copying what is intact ([`repair`]), and moving everything into a database
//! ([`import`]).

mod catalog_rows;
pub(crate) mod check;
pub(crate) mod import;
pub(crate) mod inspect;
mod parts;
mod placeholders;
pub(crate) mod repair;
mod table_rows;

use rusqlite::types::Type;

use crate::state::job::Job;
use crate::state::owners::Owners;
use crate::tables::{jobs, sql};

/// The job of a row of [`SELECT_JOBS`](jobs::SELECT_JOBS), which a start would read the same way.
pub(crate) fn job_of_row(row: &rusqlite::Row<'_>, owners: &mut Owners) -> rusqlite::Result<Job> {
    let job = Job::of_row(&jobs::read(row)?, owners);
    job.map_err(|reason| sql::invalid(0, Type::Null, reason))
}
