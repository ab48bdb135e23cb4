//! Actions on many jobs, as JSON. The table is read once by each process.
//!
//! **Bounds.** Some hundred bytes to 130 KiB for each action; the control plane bounds their
//! number.

use gristmill_core::id::JobActionId;
use gristmill_core::job::action::JobAction;
use rusqlite::{Connection, params};
use tracing::error;

/// Adds an action, or replaces the one with its id.
pub(crate) fn put(db: &Connection, action: &JobAction) -> rusqlite::Result<()> {
    let body = serde_json::to_string(action).expect("an action is plain data");
    let sql = "INSERT OR REPLACE INTO job_action (id, body) VALUES (?1, ?2)";
    db.prepare_cached(sql)?.execute(params![action.id.as_str(), body])?;
    Ok(())
}

/// Deletes an action, if it exists.
pub(crate) fn delete(db: &Connection, id: &JobActionId) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM job_action WHERE id = ?1")?.execute([id.as_str()])?;
    Ok(())
}

/// All actions that can be read. A damaged one is left out: the jobs do not depend on it.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<Vec<JobAction>> {
    let mut actions = Vec::new();
    for (id, found) in read(db)? {
        match found {
            Ok(action) => actions.push(action),
            Err(reason) => error!("the job action `{id}` is damaged, and is left out: {reason}"),
        }
    }
    Ok(actions)
}

/// All actions with their ids. `Err`: why one is damaged.
pub(crate) fn read(
    db: &Connection,
) -> rusqlite::Result<Vec<(String, Result<JobAction, serde_json::Error>)>> {
    let mut statement = db.prepare("SELECT id, body FROM job_action ORDER BY id")?;
    let rows = statement.query_map((), |row| {
        let body = row.get_ref(1)?.as_bytes().unwrap_or_default();
        Ok((row.get(0)?, serde_json::from_slice(body)))
    });
    rows?.collect()
}
