//! Copies the readable data of a damaged data directory into a new one, and lists the losses.
//!
//! The rows of the tables are copied one by one. All intact frames of the journal that are not
//! checkpointed are applied to them, including those behind damage, and payloads that stayed in the
//! journal move into the tables: the new directory has no journal. A job without its input, or
//! without a part of its result, is useless; it is left out and listed.
//!
//! Cost: one read of everything, and a row for each payload, in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use gristmill_core::backup::{DATABASE, SECRETS_KEY};
use gristmill_core::catalog::CatalogEntry;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::state::JobStatus;
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use crate::checkpoint::segment;
use crate::damage::Damage;
use crate::error::OpenError;
use crate::format::decode;
use crate::format::image::{JobImage, JobLocations, StateImage};
use crate::format::pages;
use crate::format::payload::Kind;
use crate::journal::checksum;
use crate::journal::frame::Frame;
use crate::offline::catalog_rows;
use crate::offline::check::PAYLOAD_TABLES;
use crate::offline::inspect::Inspected;
use crate::offline::job_of_row;
use crate::offline::placeholders;
use crate::private::make_private_dir;
use crate::seal::Seal;
use crate::state::job::JobRow;
use crate::state::owners::Owners;
use crate::tables::archived;
use crate::tables::catalog;
use crate::tables::chunks;
use crate::tables::db::configure;
use crate::tables::deleting;
use crate::tables::found_by;
use crate::tables::jobs::{self, Counted};
use crate::tables::payloads;
use crate::tables::schema;
use crate::tables::sql;
use crate::tables::sql::integer;

/// The tables, each with the first column of its key, which is also the order of reading. `meta` and
/// `catalog` are copied separately; `archived`, `job_tag` and `archived_time` are computed again.
const TABLES: [(&str, &str); 10] = [
    ("endpoint", "seq"),
    ("job", "seq"),
    ("input", "seq"),
    ("output", "seq"),
    ("kept", "seq"),
    ("chunk", "seq"),
    ("delivery", "seq"),
    ("delivery_body", "seq"),
    ("repeat", "seq"),
    ("usage", "hour"),
];

/// The same for tables that the oldest versions do not have.
const NEWER_TABLES: [(&str, &str); 2] = [("deleting", "endpoint"), ("job_action", "id")];

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Data that could not be read, and the jobs that were left out for that reason.
    pub losses: Vec<Damage>,
    /// Jobs in the new directory.
    pub jobs: u64,
    /// The components that the first start on the new directory keeps; `None` when the catalog cannot
    /// be read without its key.
    pub kept_components: Option<BTreeSet<ComponentDigest>>,
}

/// Copies the readable data of the directory `dir` into `output`, which is created, or empty.
/// `secrets_key` is the file with the key of the secrets, unless it is in the directory.
///
/// # Errors
/// [`OpenError`] when nothing can be saved: the first page of the tables, which records the last
/// checkpoint, is unreadable, the key file does not have all keys that the directory needs, or
/// `output` cannot be written.
pub fn repair(
    dir: &Path,
    output: &Path,
    secrets_key: Option<&Path>,
) -> Result<Repaired, OpenError> {
    let inspected = Inspected::open(dir, secrets_key)?;
    let repaired = copy(&inspected, output)?;
    let in_output = |source| OpenError::Directory { dir: output.to_owned(), source };
    if dir.join(SECRETS_KEY).exists() {
        fs::copy(dir.join(SECRETS_KEY), output.join(SECRETS_KEY)).map_err(in_output)?;
    }
    for name in [DATABASE, SECRETS_KEY, "."] {
        let file = fs::File::open(output.join(name));
        match file.and_then(|file| file.sync_all()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(in_output(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(repaired)
}

/// Copies the readable rows of a directory, and all payloads, into new tables in `output`, which is created,
/// or empty. They are not synced.
///
/// # Errors
/// As above.
pub(crate) fn copy(inspected: &Inspected, output: &Path) -> Result<Repaired, OpenError> {
    // Records that only a missing key decrypts are no damage.
    inspected.check_keys()?;
    let in_output = |source| OpenError::Directory { dir: output.to_owned(), source };
    make_private_dir(output).map_err(in_output)?;
    let file = output.join(DATABASE);
    let mut to = Connection::open(&file)?;
    to.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    configure(&to)?;
    schema::migrate(&mut to, 0)?;
    let mut repair = Repair {
        to: &to,
        inspected,
        losses: inspected.journal.damage.clone(),
        orphans: BTreeMap::new(),
        lost_endpoints: Vec::new(),
        has_lost_records: false,
    };
    let transaction = to.unchecked_transaction()?;
    repair.copy_meta()?;
    for (table, key) in TABLES {
        repair.copy_table(table, key)?;
    }
    repair.copy_catalog()?;
    for (table, key) in NEWER_TABLES {
        if inspected.db.table_exists(None, table)? {
            repair.copy_table(table, key)?;
        }
    }
    repair.play_journal()?;
    repair.move_kept()?;
    let seal = repair.leave_out_damaged_records()?;
    repair.name_endpoints()?;
    let mut kept_components = None;
    if let Some(seal) = seal {
        repair.replace_records(seal)?;
        kept_components = Some(placeholders::kept_components(&to, seal)?);
    }
    repair.leave_out_unusable()?;
    archived::compute_sums(&to)?;
    found_by::compute(&to)?;
    let jobs = to.query_row("SELECT count(*) FROM job", (), |row| row.get::<_, i64>(0))?;
    let losses = repair.losses;
    transaction.commit()?;
    to.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
    to.close().map_err(|(_, error)| error)?;
    Ok(Repaired { losses, jobs: jobs.unsigned_abs(), kept_components })
}

struct Repair<'a> {
    to: &'a Connection,
    inspected: &'a Inspected,
    losses: Vec<Damage>,
    /// Changed jobs whose submission was not found, by their numbers.
    orphans: BTreeMap<u64, Option<JobId>>,
    /// Names of the endpoints whose records were left out.
    lost_endpoints: Vec<String>,
    /// Whether records of the catalog could not be read.
    has_lost_records: bool,
}

impl<'a> Repair<'a> {
    fn record_loss(&mut self, file: &Path, offset: Option<u64>, details: String) {
        self.losses.push(Damage { file: file.to_owned(), offset, details });
    }

    fn record_table_losses(&mut self, details: String) {
        let file = self.inspected.file.clone();
        self.record_loss(&file, None, details);
    }

    /// The new directory gets the state of a journal that ended in order before its first segment.
    fn copy_meta(&self) -> rusqlite::Result<()> {
        let (node, sealed): (u16, Vec<u8>) =
            self.inspected.db.query_row("SELECT node, sealed FROM meta", (), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let journal = &self.inspected.journal.segments;
        let last = journal.keys().next_back().copied().max(Some(self.inspected.known.last));
        let last = last.map_or(0, |last| last.0);
        let sql = "INSERT INTO meta (id, node, is_clean, sealed, settled, journal_last) \
                   VALUES (1, ?1, 1, ?2, ?3, ?3)";
        self.to.execute(sql, params![node, sealed, last])?;
        Ok(())
    }

    fn copy_catalog(&mut self) -> rusqlite::Result<()> {
        let losses = catalog_rows::copy(&self.inspected.db, self.to)?;
        self.has_lost_records = !losses.is_empty();
        losses.into_iter().for_each(|sentence| self.record_table_losses(sentence));
        Ok(())
    }

    /// Copies the readable rows of a table. After an unreadable page it continues with the next key
    /// that can be found.
    fn copy_table(&mut self, table: &str, key: &str) -> rusqlite::Result<()> {
        let from = &self.inspected.db;
        let sql = format!("SELECT * FROM {table} WHERE ?1 IS NULL OR {key} >= ?1 ORDER BY {key}");
        let mut next = Value::Null;
        loop {
            let mut last = next.clone();
            match self.copy_rows(&sql, table, key, &next, &mut last) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let found = match &last {
                        Value::Integer(last) => find_key(from, table, key, *last),
                        Value::Null => find_key(from, table, key, -1),
                        Value::Real(_) | Value::Text(_) | Value::Blob(_) => None,
                    };
                    let until = found
                        .map_or_else(|| "the end".to_owned(), |found| format!("{key} {found}"));
                    let since = match last {
                        Value::Integer(last) => format!("{key} {last}"),
                        Value::Text(last) => format!("{key} {last}"),
                        Value::Null | Value::Real(_) | Value::Blob(_) => "its beginning".to_owned(),
                    };
                    let details = format!(
                        "the table `{table}` cannot be read after {since}, up to {until}: {error}"
                    );
                    self.record_table_losses(details);
                    let Some(found) = found else {
                        // Rows behind the damage are reached from the other end.
                        let backwards =
                            format!("SELECT * FROM {table} WHERE ?1 IS NULL ORDER BY {key} DESC");
                        let mut last = Value::Null;
                        let _ = self.copy_rows(&backwards, table, key, &Value::Null, &mut last);
                        return Ok(());
                    };
                    next = Value::Integer(found);
                }
            }
        }
    }

    /// Sets `last` to the key of the row that was copied last.
    fn copy_rows(
        &mut self,
        sql: &str,
        table: &str,
        key: &str,
        next: &Value,
        last: &mut Value,
    ) -> rusqlite::Result<()> {
        let mut statement = self.inspected.db.prepare(sql)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let key_at = names.iter().position(|name| name == key).unwrap_or(0);
        let holes = vec!["?"; names.len()].join(", ");
        let insert =
            format!("INSERT OR REPLACE INTO {table} ({}) VALUES ({holes})", names.join(", "));
        let mut rows = statement.query([next])?;
        while let Some(row) = rows.next()? {
            let values = (0..names.len()).map(|n| row.get::<_, Value>(n));
            let values = values.collect::<rusqlite::Result<Vec<_>>>()?;
            let found = values.get(key_at).cloned().unwrap_or(Value::Null);
            if let Err(error) = self.to.prepare_cached(&insert)?.execute(params_from_iter(values)) {
                self.losses.push(Damage {
                    file: self.inspected.file.clone(),
                    offset: None,
                    details: format!("a row of the table `{table}` is invalid: {error}"),
                });
            }
            *last = found;
        }
        Ok(())
    }

    fn play_journal(&mut self) -> Result<(), OpenError> {
        let inspected = self.inspected;
        for segment in inspected.journal.uncheckpointed() {
            let path = inspected.journal_dir.join(segment.file.name());
            let (mut gaps, mut failed) = (Vec::new(), None);
            segment.each_frame(
                |at, frame| {
                    let played = self.play_frame(&path, at, frame);
                    failed = failed.take().or_else(|| played.err());
                },
                |from, to| gaps.push((from, to)),
            )?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            for (from, to) in gaps {
                let until = to.map_or_else(|| "its end".to_owned(), |to| format!("byte {to}"));
                let details = format!(
                    "the journal cannot be read from here to {until}: jobs that were submitted in it \
                     are lost, and changes of others"
                );
                self.record_loss(&path, Some(from.into()), details);
            }
        }
        for (seq, id) in std::mem::take(&mut self.orphans) {
            let id = id.map_or_else(|| format!("of row {seq}"), |id| id.to_string());
            self.record_table_losses(format!("job {id} is lost: its submission cannot be read"));
        }
        Ok(())
    }

    fn play_frame(&mut self, path: &Path, at: u32, frame: &Frame<'_>) -> rusqlite::Result<()> {
        let (image, locations) = match decode::frame(frame) {
            Ok(read) => read,
            Err(error) => {
                self.record_loss(path, Some(at.into()), error.to_string());
                return Ok(());
            }
        };
        if let Err(error) = segment::write_rest(self.to, &image, &locations, frame) {
            self.record_loss(path, Some(at.into()), format!("a part of this frame: {error}"));
        }
        for (job, locations) in image.jobs.iter().zip(&locations) {
            if let Err(details) = self.play_job(job, locations, frame)? {
                self.record_loss(path, Some(at.into()), details);
            }
        }
        Ok(())
    }

    /// Applies a frame's entry of a job to the tables.
    fn play_job(
        &mut self,
        job: &JobImage<'_>,
        locations: &JobLocations,
        frame: &Frame<'_>,
    ) -> rusqlite::Result<Result<(), String>> {
        let (to, seq) = (self.to, job.seq);
        let damaged = |what: &str| Ok(Err(format!("{what} of the job of row {seq} is damaged")));
        match &job.state {
            StateImage::Deleted { .. } => {
                self.orphans.remove(&seq);
                jobs::delete(to, seq)?;
                payloads::delete(to, seq, true)?;
                chunks::delete(to, seq)?;
                return Ok(Ok(()));
            }
            StateImage::New { fixed, row, .. } => {
                if JobRow::of(row).is_err() {
                    return damaged("the state");
                }
                jobs::insert(to, job, fixed, row, Counted::of(job))?;
            }
            StateImage::Changed(row) => {
                let Ok(decoded) = JobRow::of(row) else { return damaged("the state") };
                let sql = "SELECT count(*) FROM job WHERE seq = ?1";
                let rows: i64 = to.query_row(sql, [integer(seq)], |row| row.get(0))?;
                if rows == 0 {
                    self.orphans.insert(seq, job.job_id());
                    return Ok(Ok(()));
                }
                jobs::update(to, seq, row, None)?;
                // The journal is newer than the mark.
                to.execute("UPDATE job SET archived = 0 WHERE seq = ?1", [integer(seq)])?;
                if !decoded.needs_input() {
                    payloads::delete_input(to, seq)?;
                }
            }
        }
        if job.clears_result {
            chunks::delete(to, seq)?;
            payloads::delete_output(to, seq)?;
        }
        let mut result = Ok(());
        let whole = [(Kind::Input, locations.input), (Kind::Output, locations.output)];
        for (kind, location) in
            whole.into_iter().filter_map(|(kind, location)| Some((kind, location?)))
        {
            payloads::unkeep(to, seq, kind)?;
            match frame.payload(location) {
                Ok(bytes) => payloads::put(to, seq, kind, &bytes)?,
                Err(error) => result = Err(error.to_string()),
            }
        }
        for &(first, location) in &locations.pages {
            match frame.payload(location) {
                Ok(bytes) => chunks::put(to, seq, first, &bytes)?,
                Err(error) => result = Err(error.to_string()),
            }
        }
        Ok(result)
    }

    /// Moves payloads that stay in the journal into the tables.
    fn move_kept(&mut self) -> Result<(), OpenError> {
        let mut kept = Vec::new();
        payloads::load_kept(self.to, |seq, kind, location| kept.push((seq, kind, location)))?;
        for (seq, kind, location) in kept {
            match self.inspected.journal.payload(&self.inspected.journal_dir, location)? {
                Ok(bytes) => payloads::put(self.to, seq, kind, &bytes)?,
                Err(damage) => self.losses.push(damage),
            }
            payloads::unkeep(self.to, seq, kind)?;
        }
        Ok(())
    }

    /// Finds the name of an endpoint whose row is lost, or has a damaged name, among the endpoints of the catalog, if only
    /// one is missing.
    fn name_endpoints(&mut self) -> rusqlite::Result<()> {
        for name in sql::list::<String>(self.to, "SELECT name FROM endpoint")? {
            if let Err(error) = EndpointId::new(&name) {
                self.to.execute("DELETE FROM endpoint WHERE name = ?1", [&name])?;
                self.record_table_losses(format!("the name of an endpoint is damaged: {error}"));
            }
        }
        let sql =
            "SELECT DISTINCT endpoint FROM job WHERE endpoint NOT IN (SELECT seq FROM endpoint)";
        let nameless: Vec<i64> = sql::list(self.to, sql)?;
        if nameless.is_empty() {
            return Ok(());
        }
        let named: BTreeSet<String> =
            sql::list(self.to, "SELECT name FROM endpoint")?.into_iter().collect();
        let bodies = match &self.inspected.seal {
            Some(seal) => catalog::read(self.to, seal).unwrap_or_default(),
            None => Vec::new(),
        };
        let entries = bodies.iter().filter_map(|body| match catalog::parse(body).ok()? {
            CatalogEntry::Endpoint(endpoint) => Some(endpoint.id.to_string()),
            _ => None,
        });
        let free: Vec<_> = entries.filter(|name| !named.contains(name)).collect();
        if let ([number], [name]) = (&nameless[..], &free[..]) {
            let sql = "INSERT INTO endpoint (seq, name, completed, failed, retried) \
                       VALUES (?1, ?2, 0, 0, 0)";
            self.to.execute(sql, params![number, name])?;
        }
        Ok(())
    }

    /// Removes the records of the catalog that cannot be decrypted or parsed. Returns the key of the
    /// secrets; `None` when there is no key, or the wrong one: then all records stay as they are.
    fn leave_out_damaged_records(&mut self) -> rusqlite::Result<Option<&'a Seal>> {
        let inspected = self.inspected;
        let Some(seal) = &inspected.seal else {
            if self.to.prepare("SELECT 1 FROM catalog")?.exists(())? {
                self.record_table_losses(catalog::NOT_READ.to_owned());
            }
            return Ok(None);
        };
        let (mut records, mut damaged) = (0, Vec::new());
        catalog::each(self.to, seal, |kind, name, body| {
            records += 1;
            if body.is_none_or(|body| catalog::parse(&body).is_err()) {
                damaged.push((kind.to_owned(), name.to_owned()));
            }
            Ok(())
        })?;
        if records > 0 && damaged.len() == records {
            // If no record can be read, the key is probably the wrong one: damage rarely affects
            // all records.
            let sentence = "no record of the catalog can be decrypted with this key; they are copied \
                            as they are";
            self.record_table_losses(sentence.to_owned());
            return Ok(None);
        }
        self.has_lost_records |= !damaged.is_empty();
        for (kind, name) in damaged {
            self.to.execute(
                "DELETE FROM catalog WHERE kind = ?1 AND name = ?2",
                params![kind, name],
            )?;
            self.record_table_losses(format!(
                "the {kind} `{name}` of the catalog is lost: it is damaged"
            ));
            if kind == "endpoint" {
                self.lost_endpoints.push(name);
            }
        }
        Ok(Some(seal))
    }

    /// Adds placeholders for lost endpoints, whose jobs a start would delete, and for the lost
    /// templates of endpoints.
    fn replace_records(&mut self, seal: &Seal) -> rusqlite::Result<()> {
        let mut lost = std::mem::take(&mut self.lost_endpoints);
        // Records in damaged pages are known only by their jobs.
        lost.extend(
            deleting::Endpoints::default()
                .without_record(self.to, self.has_lost_records)?
                .into_iter()
                .map(|(name, _)| name),
        );
        lost.sort_unstable();
        lost.dedup();
        let mut sentences = placeholders::add_endpoints(self.to, seal, &lost)?;
        sentences.extend(placeholders::add(self.to, seal)?);
        sentences.into_iter().for_each(|sentence| self.record_table_losses(sentence));
        Ok(())
    }

    /// Removes what cannot be used without the parts that are lost.
    fn leave_out_unusable(&mut self) -> rusqlite::Result<()> {
        self.leave_out_damaged_payloads()?;
        let mut owners = Owners::default();
        let mut lost = Vec::new();
        let mut statement = self.to.prepare(jobs::SELECT_JOBS)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            match job_of_row(row, &mut owners) {
                Ok(job) => {
                    let why = self.missing_part(seq, &job)?;
                    lost.extend(why.map(|why| (seq, format!("job {} is lost: {why}", job.id))));
                }
                Err(error) => lost.push((seq, format!("the job of row {seq} is lost: {error}"))),
            }
        }
        drop(rows);
        for (seq, details) in lost {
            jobs::delete(self.to, seq.unsigned_abs())?;
            payloads::delete(self.to, seq.unsigned_abs(), true)?;
            chunks::delete(self.to, seq.unsigned_abs())?;
            self.record_table_losses(details);
        }
        let sql = "SELECT seq FROM delivery WHERE state = 0 AND seq NOT IN \
                   (SELECT seq FROM delivery_body)";
        for seq in sql::list::<i64>(self.to, sql)? {
            self.to.execute("DELETE FROM delivery WHERE seq = ?1", [seq])?;
            self.record_table_losses(format!("webhook {seq} is lost: its body cannot be read"));
        }
        Ok(())
    }

    /// The lost part that makes a job useless, if there is one.
    fn missing_part(
        &self,
        seq: i64,
        job: &crate::state::job::Job,
    ) -> rusqlite::Result<Option<&'static str>> {
        let has = |sql: &str| self.to.query_row(sql, [seq], |row| row.get::<_, bool>(0));
        if !has(
            "SELECT EXISTS (SELECT 1 FROM endpoint e JOIN job j ON e.seq = j.endpoint WHERE j.seq = ?1)",
        )? {
            return Ok(Some("the name of its endpoint cannot be read"));
        }
        if job.row.needs_input() && !has("SELECT EXISTS (SELECT 1 FROM input WHERE seq = ?1)")? {
            return Ok(Some("its input cannot be read"));
        }
        // Other FAILED jobs have an output only if they had progress: nothing in their rows shows whether
        // it is missing, and without it a client still gets the error and can retry the job.
        let needs_output = job.row.status == Some(JobStatus::Completed) || job.row.has_cut_error();
        if needs_output && !has("SELECT EXISTS (SELECT 1 FROM output WHERE seq = ?1)")? {
            return Ok(Some("its output cannot be read"));
        }
        Ok((!self.has_chunks(seq, job.row.chunk_count())?).then_some("its chunks cannot be read"))
    }

    /// Whether all chunks of a job exist, without a gap.
    fn has_chunks(&self, seq: i64, count: u64) -> rusqlite::Result<bool> {
        let sql = "SELECT first, body FROM chunk WHERE seq = ?1 ORDER BY first";
        let mut statement = self.to.prepare_cached(sql)?;
        let mut rows = statement.query([seq])?;
        let mut next = 0;
        while let Some(row) = rows.next()? {
            let first = row.get::<_, i64>(0)?.unsigned_abs();
            match pages::Page::decode(first, row.get::<_, Vec<u8>>(1)?.into()) {
                Some(page) if first <= next => next = next.max(first + page.chunks.len() as u64),
                Some(_) | None => return Ok(false),
            }
        }
        Ok(next >= count)
    }

    fn leave_out_damaged_payloads(&mut self) -> rusqlite::Result<()> {
        for table in PAYLOAD_TABLES {
            let key = if table == "chunk" { "first" } else { "seq" };
            let mut damaged: Vec<(i64, i64)> = Vec::new();
            let mut statement =
                self.to.prepare(&format!("SELECT seq, {key}, body, sum FROM {table}"))?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                let body = row.get_ref(2)?.as_blob()?;
                if !sql::is_whole(body, row.get(3)?) {
                    damaged.push((row.get(0)?, row.get(1)?));
                }
            }
            drop(rows);
            for (seq, second) in damaged {
                let sql = format!("DELETE FROM {table} WHERE seq = ?1 AND {key} = ?2");
                self.to.execute(&sql, [seq, second])?;
                self.record_table_losses(format!("row {seq} of the table `{table}` is damaged"));
            }
        }
        self.add_sums()
    }

    /// Adds checksums to rows of version 6.
    fn add_sums(&self) -> rusqlite::Result<()> {
        for table in PAYLOAD_TABLES {
            let key = if table == "chunk" { "first" } else { "seq" };
            let sql = format!("SELECT seq, {key}, body FROM {table} WHERE sum IS NULL");
            let mut statement = self.to.prepare(&sql)?;
            let rows = statement.query_map((), |row| {
                let sum = checksum::of(row.get_ref(2)?.as_blob()?);
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, sum))
            })?;
            for row in rows.collect::<rusqlite::Result<Vec<_>>>()? {
                let sql = format!("UPDATE {table} SET sum = ?3 WHERE seq = ?1 AND {key} = ?2");
                self.to.execute(&sql, row)?;
            }
        }
        Ok(())
    }
}

/// The smallest key that can be found behind `after`, with growing steps, so that the unreadable
/// page is skipped.
fn find_key(db: &Connection, table: &str, key: &str, after: i64) -> Option<i64> {
    let sql = format!("SELECT {key} FROM {table} WHERE {key} >= ?1 ORDER BY {key} LIMIT 1");
    let mut step = 1_i64;
    loop {
        let from = after.checked_add(step)?;
        match db.query_row(&sql, [from], |row| row.get(0)) {
            Ok(found) => return Some(found),
            Err(rusqlite::Error::QueryReturnedNoRows) => return None,
            Err(_) => step = step.checked_mul(2)?,
        }
    }
}
