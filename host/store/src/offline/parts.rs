//! The parts of a job in other tables, without which the job is useless.

use std::collections::HashSet;

use gristmill_core::job::state::JobStatus;
use rusqlite::{Connection, params};

use crate::format::image::{BatchImage, JobLocations, StateImage};
use crate::format::pages;
use crate::format::payload::Kind;
use crate::state::job::{Job, JobRow};
use crate::tables::deleting::Endpoints;
use crate::tables::sql::integer;

/// What the frames of the journal change in the tables. After a repair, which has applied them, it
/// is empty.
#[derive(Debug, Default)]
pub(super) struct Newer {
    pub(super) endpoints: Endpoints,
    /// Payloads that they replace or remove, by the number of their job.
    pub(super) payloads: HashSet<(u64, Kind)>,
    /// Jobs that they add, change or remove.
    jobs: HashSet<u64>,
    /// Jobs that they add; the tables may have some of them already.
    pub(super) added_jobs: HashSet<u64>,
    /// Jobs that they remove.
    pub(super) removed_jobs: HashSet<u64>,
    /// The same for webhooks.
    pub(super) webhooks: HashSet<u64>,
}

impl Newer {
    /// Adds a frame, which must come after all others.
    pub(super) fn add(&mut self, image: &BatchImage<'_>, locations: &[JobLocations]) {
        self.endpoints.add(image);
        self.webhooks.extend(image.attempts.iter().map(|webhook| webhook.id));
        self.webhooks.extend(&image.dropped_deliveries);
        for (job, locations) in image.jobs.iter().zip(locations) {
            self.jobs.insert(job.seq);
            match &job.state {
                StateImage::New { .. } => drop(self.added_jobs.insert(job.seq)),
                StateImage::Changed(_) => {}
                StateImage::Deleted { .. } => {
                    self.added_jobs.remove(&job.seq);
                    self.removed_jobs.insert(job.seq);
                }
            }
            self.webhooks.extend(job.delivery.as_ref().map(|webhook| webhook.id));
            let row = match &job.state {
                StateImage::New { row, .. } | StateImage::Changed(row) => JobRow::of(row).ok(),
                StateImage::Deleted { .. } => None,
            };
            if locations.input.is_some() || !row.as_ref().is_some_and(JobRow::needs_input) {
                self.payloads.insert((job.seq, Kind::Input));
            }
            if locations.output.is_some() || job.clears_result || row.is_none() {
                self.payloads.insert((job.seq, Kind::Output));
            }
        }
    }
}

/// The part that a job of these tables needs and lacks, if there is one.
///
/// # Errors
/// Those of the tables.
pub(super) fn missing(
    db: &Connection,
    job: &Job,
    newer: &Newer,
) -> rusqlite::Result<Option<&'static str>> {
    let has_name = "SELECT EXISTS (SELECT 1 FROM endpoint WHERE seq = ?1)";
    let has_name: bool =
        db.prepare_cached(has_name)?.query_row([job.endpoint.0], |row| row.get(0))?;
    if !has_name && !newer.endpoints.has(job.endpoint.0) {
        return Ok(Some("the name of its endpoint cannot be read"));
    }
    let lacks = |kind: Kind| -> rusqlite::Result<bool> {
        Ok(!newer.payloads.contains(&(job.seq, kind)) && !has_payload(db, job.seq, kind)?)
    };
    if job.row.needs_input() && lacks(Kind::Input)? {
        return Ok(Some("its input cannot be read"));
    }
    // Other FAILED jobs have an output only if they had progress: nothing in their rows shows
    // whether it is missing, and without it a client still gets the error and can retry the job.
    let needs_output = job.row.status == Some(JobStatus::Completed) || job.row.has_cut_error();
    if needs_output && lacks(Kind::Output)? {
        return Ok(Some("its output cannot be read"));
    }
    let has_chunks =
        newer.jobs.contains(&job.seq) || has_chunks(db, job.seq, job.row.chunk_count())?;
    Ok((!has_chunks).then_some("its chunks cannot be read"))
}

/// Whether the tables have a payload, or its location in the journal.
fn has_payload(db: &Connection, seq: u64, kind: Kind) -> rusqlite::Result<bool> {
    let sql = match kind {
        Kind::Input => {
            "SELECT EXISTS (SELECT 1 FROM input WHERE seq = ?1) \
             OR EXISTS (SELECT 1 FROM kept WHERE seq = ?1 AND kind = ?2)"
        }
        Kind::Output => {
            "SELECT EXISTS (SELECT 1 FROM output WHERE seq = ?1) \
             OR EXISTS (SELECT 1 FROM kept WHERE seq = ?1 AND kind = ?2)"
        }
    };
    db.prepare_cached(sql)?.query_row(params![integer(seq), kind.code()], |row| row.get(0))
}

/// Whether all chunks of a job exist, without a gap.
fn has_chunks(db: &Connection, seq: u64, count: u64) -> rusqlite::Result<bool> {
    let sql = "SELECT first, body FROM chunk WHERE seq = ?1 ORDER BY first";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([integer(seq)])?;
    let mut next = 0;
    while let Some(row) = rows.next()? {
        let first = row.get::<_, i64>(0)?.unsigned_abs();
        match pages::Page::decode(first, row.get::<_, Vec<u8>>(1)?.into()) {
            Some(page) if first <= next => next = next.max(first + page.chunks.len() as u64),
            Some(_) | None => return Ok(false),
        }
    }
    Ok(next >= count)
}

/// A query of the pending webhooks without a body.
pub(super) const WEBHOOKS_WITHOUT_BODY: &str =
    "SELECT seq FROM delivery WHERE state = 0 AND seq NOT IN (SELECT seq FROM delivery_body)";
