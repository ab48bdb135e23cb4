//! Copies the rows of a table around pages that cannot be read.
//!
//! **Promise.** An unreadable page costs the rows in it, and of several such pages each costs its
//! own: behind one the copy continues with the first number that can be found. Exceptions are rows
//! behind such a page that have the same first number, as the rows of an hour of usage: these are
//! read from their end, so that two unreadable pages in one hour also cost the rows between them.
//! **Cost.** Each row is read once. An unreadable page costs up to some thousand lookups.

use std::collections::HashSet;

use rusqlite::types::Value;
use rusqlite::{Connection, Params, params_from_iter};

use crate::tables::sql;

/// The part of the distance from the last readable row by which each step of a search is longer
/// than the step before it. So a search passes over no readable pages, unless they have few
/// numbers.
const STEPS: i64 = 32;

/// A table, and the columns of its key. The first column is a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) key: &'static [&'static str],
}

/// What a copy has lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// A sentence for each unreadable place, and for each row with invalid values.
    pub(super) sentences: Vec<String>,
    /// The first numbers in the keys of the rows with invalid values.
    pub(super) invalid: Vec<i64>,
}

/// Copies the readable rows of a table.
///
/// # Errors
/// Those of the new tables, unless the values of one row are their reason.
pub(super) fn copy(from: &Connection, to: &Connection, table: Table) -> rusqlite::Result<Losses> {
    let mut copy = Copy { from, to, table, losses: Losses::default(), listed: HashSet::new() };
    let Table { name, key } = table;
    let (first, mut begin) = (copy.first(), None);
    loop {
        let mut last = begin;
        let damage = match begin {
            None => copy.rows(&format!("ORDER BY {}", key.join(", ")), (), &mut last)?,
            Some(begin) => {
                let rest = format!("WHERE {first} >= ?1 ORDER BY {}", key.join(", "));
                copy.rows(&rest, [begin], &mut last)?
            }
        };
        let Some(damage) = damage else { break };
        // Numbers begin with 0.
        let after = last.unwrap_or(-1);
        let next = copy.find_behind(after);
        let from_end = copy.backwards(after, next)?;
        let since =
            last.map_or_else(|| "its beginning".to_owned(), |last| format!("{first} {last}"));
        let until = from_end.or(next);
        let until = until.map_or_else(|| "the end".to_owned(), |until| format!("{first} {until}"));
        copy.losses.sentences.push(format!(
            "the table `{name}` cannot be read after {since}, up to {until}: {damage}"
        ));
        let Some(next) = next else { break };
        begin = Some(next);
    }
    Ok(copy.losses)
}

struct Copy<'a> {
    from: &'a Connection,
    to: &'a Connection,
    table: Table,
    losses: Losses,
    /// The sentences about invalid rows.
    listed: HashSet<String>,
}

/// The answer to the question for a row with a number, or with the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Row(i64),
    /// There is no such row.
    End,
    Unreadable,
}

impl Copy<'_> {
    /// The first column of the key.
    fn first(&self) -> &'static str {
        self.table.key.first().copied().unwrap_or("rowid")
    }

    /// A query of all columns, after the first one of the key.
    fn select(&self, rest: &str) -> String {
        format!("SELECT {}, t.* FROM {} AS t {rest}", self.first(), self.table.name)
    }

    /// Copies the rows of a query, and sets `last` to the first number of the row that was read
    /// last. Returns the error that ended the reading.
    fn rows(
        &mut self,
        rest: &str,
        params: impl Params,
        last: &mut Option<i64>,
    ) -> rusqlite::Result<Option<rusqlite::Error>> {
        let mut statement = match self.from.prepare(&self.select(rest)) {
            Ok(statement) => statement,
            Err(error) => return Ok(Some(error)),
        };
        let names: Vec<String> = statement.column_names().skip(1).map(str::to_owned).collect();
        let holes = vec!["?"; names.len()].join(", ");
        let insert = format!(
            "INSERT OR REPLACE INTO {} ({}) VALUES ({holes})",
            self.table.name,
            names.join(", ")
        );
        let mut rows = match statement.query(params) {
            Ok(rows) => rows,
            Err(error) => return Ok(Some(error)),
        };
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error)),
            };
            let number: i64 = match row.get(0) {
                Ok(number) => number,
                Err(error) => return Ok(Some(error)),
            };
            let values = (1..=names.len()).map(|column| row.get::<_, Value>(column));
            let written = match values.collect::<rusqlite::Result<Vec<_>>>() {
                Ok(values) => {
                    let insert = self.to.prepare_cached(&insert)?.execute(params_from_iter(values));
                    sql::of_row(insert)?.map(drop)
                }
                // For example a text that is no UTF-8.
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                self.lose(number, &error);
            }
            *last = Some(number);
        }
    }

    fn lose(&mut self, number: i64, error: &rusqlite::Error) {
        let (first, name) = (self.first(), self.table.name);
        let sentence =
            format!("the row with {first} {number} of the table `{name}` is invalid: {error}");
        // Rows that are read from both ends are listed once.
        if self.listed.insert(sentence.clone()) {
            self.losses.sentences.push(sentence);
            self.losses.invalid.push(number);
        }
    }

    /// Copies the rows behind `after`, and before `until`, from their end up to the first one that
    /// cannot be read. Returns the number of the last one that was read.
    fn backwards(&mut self, after: i64, until: Option<i64>) -> rusqlite::Result<Option<i64>> {
        // Further rows can have the same first number.
        let from = if self.table.key.len() > 1 { after.max(0) } else { after.saturating_add(1) };
        let until = until.map_or(i64::MAX, |until| until.saturating_sub(1));
        let order = self.table.key.join(" DESC, ");
        let rest = format!("WHERE {} BETWEEN ?1 AND ?2 ORDER BY {order} DESC", self.first());
        let mut last = None;
        self.rows(&rest, [from, until], &mut last)?;
        Ok(last)
    }

    fn probe(&self, at: i64) -> Probe {
        let first = self.first();
        // All columns: those of a large row are in further pages.
        let sql = self.select(&format!("WHERE {first} >= ?1 ORDER BY {first} LIMIT 1"));
        let found = self
            .from
            .prepare_cached(&sql)
            .and_then(|mut find| find.query_row([at], |row| row.get(0)));
        match found {
            Ok(found) if found >= at => Probe::Row(found),
            Err(rusqlite::Error::QueryReturnedNoRows) => Probe::End,
            Ok(_) | Err(_) => Probe::Unreadable,
        }
    }

    /// The smallest number behind `after` whose row can be read: the steps of the search grow until
    /// they are behind the unreadable page, and then the last step is halved.
    fn find_behind(&self, after: i64) -> Option<i64> {
        let (mut unreadable, mut readable) = (after, after.checked_add(1)?);
        let mut found = self.probe(readable);
        while found == Probe::Unreadable {
            if readable == i64::MAX {
                return None;
            }
            unreadable = readable;
            let step = (readable.saturating_sub(after) / STEPS).max(1);
            readable = readable.saturating_add(step);
            found = self.probe(readable);
        }
        while readable - unreadable > 1 {
            let middle = unreadable + (readable - unreadable) / 2;
            match self.probe(middle) {
                Probe::Unreadable => unreadable = middle,
                probe => (readable, found) = (middle, probe),
            }
        }
        match found {
            Probe::Row(number) => Some(number),
            Probe::End | Probe::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ErrorCode;

    use super::*;

    const TABLE: Table = Table { name: "t", key: &["seq"] };

    fn table(rows: i64) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)").unwrap();
        for seq in 0..rows {
            db.execute("INSERT INTO t VALUES (?1, zeroblob(10000))", [seq]).unwrap();
        }
        db
    }

    /// Otherwise each row would be listed as a damaged one.
    #[test]
    fn a_full_disk_ends_the_copy() {
        let (from, to) = (table(10), table(0));
        to.pragma_update(None, "max_page_count", 8).unwrap();
        let error = copy(&from, &to, TABLE).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{error}");
        assert_eq!(copy(&from, &table(0), TABLE).unwrap().sentences, Vec::<String>::new());
    }

    #[test]
    fn a_row_with_invalid_values_is_listed_and_left_out() {
        let (from, to) = (table(3), table(0));
        let sql = "ALTER TABLE t ADD COLUMN name TEXT";
        from.execute_batch(sql).unwrap();
        to.execute_batch(sql).unwrap();
        from.execute("UPDATE t SET name = CAST(x'ff' AS TEXT) WHERE seq = 1", ()).unwrap();
        let lost = copy(&from, &to, TABLE).unwrap();
        assert_eq!((lost.sentences.len(), lost.invalid), (1, vec![1]));
        assert_eq!(sql::list::<i64>(&to, "SELECT seq FROM t ORDER BY seq").unwrap(), [0, 2]);
    }
}
