//! Gives back space of a nearly full disk before a start writes anything. A host that was killed on a
//! full disk leaves bytes that no job needs: deletions that were not checkpointed yet, parts of the
//! journal that were written for short, and a long write-ahead log.
//!
//! **Promise.** Takes no space, and changes no byte that a start, a check or a repair reads.
//! **Costs.** One read of the table of payloads in the journal, and a move of the write-ahead log.

use tracing::warn;

use crate::error::Failure;
use crate::journal::Journal;
use crate::tables::db::Db;
use crate::tables::payloads;

/// Gives back the space. An error is logged: the start continues, and ends with an error of its own if
/// it finds no space.
pub(crate) fn make_room(db: &Db, journal: &Journal) {
    let made = give_back(db, journal).and_then(|()| Ok(db.empty_log()?));
    if let Err(error) = made {
        warn!("the start cannot give back space of the nearly full disk: {error}");
    }
}

fn give_back(db: &Db, journal: &Journal) -> Result<(), Failure> {
    let mut needed = Vec::new();
    // At least all payloads that are needed. Deletions that are only in the journal are not applied
    // to it yet.
    payloads::load_kept(db.connection(), |_, _, location| needed.push(location))?;
    Ok(journal.give_back(needed)?)
}
