//! Fills the index from the disk when a store is opened.
//!
//! A scan of the tables fills the index, and the part of the journal that is not checkpointed is
//! applied to it. Then the store repairs the state that the last process left: jobs past their time
//! are deleted, and jobs that were running are queued again or given up. It uses the same events as
//! always, and writes the result before it serves any caller. A job that is queued again keeps its
//! position, since it has waited longer than all later jobs.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use gristmill_core::disk_space::DiskSpaceGauge;
use gristmill_core::id::EndpointId;
use gristmill_core::job::{JobEvent, JobStatus};
use gristmill_core::limits::CRASHES_MAX;
use gristmill_core::record::JobCounts;
use gristmill_core::time::Timestamp;
use gristmill_core::usage::Hour;
use rusqlite::Connection;
use rusqlite::types::Type;

use crate::checkpoint::segment;
use crate::damage;
use crate::damage::Damage;
use crate::error::{Failure, OpenError, Recovery};
use crate::format::EndpointKey;
use crate::format::image::IdempotencyImage;
use crate::format::image::NewJobImage;
use crate::format::image::{BatchImage, JobImage, JobLocations, StateImage};
use crate::format::payload::Kind;
use crate::journal;
use crate::journal::Journal;
use crate::journal::Segment;
use crate::state::idempotency::Dropped;
use crate::state::idempotency::IdempotencyRecord;
use crate::state::index::{Endpoint, Index};
use crate::state::job::Job;
use crate::state::job::Row;
use crate::state::job::Stored;
use crate::state::owners::Owners;
use crate::tables::catalog;
use crate::tables::db::{Db, Sync};
use crate::tables::deleting;
use crate::tables::delivery;
use crate::tables::idempotency;
use crate::tables::jobs;
use crate::tables::payloads;
use crate::tables::sql;
use crate::tables::usage;
use gristmill_core::usage::UsageRow;

/// Reads everything except the payloads: the tables, and then the journal that is not checkpointed.
/// Also returns the journal's end. Cost: about a microsecond for each job, and for each row of
/// usage of the newest hours.
pub(crate) fn load(
    db: &Db,
    journal: &Journal,
    uncheckpointed: &[Segment],
    disk_space: Arc<DiskSpaceGauge>,
    now: Timestamp,
) -> Result<(Index, u32), OpenError> {
    let mut index = Index::new(disk_space);
    let damage =
        |file: &Path, details| Damage { file: file.to_owned(), offset: None, details }.into();
    let damaged = |details: String| -> OpenError { damage(&db.file, details) };
    let dir = journal.dir();
    let of_journal = |error: Failure| match error {
        Failure::Damaged(damage) => damage.into(),
        Failure::Journal(error) if error.kind() != io::ErrorKind::InvalidData => {
            OpenError::Directory { dir: dir.to_owned(), source: error }
        }
        Failure::Database(error) => error.into(),
        error => damage(dir, error.to_string()),
    };
    let of_tables = |error: rusqlite::Error| match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => damaged(error.to_string()),
        error => error.into(),
    };
    // Content that does not belong to jobs is written to the tables first, and read from there.
    let end = db
        .transaction(Sync::Later, |db| {
            Ok(journal::replay(dir, uncheckpointed, |frame| {
                let (image, locations) = BatchImage::read(frame)?;
                Ok(segment::write_rest(db, &image, &locations, frame)?)
            }))
        })?
        .map_err(of_journal)?;
    load_endpoints(db.connection(), &mut index).map_err(of_tables)?;
    load_deleting(db.connection(), &mut index).map_err(of_tables)?;
    load_jobs(db.connection(), &mut index).map_err(of_tables)?;
    load_kept(db.connection(), &mut index).map_err(of_tables)?;
    load_idempotency_records(db.connection(), &mut index).map_err(of_tables)?;
    load_deliveries(db.connection(), &mut index).map_err(of_tables)?;
    index.meters.begin_after(usage::last_run(db.connection()).map_err(of_tables)?);
    for UsageRow { key, sum } in usage::newest(db.connection(), Hour::of(now)).map_err(of_tables)? {
        index.meters.newest.add(key.hour, &key.template, &key.owner, &sum);
    }
    for body in catalog::read(db.connection(), &db.seal).map_err(of_tables)? {
        catalog::parse(&body)
            .map_err(|error| damaged(format!("a catalog entry cannot be read: {error}")))?;
    }
    journal::replay(dir, uncheckpointed, |frame| {
        let (image, locations) = BatchImage::read(frame)?;
        for (job, locations) in image.jobs.iter().zip(locations) {
            replay_job(&mut index, job, locations).map_err(damage::damaged)?;
        }
        Ok(())
    })
    .map_err(of_journal)?;
    for job in index.jobs.values_mut() {
        if !job.row.needs_input() {
            job.payload_locations.input = None;
        }
        let kept = || job.payload_locations.kept().map(|(_, location)| location);
        if let Some(location) = kept().find(|location| !journal.has(*location)) {
            return Err(damaged(format!(
                "a payload of job `{}` is missing: segment {} of the journal",
                job.id, location.segment.0
            )));
        }
        journal.hold(kept());
    }
    journal.free_unheld();
    Ok((index, end))
}

/// Applies a frame's entry of a job to the index.
///
/// # Errors
/// The value that is invalid.
fn replay_job(
    index: &mut Index,
    image: &JobImage<'_>,
    locations: JobLocations,
) -> Result<(), String> {
    let id = image.job_id().ok_or("a job has an invalid id")?;
    index.last_seq = index.last_seq.max(image.seq);
    let before = index.unrestore(id);
    let mut job = match (&image.state, before) {
        (StateImage::Deleted { .. }, _) => return Ok(()),
        (StateImage::New { fixed, row, input }, before) => {
            let new = NewJobImage {
                seq: image.seq,
                id: image.id,
                endpoint: image.endpoint,
                fixed: *fixed,
                row: *row,
                input_bytes: input.unwrap_or(0),
            };
            let stored = before.map(|before| before.stored).unwrap_or_default();
            Job { stored, ..Job::of(&new, &mut index.owners)? }
        }
        (StateImage::Changed(row), Some(before)) => Job { row: Row::of(row)?, ..before },
        // The endpoint is deleted, and all its jobs with it.
        (StateImage::Changed(_), None) => return Ok(()),
    };
    if image.clears_result
        && let Some(results) = &mut job.payload_locations.results
    {
        results.pages.clear();
        results.output = None;
    }
    job.payload_locations.add(locations);
    if index.endpoints.contains_key(&job.endpoint) {
        index.restore(job);
    }
    Ok(())
}

/// The job of a row of [`SELECT_JOBS`](jobs::SELECT_JOBS).
pub(crate) fn job_of_row(row: &rusqlite::Row<'_>, owners: &mut Owners) -> rusqlite::Result<Job> {
    let job = Job::of(&jobs::read(row)?, owners);
    let job = job.map_err(|reason| sql::invalid(0, Type::Null, reason))?;
    Ok(Job { stored: Stored::of(&job.row), ..job })
}

/// Loads the idempotency records, except those of deleted endpoints.
fn load_idempotency_records(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    idempotency::load(db, |seq, endpoint, job, IdempotencyImage { key, content, at }| {
        // A row outlives its job and its endpoint, so their numbers must not be used again.
        index.last_seq = index.last_seq.max(seq);
        index.last_endpoint = index.last_endpoint.max(endpoint.0);
        let first = IdempotencyRecord { seq, job, content, at: Timestamp::from_millis(at) };
        if index.endpoints.contains_key(&endpoint)
            && let Some(Dropped::Only(seq)) = index.idempotency_index.insert(endpoint, key, first)
        {
            index.dropped_records.push(seq);
        }
    })?;
    index.dropped_records_up_to = Some(index.idempotency_index.no_record_up_to(index.last_seq));
    Ok(())
}

fn load_endpoints(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let sql = "SELECT seq, name, completed, failed, retried FROM endpoint ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let key = EndpointKey(row.get(0)?);
        let name = EndpointId::new(row.get_ref(1)?.as_str()?)
            .map_err(|error| sql::invalid(1, Type::Text, error))?;
        let mut endpoint = Endpoint::new(name.clone());
        endpoint.is_stored = true;
        endpoint.counts = JobCounts {
            completed: number(2)?,
            failed: number(3)?,
            retried: number(4)?,
            ..JobCounts::default()
        };
        // If two endpoints have one name, the older was being deleted, and the newer one counts.
        if let Some(older) = index.names.insert(name, key) {
            index.leave(older);
        }
        index.last_endpoint = key.0;
        index.endpoints.insert(key, endpoint);
    }
    Ok(())
}

/// Continues the deletions that a crash interrupted.
fn load_deleting(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    for key in deleting::load(db)? {
        index.last_endpoint = index.last_endpoint.max(key.0);
        let Some(endpoint) = index.endpoints.get(&key) else {
            // It had no job, or all of them are removed.
            deleting::unmark(db, key.0)?;
            continue;
        };
        // A newer endpoint of the name may have replaced it.
        let name = endpoint.name.clone();
        if index.names.get(&name) == Some(&key) {
            index.names.remove(&name);
            index.leave(key);
        }
    }
    Ok(())
}

fn load_jobs(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let mut statement = db.prepare(jobs::SELECT_JOBS)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let job = job_of_row(row, &mut index.owners)?;
        index.restore(job);
    }
    Ok(())
}

fn load_kept(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let mut kept: HashMap<u64, JobLocations> = HashMap::new();
    payloads::load_kept(db, |seq, kind, location| {
        let locations = kept.entry(seq).or_default();
        match kind {
            Kind::Input => locations.input = Some(location),
            Kind::Output => locations.output = Some(location),
        }
    })?;
    let jobs = index.jobs.range(0..index.jobs.end());
    let found = jobs.filter_map(|(key, job)| Some((key, kept.remove(&job.seq)?)));
    for (key, locations) in found.collect::<Vec<_>>() {
        if let Some(job) = index.jobs.get_mut(key) {
            job.payload_locations.add(locations);
        }
    }
    Ok(())
}

fn load_deliveries(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let Index { endpoints, names, outbox, dropped_deliveries, .. } = index;
    let name = |key| endpoints.get(&key).map(|endpoint| endpoint.name.clone());
    delivery::load(db, name, |endpoint, delivery| {
        // The next endpoint of the name would sign the webhooks of the endpoint that is being
        // deleted.
        match names.get(&delivery.endpoint) == Some(&endpoint) {
            true => dropped_deliveries.extend(outbox.add(endpoint, delivery)),
            false => dropped_deliveries.push(delivery.id),
        }
    })
}

/// Number of jobs that have not ended and would be deleted at `now`.
pub(crate) fn overdue(index: &Index, now: Timestamp) -> u64 {
    let jobs = index.jobs.range(0..index.jobs.end()).map(|(_, job)| job);
    let is_open = |job: &&Job| job.row.status.is_some_and(|status| !status.is_final());
    jobs.filter(is_open).filter(|job| job.purge_at() <= now).count() as u64
}

/// Decides the state of jobs past their time and of jobs that were running.
pub(crate) fn repair(index: &mut Index, now: Timestamp, recovery: &mut Recovery) {
    loop {
        let due = index.expiry.due(now, usize::MAX);
        if due.is_empty() {
            break;
        }
        recovery.expired += due.len() as u64;
        for key in due {
            index.expire(key, now);
        }
    }
    let running: Vec<_> = index
        .jobs
        .range(0..index.jobs.end())
        .filter(|(_, job)| job.row.status == Some(JobStatus::InProgress))
        .map(|(key, job)| (key, job.row.crashes.saturating_add(1) >= CRASHES_MAX))
        .collect();
    for (key, is_last) in running {
        // The dispatcher does not exist yet; it examines all queues when it starts.
        let lost = index.decide(key, JobEvent::HostLost { is_last }, now);
        debug_assert!(lost.is_ok(), "a running job can lose its host");
        if is_last {
            recovery.given_up += 1;
            if let Some(job) = index.jobs.get_mut(key) {
                let error = format!("the host died while the job ran, {CRASHES_MAX} times");
                job.row.attempt_mut().error = Some(error);
            }
        } else {
            recovery.requeued += 1;
        }
    }
    recovery.waiting = index.endpoints.values().map(|endpoint| endpoint.ready.len() as u64).sum();
}
