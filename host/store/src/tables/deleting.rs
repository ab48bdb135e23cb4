//! Marks on disk for endpoints that are being deleted: the catalog does not have them any more, but
//! their jobs are still being removed.
//!
//! The mark of an endpoint is written in the transaction that deletes its record from the catalog.
//! So after a crash between the two steps of a deletion, the next endpoint of that name does not
//! get the jobs, and the next start removes the rest of them. **Cost:** one row for each deletion,
//! until its jobs are removed.

use std::collections::{BTreeMap, HashMap, HashSet};

use rusqlite::Connection;
use rusqlite::types::FromSql;

use crate::format::EndpointKey;
use crate::format::image::{BatchImage, StateImage};
use crate::tables::sql;

/// Marks endpoints.
pub(crate) fn mark(db: &Connection, endpoints: &[EndpointKey]) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO deleting (endpoint) VALUES (?1)";
    endpoints.iter().try_for_each(|key| db.prepare_cached(sql)?.execute([key.0]).map(|_| ()))
}

/// Removes the mark of an endpoint whose jobs are all removed.
pub(crate) fn unmark(db: &Connection, endpoint: u32) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM deleting WHERE endpoint = ?1")?.execute([endpoint]).map(|_| ())
}

/// The marked endpoints.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<Vec<EndpointKey>> {
    let mut statement = db.prepare("SELECT endpoint FROM deleting ORDER BY endpoint")?;
    statement.query_map((), |row| row.get(0).map(EndpointKey))?.collect()
}

/// The endpoints in the journal's frames, and the jobs that these frames add or remove: the tables
/// alone do not show them.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    /// `None`: all jobs of the endpoint are removed.
    names: BTreeMap<u32, Option<String>>,
    /// The endpoint of each job; `None`: it is removed.
    jobs: HashMap<u64, Option<u32>>,
}

impl Endpoints {
    /// Adds a frame, which must come after all others.
    pub(crate) fn add(&mut self, image: &BatchImage<'_>) {
        self.names
            .extend(image.endpoints.iter().map(|(key, name)| (*key, Some((*name).to_owned()))));
        self.names.extend(image.forgotten.iter().map(|key| (*key, None)));
        for job in &image.jobs {
            match job.state {
                StateImage::New { .. } => drop(self.jobs.insert(job.seq, Some(job.endpoint))),
                StateImage::Deleted { .. } => drop(self.jobs.insert(job.seq, None)),
                StateImage::Changed(_) => {}
            }
        }
    }

    /// Whether a frame adds or removes the endpoint.
    pub(crate) fn has(&self, endpoint: u32) -> bool {
        self.names.contains_key(&endpoint)
    }

    /// Names of endpoints with jobs and without a record in the catalog, with the number of their
    /// jobs. Endpoints that are being deleted are not among them. A store that is used without a
    /// catalog has none: so an empty catalog counts as none, unless `has_lost_records`.
    pub(crate) fn without_record(
        mut self,
        db: &Connection,
        has_lost_records: bool,
    ) -> rusqlite::Result<Vec<(String, u64)>> {
        let records: HashSet<String> =
            sql::list(db, "SELECT name FROM catalog WHERE kind = 'endpoint'")?
                .into_iter()
                .collect();
        let is_empty = records.is_empty() && !db.prepare("SELECT 1 FROM catalog")?.exists(())?;
        if is_empty && !has_lost_records {
            return Ok(Vec::new());
        }
        for (key, name) in pairs::<u32, String>(db, "SELECT seq, name FROM endpoint")? {
            self.names.entry(key).or_insert(Some(name));
        }
        if db.table_exists(None, "deleting")? {
            self.names.extend(load(db)?.into_iter().map(|key| (key.0, None)));
        }
        let named = self.names.into_iter().filter_map(|(key, name)| Some((key, name?)));
        let unrecorded: Vec<_> = named.filter(|(_, name)| !records.contains(name)).collect();
        if unrecorded.is_empty() {
            // The usual case: the table of jobs need not be read.
            return Ok(Vec::new());
        }
        let mut counts: HashMap<u32, u64> = HashMap::new();
        for (seq, endpoint) in pairs::<i64, u32>(db, "SELECT seq, endpoint FROM job")? {
            let is_newer = self.jobs.contains_key(&seq.unsigned_abs());
            *counts.entry(endpoint).or_default() += u64::from(!is_newer);
        }
        for endpoint in self.jobs.into_values().flatten() {
            *counts.entry(endpoint).or_default() += 1;
        }
        let with_jobs = unrecorded
            .into_iter()
            .map(|(key, name)| (name, counts.get(&key).copied().unwrap_or(0)));
        Ok(with_jobs.filter(|(_, jobs)| *jobs > 0).collect())
    }
}

fn pairs<A: FromSql, B: FromSql>(db: &Connection, sql: &str) -> rusqlite::Result<Vec<(A, B)>> {
    db.prepare(sql)?.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
