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

use gristmill_core::billing::usage::Hour;
use gristmill_core::catalog::CatalogEntry;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::types::Type;

use crate::checkpoint::archive;
use crate::checkpoint::segment;
use crate::damage;
use crate::damage::Damage;
use crate::error::{Failure, OpenError};
use crate::format::EndpointKey;
use crate::format::decode;
use crate::format::image::{JobImage, JobLocations, StateImage};
use crate::format::payload::Kind;
use crate::journal;
use crate::journal::Journal;
use crate::journal::Segment;
use crate::seal::Seal;
use crate::state::index::Index;
use crate::state::owners::Owners;
use crate::tables::archived;
use crate::tables::catalog;
use crate::tables::db::{Db, Sync};
use crate::tables::deleting;
use crate::tables::delivery;
use crate::tables::endpoints;
use crate::tables::idempotency;
use crate::tables::jobs;
use crate::tables::payloads;
use crate::tables::schedules;
use crate::tables::sql;
use crate::tables::usage;

/// Reads everything except the payloads: the tables, and then the journal that is not checkpointed.
/// Also returns the journal's end. Cost: about a microsecond for each job, and for each row of
/// usage of the newest hours. Archived jobs are not read.
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
                let (image, locations) = decode::frame(frame)?;
                Ok(segment::write_rest(db, &image, &locations, frame)?)
            }))
        })?
        .map_err(of_journal)?;
    let endpoint_owners =
        load_tables(db.connection(), Some(&db.seal), &mut index, now).map_err(of_tables)?;
    let mut replay = |db: &Connection| {
        journal::replay(dir, uncheckpointed, |frame| {
            let (image, locations) = decode::frame(frame)?;
            let segment = frame.payloads.segment;
            journal.owe(segment, image.owed_bytes(frame.encoded_batch().len(), &locations));
            let created = image.endpoints.iter().map(|(number, _)| number);
            created.chain(&image.forgotten).for_each(|number| index.use_up(EndpointKey(*number)));
            for (job, locations) in image.jobs.iter().zip(locations) {
                load_if_archived(db, &mut index, job)?;
                index.replay_job(job, (segment, locations)).map_err(damage::damaged)?;
            }
            Ok(())
        })
    };
    db.transaction(Sync::Later, |db| Ok(replay(db))).map_err(of_tables)?.map_err(of_journal)?;
    load_archived(db.connection(), &mut index).map_err(of_tables)?;
    // After the jobs, whose owners the bodies count for.
    load_deliveries(db.connection(), &mut index, &endpoint_owners).map_err(of_tables)?;
    index.hold_payloads(journal, |location| journal.has(location)).map_err(|(job, segment)| {
        damaged(format!(
            "a payload of job `{job}` is missing: segment {} of the journal",
            segment.0
        ))
    })?;
    journal.free_unheld();
    Ok((index, end))
}

/// Reads tables that need no journal as a start at the time `now` reads them, for a repair. Without
/// a key the catalog is not read.
///
/// # Errors
/// The error with which the start would refuse the tables.
pub(crate) fn try_tables(
    db: &Connection,
    seal: Option<&Seal>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut index = Index::new(Owners::default());
    let endpoint_owners = load_tables(db, seal, &mut index, now)?;
    load_archived(db, &mut index)?;
    load_deliveries(db, &mut index, &endpoint_owners)
}

/// Reads the tables as they were before the journal's frames about jobs. Returns the owners of the
/// endpoints in the catalog.
fn load_tables(
    db: &Connection,
    seal: Option<&Seal>,
    index: &mut Index,
    now: Timestamp,
) -> rusqlite::Result<HashMap<EndpointId, OwnerId>> {
    load_endpoints(db, index)?;
    load_deleting(db, index)?;
    load_jobs(db, index)?;
    load_kept(db, index)?;
    let mut owners = HashMap::new();
    for body in seal.map(|seal| catalog::read(db, seal)).transpose()?.into_iter().flatten() {
        let entry = catalog::parse(&body).map_err(|error| {
            let reason = format!("a catalog entry cannot be read: {error}");
            sql::invalid(2, Type::Blob, reason)
        })?;
        if let CatalogEntry::Endpoint(endpoint) = entry {
            owners.insert(endpoint.id, endpoint.owner);
        }
    }
    load_idempotency_records(db, index, &owners)?;
    schedules::each(db, |_, note| {
        index.restore_note(note?);
        Ok(())
    })?;
    index.restore_usage(usage::last_run(db)?, usage::newest(db, Hour::of(now))?);
    Ok(owners)
}

fn load_endpoints(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    endpoints::each(db, |_, found| {
        let (key, name, counts) = found?;
        index.restore_endpoint(key, name, counts);
        Ok(())
    })
}

/// Continues the deletions that a crash interrupted.
fn load_deleting(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    for key in deleting::load(db)? {
        if !index.continue_deletion(key) {
            deleting::unmark(db, key.0)?;
        }
    }
    Ok(())
}

fn load_jobs(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let mut statement = db.prepare(jobs::SELECT_IN_MEMORY)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let restored = index.restore_row(&jobs::read(row)?);
        restored.map_err(|reason| sql::invalid(0, Type::Null, reason))?;
    }
    Ok(())
}

/// A change of an archived job put the job back into memory first, but a crash may have undone
/// that: it is done again here.
fn load_if_archived(
    db: &Connection,
    index: &mut Index,
    image: &JobImage<'_>,
) -> Result<(), Failure> {
    let is_new = matches!(image.state, StateImage::New { .. });
    let Some(id) = image.job_id().filter(|id| !is_new && !index.has(*id)) else { return Ok(()) };
    let found = archive::content(archived::find_row(db, image.seq, archive::read_row))?;
    if let Some(row) = found.map_err(damage::damaged)?
        && row.job.id == id
    {
        archived::unmark(db, &[row.archived()])?;
        index.restore_found(row);
    }
    Ok(())
}

/// Counts the archived jobs, without reading them.
fn load_archived(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    for sum in archived::sums(db)? {
        index.restore_archived(&sum, archived::last_of_endpoint(db, sum.endpoint)?);
    }
    index.set_next_archived_purge_at(archived::next_purge_at(db)?);
    index.use_up_seq(archived::last_seq(db)?);
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
    index.restore_locations(kept);
    Ok(())
}

fn load_deliveries(
    db: &Connection,
    index: &mut Index,
    owners: &HashMap<EndpointId, OwnerId>,
) -> rusqlite::Result<()> {
    let mut found = Vec::new();
    delivery::load(
        db,
        |key| index.endpoint_name(key),
        |key, delivery| found.push((key, delivery)),
    )?;
    for (key, delivery) in found {
        match delivery {
            Ok(delivery) => {
                let of_archived = match index.has(delivery.job) {
                    true => None,
                    false => archived::owner(db, delivery.job)?,
                };
                let of_archived = of_archived.map(|owner| OwnerId::new(&owner)).transpose();
                let of_archived =
                    of_archived.map_err(|error| sql::invalid(0, Type::Text, error))?;
                index.restore_delivery(key, delivery, of_archived.as_ref(), owners);
            }
            Err(id) => index.drop_delivery(key, id),
        }
    }
    Ok(())
}

/// Loads the idempotency records, except those of deleted endpoints.
fn load_idempotency_records(
    db: &Connection,
    index: &mut Index,
    owners: &HashMap<EndpointId, OwnerId>,
) -> rusqlite::Result<()> {
    idempotency::load(db, |seq, endpoint, job, record| {
        index.restore_idempotency_record(seq, endpoint, job, record, owners);
    })?;
    index.end_of_idempotency_records();
    Ok(())
}
