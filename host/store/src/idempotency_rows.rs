//! Idempotency records in the database: a row for each, which outlives its job.

use std::collections::HashMap;

use gristmill_core::id::{EndpointId, JobId, OwnerId};
use gristmill_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use crate::entry::EndpointKey;
use crate::idempotency_index::{Dropped, IdempotencyRecord};
use crate::index::Index;
use crate::journal::image::{IdBytes, IdempotencyImage};
use crate::row::{integer, invalid};

/// Adds the row of a job.
pub(crate) fn put(
    db: &Connection,
    seq: u64,
    endpoint: u32,
    id: &IdBytes,
    idempotency: &IdempotencyImage,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO repeat (seq, endpoint, key, content, job, at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        integer(seq),
        endpoint,
        idempotency.key,
        idempotency.content,
        &id[..],
        integer(idempotency.at)
    ])?;
    Ok(())
}

/// Removes the rows up to a number.
pub(crate) fn forget(db: &Connection, last: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM repeat WHERE seq <= ?1")?.execute([integer(last)])?;
    Ok(())
}

/// Removes single rows.
pub(crate) fn delete(db: &Connection, seqs: &[u64]) -> rusqlite::Result<()> {
    let mut delete = db.prepare_cached("DELETE FROM repeat WHERE seq = ?1")?;
    seqs.iter().try_for_each(|seq| delete.execute([integer(*seq)]).map(drop))
}

/// Loads the rows into the index, except those of deleted endpoints. `owners` has the owner of each endpoint of the catalog; other
/// endpoints, of a store that is used without a catalog, count as the operator's.
pub(crate) fn load(
    db: &Connection,
    index: &mut Index,
    owners: &HashMap<EndpointId, OwnerId>,
) -> rusqlite::Result<()> {
    let sql = "SELECT seq, endpoint, key, content, job, at FROM repeat ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let (seq, endpoint) = (number(0)?, EndpointKey(row.get(1)?));
        // A row outlives its job and its endpoint, so their numbers must not be used again.
        index.last_seq = index.last_seq.max(seq);
        index.last_endpoint = index.last_endpoint.max(endpoint.0);
        let job = JobId::from_bytes(row.get_ref(4)?.as_blob()?);
        let first = IdempotencyRecord {
            seq,
            job: job.map_err(|error| invalid(4, Type::Blob, error))?,
            content: row.get(3)?,
            at: Timestamp::from_millis(number(5)?),
        };
        let Some(name) = index.endpoints.get(&endpoint).map(|endpoint| &endpoint.name) else {
            continue;
        };
        // Another endpoint may have the name of one that is being deleted.
        if index.names.get(name) == Some(&endpoint) {
            let keys = &mut index.owners;
            let owner = || match owners.get(name) {
                Some(owner) => keys.key(owner),
                None => keys.key(&OwnerId::operator()),
            };
            let forgotten = index.idempotency_index.insert(&endpoint, owner, row.get(2)?, first);
            if let Some(Dropped::Only(seq)) = forgotten {
                index.dropped_records.push(seq);
            }
        }
    }
    index.dropped_records_up_to = Some(index.idempotency_index.no_record_up_to(index.last_seq));
    Ok(())
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{NodeId, Submission};

    use super::*;
    use crate::index::Endpoint;
    use crate::owners::Owners;
    use crate::schema;

    #[test]
    fn rows_count_for_the_owners_of_their_endpoints() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema::TABLES).unwrap();
        let id = JobId::generate(Submission::Async, NodeId(1)).to_bytes();
        let row = |key| IdempotencyImage { key: [key; 16], content: [0; 16], at: 7 };
        // `a` was created again, so its first endpoint is being deleted. The endpoint 9 is deleted.
        for (seq, endpoint) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (6, 9)] {
            put(&db, seq, endpoint, &id, &row(u8::try_from(seq).unwrap())).unwrap();
        }
        let mut index = Index::new(Owners::default());
        let name = |name: &str| EndpointId::new(name).unwrap();
        for (number, of) in [(1, "a"), (2, "a"), (3, "b"), (4, "without-record")] {
            index.names.insert(name(of), EndpointKey(number));
            index.endpoints.insert(EndpointKey(number), Endpoint::new(name(of)));
        }
        let owner = |name: &str| OwnerId::new(name).unwrap();
        let owners = HashMap::from([(name("a"), owner("x")), (name("b"), owner("y"))]);
        load(&db, &mut index, &owners).unwrap();
        let records = |index: &mut Index, owner: &OwnerId| {
            let key = index.owners.key(owner);
            index.idempotency_index.len_of(&key)
        };
        assert_eq!(records(&mut index, &owner("x")), 2);
        assert_eq!(records(&mut index, &owner("y")), 1);
        assert_eq!(records(&mut index, &OwnerId::operator()), 1);
        assert_eq!((index.last_seq, index.dropped_records_up_to), (6, Some(1)));
        assert_eq!(index.last_endpoint, 9, "its number is not used again");
    }
}
