//! The row that describes a database: the shard in the ids of its jobs, and the key of its secrets.

use std::path::Path;

use gristmill_core::id::ShardId;
use gristmill_postgres::{Connection, SqlQuery, Value};

use crate::error::OpenError;
use crate::seal::{Seal, Word};

/// Reads the row, and checks that the key file has the key of the secrets. A new database gets the
/// row, and a missing key file a new key.
///
/// # Errors
/// [`OpenError::SecretsKey`] when the file is missing, or has another key.
pub(super) fn read(
    connection: &mut Connection,
    key_file: &Path,
) -> Result<(ShardId, Seal), OpenError> {
    if let Some(found) = find(connection, key_file)? {
        return Ok(found);
    }
    let seal = Seal::open(key_file, true)?;
    let shard: u16 = rand::random();
    // Another first host may be faster; then its row counts, and its key.
    let insert =
        "INSERT INTO meta (id, shard, sealed) VALUES (1, $1, $2) ON CONFLICT (id) DO NOTHING";
    let values: Vec<Value<'_>> =
        vec![Box::new(i32::from(shard)), Box::new(seal.seal_word(Word::SETTLED))];
    connection.transaction(&[SqlQuery::new(insert, values)])?;
    let found = find(connection, key_file)?;
    found.ok_or_else(|| OpenError::Database("the table `meta` has no row".to_owned()))
}

fn find(
    connection: &mut Connection,
    key_file: &Path,
) -> Result<Option<(ShardId, Seal)>, OpenError> {
    let rows = connection.query(&SqlQuery::new("SELECT shard, sealed FROM meta", Vec::new()))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let missing = || OpenError::SecretsKey {
        file: key_file.to_owned(),
        details:
            "the file is missing, and this database has a key: copy the file of the host that \
                  made the database"
                .to_owned(),
    };
    if !key_file.exists() {
        return Err(missing());
    }
    let seal = Seal::open(key_file, false)?;
    seal.read_word(row.get(1))?;
    let shard = u16::try_from(row.get::<_, i32>(0)).map_err(|_| {
        OpenError::Database("the shard in the table `meta` is not a number of 16 bits".to_owned())
    })?;
    Ok(Some((ShardId(shard), seal)))
}
