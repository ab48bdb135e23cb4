//! How archived jobs are found by tag and by time.
//!
//! `job_tag` has a row for each tag of an archived job: the number of the endpoint, a hash of the
//! tag, and the number of the job. A tag may have 320 bytes, and its hash has 8. Two tags with one
//! hash only make a search read a row in vain: each row that is found is compared with the whole
//! filter.
//!
//! `archived_time` has the times of submission of each [`BLOCK`] of numbers of jobs: the earliest
//! and the latest. The numbers are in the order of submission, and the times nearly so: the wall
//! clock may go back. These bounds hold even then, and take one row for many jobs. They may be
//! wider than needed, once jobs are deleted.
//!
//! **Cost.** Some 5 µs for each tag when a job is archived, deleted or put back into memory, and
//! some 20 bytes on disk. Nothing for jobs without tags, except the bounds of time: one row for
//! each transaction.

use std::collections::BTreeMap;

use gristmill_core::job::tags::Tags;
use rusqlite::{Connection, params};

use crate::format::archived::ArchivedJob;
use crate::tables::sql::integer;

/// Numbers of jobs that share a row of `archived_time`. The migration has the same number.
pub(crate) const BLOCK: u64 = 1_024;

/// The rows of `archived_time` as the jobs have them.
const COMPUTE_TIMES: &str = "INSERT INTO archived_time (block, first_at, last_at) \
     SELECT seq / 1024, min(created_at), max(created_at) FROM job WHERE archived = 1 GROUP BY seq / 1024";

/// The hash of a tag. It is on disk and must not change.
pub(crate) fn hash(key: &str, value: &str) -> i64 {
    // FNV-1a with 64 bits. Whoever makes two tags with one hash slows down only the own searches.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.bytes().chain([b'=']).chain(value.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash.cast_signed()
}

/// Adds the rows of jobs that are being archived.
pub(crate) fn add<'a>(
    db: &Connection,
    jobs: impl Iterator<Item = &'a ArchivedJob> + Clone,
) -> rusqlite::Result<()> {
    change_tags(
        db,
        jobs.clone(),
        "INSERT OR IGNORE INTO job_tag (endpoint, tag, seq) VALUES (?1, ?2, ?3)",
    )?;
    let mut times: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for job in jobs {
        let at = job.created_at;
        let (first, last) = times.entry(job.seq / BLOCK).or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }
    let sql = "INSERT INTO archived_time (block, first_at, last_at) VALUES (?1, ?2, ?3) \
               ON CONFLICT DO UPDATE SET first_at = min(first_at, excluded.first_at), \
               last_at = max(last_at, excluded.last_at) \
               WHERE first_at > excluded.first_at OR last_at < excluded.last_at";
    let mut insert = db.prepare_cached(sql)?;
    for (block, (first, last)) in times {
        insert.execute(params![integer(block), integer(first), integer(last)])?;
    }
    Ok(())
}

/// Removes the rows of jobs that are archived no longer.
pub(crate) fn remove<'a>(
    db: &Connection,
    jobs: impl Iterator<Item = &'a ArchivedJob>,
) -> rusqlite::Result<()> {
    change_tags(db, jobs, "DELETE FROM job_tag WHERE endpoint = ?1 AND tag = ?2 AND seq = ?3")
}

/// Removes the times of jobs before all that exist.
pub(crate) fn remove_old_times(db: &Connection) -> rusqlite::Result<()> {
    let sql =
        "DELETE FROM archived_time WHERE block < coalesce((SELECT min(seq) FROM job) / ?1, ?2)";
    db.prepare_cached(sql)?.execute(params![integer(BLOCK), i64::MAX])?;
    Ok(())
}

fn change_tags<'a>(
    db: &Connection,
    jobs: impl Iterator<Item = &'a ArchivedJob>,
    sql: &str,
) -> rusqlite::Result<()> {
    for job in jobs {
        let Some(tags) = &job.tags else { continue };
        let mut change = db.prepare_cached(sql)?;
        for (key, value) in tags.iter() {
            change.execute(params![job.endpoint.0, hash(key, value), integer(job.seq)])?;
        }
    }
    Ok(())
}

/// Replaces both tables by what the rows of jobs have.
pub(crate) fn compute(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM job_tag", ())?;
    db.execute("DELETE FROM archived_time", ())?;
    db.execute(COMPUTE_TIMES, ())?;
    let mut insert =
        db.prepare("INSERT OR IGNORE INTO job_tag (endpoint, tag, seq) VALUES (?1, ?2, ?3)")?;
    each_tag(db, |endpoint, tag, seq| {
        insert.execute(params![endpoint, tag, seq])?;
        Ok(())
    })
}

/// The number of rows that `job_tag` lacks, and whether it has others.
pub(crate) fn wrong_tags(db: &Connection) -> rusqlite::Result<(u64, bool)> {
    let (mut found, mut missing) = (0_u64, 0);
    let sql = "SELECT 1 FROM job_tag WHERE endpoint = ?1 AND tag = ?2 AND seq = ?3";
    let mut search = db.prepare(sql)?;
    each_tag(db, |endpoint, tag, seq| {
        match search.exists(params![endpoint, tag, seq])? {
            true => found += 1,
            false => missing += 1,
        }
        Ok(())
    })?;
    let all: i64 = db.query_row("SELECT count(*) FROM job_tag", (), |row| row.get(0))?;
    Ok((missing, all.unsigned_abs() > found))
}

/// The number of blocks whose times leave out an archived job.
pub(crate) fn wrong_times(db: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT count(DISTINCT seq / 1024) FROM job LEFT JOIN archived_time ON block = seq / 1024 \
               WHERE archived = 1 AND (block IS NULL OR created_at NOT BETWEEN first_at AND last_at)";
    db.query_row(sql, (), |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Passes the endpoint, the hash and the job of each tag of an archived row to `each`. Damaged tags
/// are left out: their job cannot be read either.
fn each_tag(
    db: &Connection,
    mut each: impl FnMut(u32, i64, i64) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let sql = "SELECT seq, endpoint, tags FROM job WHERE archived = 1 AND tags IS NOT NULL";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let tags = row.get_ref(2)?.as_str().ok().and_then(|text| Tags::from_text(text).ok());
        let (Some(tags), Ok(endpoint)) = (tags, row.get(1)) else { continue };
        // Two tags of a job may have one hash.
        let mut hashes: Vec<_> = tags.iter().map(|(key, value)| hash(key, value)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        for tag in hashes {
            each(endpoint, tag, row.get(0)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_earlier_versions() {
        assert_eq!(hash("", ""), 0xaf63_b04c_8601_a1c8_u64.cast_signed());
        assert_eq!(hash("env", "prod"), 0x8ab6_b03e_df4f_bf02_u64.cast_signed());
        assert_ne!(hash("a", "bc"), hash("ab", "c"));
    }
}
