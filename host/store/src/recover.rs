//! From the disk to the index, when a store is opened.
//!
//! A scan of the tables fills the index, and the part of the journal that is not checkpointed is
//! applied to it. Then the store repairs the state at the end of the last process, with the same
//! events as always, and writes the result before it serves any caller: jobs past their time are
//! deleted, and jobs that were running are queued again or given up. A job that is queued again
//! keeps its position, since it has waited longer than all later jobs.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use gristmill_core::catalog::CatalogEntry;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::job::{JobEvent, JobStatus};
use gristmill_core::limits::CRASHES_MAX;
use gristmill_core::record::JobCounts;
use gristmill_core::time::Timestamp;
use gristmill_core::usage::Hour;
use rusqlite::Connection;
use rusqlite::types::Type;

use crate::damage::Damage;
use crate::db::{Db, Sync};
use crate::entry::{EndpointKey, Job, Millis, PayloadLocations};
use crate::error::{Failure, OpenError, Recovery};
use crate::index::{Endpoint, Index};
use crate::journal::image::{BatchImage, JobImage, JobLocations, StateImage};
use crate::journal::{self, Journal, Segment};
use crate::owners::Owners;
use crate::payloads::Kind;
use crate::{catalog, checkpoint, deleting, delivery, idempotency_rows, payloads, row, usage_rows};

/// Reads everything except the payloads: the tables, and then the journal that is not checkpointed.
/// Also returns the journal's end. Cost: about a microsecond for each job, and for each row of usage
/// of the newest hours.
pub(crate) fn load(
    db: &Db,
    journal: &Journal,
    uncheckpointed: &[Segment],
    owners: Owners,
    now: Timestamp,
) -> Result<(Index, u32), OpenError> {
    let mut index = Index::new(owners);
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
                Ok(checkpoint::write_rest(db, &image, &locations, frame)?)
            }))
        })?
        .map_err(of_journal)?;
    load_endpoints(db.connection(), &mut index).map_err(of_tables)?;
    load_deleting(db.connection(), &mut index).map_err(of_tables)?;
    load_jobs(db.connection(), &mut index).map_err(of_tables)?;
    load_kept(db.connection(), &mut index).map_err(of_tables)?;
    let mut endpoint_owners = HashMap::new();
    for body in catalog::read(db.connection(), &db.seal).map_err(of_tables)? {
        let entry = catalog::parse(&body)
            .map_err(|error| damaged(format!("a catalog entry cannot be read: {error}")))?;
        if let CatalogEntry::Endpoint(endpoint) = entry {
            endpoint_owners.insert(endpoint.id, endpoint.owner);
        }
    }
    idempotency_rows::load(db.connection(), &mut index, &endpoint_owners).map_err(of_tables)?;
    load_deliveries(db.connection(), &mut index).map_err(of_tables)?;
    index.meters.begin_after(usage_rows::last_run(db.connection()).map_err(of_tables)?);
    usage_rows::load_newest(db.connection(), &mut index.meters.newest, Hour::of(now))
        .map_err(of_tables)?;
    journal::replay(dir, uncheckpointed, |frame| {
        let (image, locations) = BatchImage::read(frame)?;
        for (job, locations) in image.jobs.iter().zip(locations) {
            replay_job(&mut index, job, locations).ok_or_else(|| journal::damaged("a job"))?;
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

/// Applies a frame's entry of a job to the index. `None` when it is invalid.
fn replay_job(index: &mut Index, image: &JobImage<'_>, locations: JobLocations) -> Option<()> {
    let id = image.job_id()?;
    index.last_seq = index.last_seq.max(image.seq);
    let before = index.unrestore(id);
    let mut job = match (&image.state, before) {
        (StateImage::Deleted { .. }, _) => return Some(()),
        (StateImage::New { fixed, row, input }, before) => Job {
            id,
            seq: image.seq,
            endpoint: EndpointKey(image.endpoint),
            owner: index.owners.key(&OwnerId::new(fixed.owner).ok()?),
            low_priority: fixed.low_priority,
            input_bytes: input.unwrap_or(0),
            webhook: fixed.webhook.map(|url| Arc::new(url.into())),
            stored: before.map(|before| before.stored).unwrap_or_default(),
            payload_locations: PayloadLocations::default(),
            created_at: Timestamp::from_millis(fixed.created_at),
            retention_ms: Millis::new(fixed.retention_ms),
            execution_timeout_ms: Millis::new(fixed.execution_timeout_ms),
            row: row.to_row()?,
            live: None,
            pending: None,
        },
        (StateImage::Changed(row), Some(before)) => Job { row: row.to_row()?, ..before },
        // The endpoint is deleted, and all its jobs with it.
        (StateImage::Changed(_), None) => return Some(()),
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
    Some(())
}

fn load_endpoints(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let sql = "SELECT seq, name, completed, failed, retried FROM endpoint ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let key = EndpointKey(row.get(0)?);
        let name = EndpointId::new(row.get_ref(1)?.as_str()?)
            .map_err(|error| row::invalid(1, Type::Text, error))?;
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

/// Goes on with the deletions that a crash interrupted.
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
    let mut statement = db.prepare(row::SELECT_JOBS)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let job = row::read(row, &mut index.owners)?;
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
        // The next endpoint of the name would sign the webhooks of one that is being deleted.
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
