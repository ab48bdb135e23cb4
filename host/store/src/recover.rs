//! From the disk to the index, when a store is opened.
//!
//! One scan fills the index. Then what the end of the last process left behind is decided like
//! any other event, and written before anybody is served: jobs past their time go, and jobs that
//! ran are queued again or given up. A job that is queued again keeps its place: it has waited
//! longer than all that came after it.

use gristmill_core::id::EndpointId;
use gristmill_core::job::{JobEvent, JobState};
use gristmill_core::limits::CRASHES_MAX;
use gristmill_core::record::JobCounts;
use gristmill_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::types::Type;
use tokio::sync::oneshot;

use crate::db::Db;
use crate::entry::EndpointKey;
use crate::error::{OpenError, Recovery};
use crate::index::{Endpoint, Index};
use crate::sweep::Sweep;
use crate::{catalog, delivery, repeat_rows, row};

/// Reads everything but the payloads. Cost: about a microsecond for each job.
pub(crate) fn load(db: &Db) -> Result<Index, OpenError> {
    let mut index = Index::new();
    let damaged = |error: rusqlite::Error| match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => {
            OpenError::Damaged { file: db.file.clone(), details: error.to_string() }
        }
        error => error.into(),
    };
    load_endpoints(db.connection(), &mut index).map_err(damaged)?;
    load_jobs(db.connection(), &mut index).map_err(damaged)?;
    repeat_rows::load(db.connection(), &mut index).map_err(damaged)?;
    load_deliveries(db.connection(), &mut index).map_err(damaged)?;
    for body in catalog::read(db.connection(), &db.seal).map_err(damaged)? {
        catalog::parse(&body).map_err(|error| OpenError::Damaged {
            file: db.file.clone(),
            details: format!("a catalog entry cannot be read: {error}"),
        })?;
    }
    Ok(index)
}

fn load_endpoints(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let sql = "SELECT seq, name, completed, failed, retried FROM endpoint ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let key = EndpointKey(number(0)?);
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
        // Of two of a name the older was being deleted; the newer one counts.
        if let Some(older) = index.names.insert(name, key) {
            let (ack, _) = oneshot::channel();
            index.leaving.push(older);
            index.sweeps.push_back(Sweep::Forget { endpoint: older, from: 0, ack });
        }
        index.last_endpoint = key.0;
        index.endpoints.insert(key, endpoint);
    }
    Ok(())
}

fn load_jobs(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let mut statement = db.prepare(row::SELECT_JOBS)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        index.restore(row::read(row)?);
    }
    Ok(())
}

fn load_deliveries(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let Index { endpoints, outbox, dropped_deliveries, .. } = index;
    let name = |key| endpoints.get(&key).map(|endpoint| endpoint.name.clone());
    delivery::load(db, name, |endpoint, delivery| {
        dropped_deliveries.extend(outbox.add(endpoint, delivery));
    })
}

/// Decides what becomes of jobs past their time and of jobs that ran.
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
    let is_running = |state| matches!(state, JobState::InProgress { .. });
    let running: Vec<_> = index
        .jobs
        .range(0..index.jobs.end())
        .filter(|(_, job)| is_running(job.row.state))
        .map(|(key, job)| (key, job.row.crashes.saturating_add(1) >= CRASHES_MAX))
        .collect();
    for (key, is_last) in running {
        // The dispatcher is not there yet; it looks at all queues when it starts.
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
