//! Copies the readable data of a damaged data directory into a new one, and lists the losses.
//!
//! The rows of the tables are copied one by one. All intact frames of the journal that are not
//! checkpointed are applied to them, including those behind damage, and payloads that stayed in the
//! journal move into the tables: the new directory has no journal. A job without its input, or
//! without a part of its result, is useless; it is left out and listed.
//!
//! At the end the new tables are read as a start reads them.
//!
//! Cost: one read of everything, and a row for each payload, in one transaction; for the last step
//! the memory of a host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::Path;

use gristmill_core::backup::{DATABASE, SECRETS_KEY};
use gristmill_core::catalog::CatalogEntry;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::JobId;
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::DeliveryId;
use rusqlite::{Connection, params, params_from_iter};

use crate::checkpoint::segment;
use crate::damage::Damage;
use crate::error::OpenError;
use crate::format::decode;
use crate::format::image::{JobImage, JobLocations, StateImage};
use crate::format::payload::Kind;
use crate::journal::frame::Frame;
use crate::offline::catalog_rows;
use crate::offline::check::PAYLOAD_TABLES;
use crate::offline::inspect::Inspected;
use crate::offline::job_of_row;
use crate::offline::parts::{self, Newer};
use crate::offline::placeholders;
use crate::offline::table_rows::{self, Table};
use crate::private::{make_private_dir, open_private_file};
use crate::recover;
use crate::seal::Seal;
use crate::state::job::JobRow;
use crate::state::owners::Owners;
use crate::tables::archived;
use crate::tables::catalog;
use crate::tables::chunks;
use crate::tables::db::configure;
use crate::tables::deleting;
use crate::tables::delivery;
use crate::tables::endpoints;
use crate::tables::found_by;
use crate::tables::idempotency;
use crate::tables::jobs::{self, Counted};
use crate::tables::payloads;
use crate::tables::schedules;
use crate::tables::schema;
use crate::tables::sql;
use crate::tables::sql::integer;
use crate::tables::usage;

/// The tables, each with its key, which is also the order of reading. `meta` and `catalog` are
/// copied separately; `archived`, `job_tag` and `archived_time` are computed again.
const TABLES: [Table; 13] = [
    Table { name: "endpoint", key: &["seq"] },
    Table { name: "job", key: &["seq"] },
    Table { name: "input", key: &["seq"] },
    Table { name: "output", key: &["seq"] },
    Table { name: "kept", key: &["seq", "kind"] },
    Table { name: "chunk", key: &["seq", "first"] },
    Table { name: "delivery", key: &["seq"] },
    Table { name: "delivery_body", key: &["seq"] },
    Table { name: "repeat", key: &["seq"] },
    Table { name: "usage", key: &usage::KEY },
    Table { name: "deleting", key: &["endpoint"] },
    Table { name: "schedule", key: &["number"] },
    // Its key is a text, so the number of the row is used.
    Table { name: "job_action", key: &["rowid"] },
];

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Data that could not be read, and the jobs that were left out for that reason.
    pub losses: Vec<Damage>,
    /// Jobs in the new directory.
    pub jobs: u64,
    /// The components that the first start on the new directory keeps; `None` when the catalog
    /// cannot be read without its key.
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
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(in_output(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(repaired)
}

/// Copies the readable rows of a directory, and all payloads, into new tables in `output`, which is
/// created, or empty. They are not synced.
///
/// # Errors
/// As above.
pub(crate) fn copy(inspected: &Inspected, output: &Path) -> Result<Repaired, OpenError> {
    copy_into(inspected, output).map_err(|error| match error {
        // The sentence of a start would name the wrong directory.
        OpenError::DiskFull(details) => OpenError::Directory {
            dir: output.to_owned(),
            source: io::Error::new(io::ErrorKind::StorageFull, details),
        },
        error => error,
    })
}

fn copy_into(inspected: &Inspected, output: &Path) -> Result<Repaired, OpenError> {
    // Records that only a missing key decrypts are no damage.
    let new_word = match inspected.check_keys() {
        Ok(()) => None,
        Err(error) => Some(inspected.word_in_place_of_damaged().ok_or(error)?),
    };
    let in_output = |source| OpenError::Directory { dir: output.to_owned(), source };
    make_private_dir(output).map_err(in_output)?;
    let file = output.join(DATABASE);
    // Before SQLite would create it, for everyone to read.
    drop(open_private_file(&file).map_err(in_output)?);
    let mut to = Connection::open(&file)?;
    to.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    configure(&to)?;
    schema::create(&mut to)?;
    let mut repair = Repair {
        to: &to,
        inspected,
        losses: inspected.journal.damage.clone(),
        orphans: BTreeMap::new(),
        lost_endpoints: Vec::new(),
        has_lost_records: false,
        lost_jobs: Vec::new(),
    };
    let transaction = to.unchecked_transaction()?;
    repair.copy_meta(new_word)?;
    repair.copy_tables()?;
    repair.play_journal()?;
    repair.move_kept()?;
    let kept_components = repair.repair_catalog()?;
    repair.leave_out_damaged_rows()?;
    repair.leave_out_unusable()?;
    archived::compute_sums(&to)?;
    found_by::compute(&to)?;
    repair.try_tables()?;
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
    /// Numbers of jobs that were left out.
    lost_jobs: Vec<u64>,
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
    /// The newest time and the number of starts stay: a start after the repair detects a wrong
    /// clock, and no earlier worker has its epoch. `new_word` takes the place of a damaged text
    /// that shows the keys.
    fn copy_meta(&mut self, new_word: Option<Vec<u8>>) -> rusqlite::Result<()> {
        let Inspected { db, seen_at, journal, known, .. } = self.inspected;
        let sql = "SELECT shard, sealed, starts FROM meta";
        let (shard, sealed, starts): (u16, Vec<u8>, i64) =
            db.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        // A start refuses other numbers.
        let starts = starts.clamp(0, (u32::MAX - 1).into());
        let last = journal.segments.keys().next_back().copied().max(Some(known.last));
        let last = last.map_or(0, |last| last.0);
        let seen_at = seen_at.map(|seen_at| integer(seen_at.as_millis()));
        if new_word.is_some() {
            let sentence = "the text that shows which keys the directory needs is damaged: a new one is \
                            written, since the key decrypts records of the catalog";
            self.record_table_losses(sentence.to_owned());
        }
        let sealed = new_word.unwrap_or(sealed);
        let sql = "INSERT INTO meta \
                   (id, shard, is_clean, sealed, checkpointed, journal_last, seen_at, starts) \
                   VALUES (1, ?1, 1, ?2, ?3, ?3, ?4, ?5)";
        self.to.execute(sql, params![shard, sealed, last, seen_at, starts])?;
        Ok(())
    }

    fn copy_tables(&mut self) -> rusqlite::Result<()> {
        for table in TABLES {
            self.copy_table(table)?;
        }
        self.copy_catalog()
    }

    fn copy_table(&mut self, table: Table) -> rusqlite::Result<()> {
        let lost = table_rows::copy(&self.inspected.db, self.to, table)?;
        lost.sentences.into_iter().for_each(|sentence| self.record_table_losses(sentence));
        if table.name == "job" {
            self.lost_jobs.extend(lost.invalid.into_iter().map(i64::unsigned_abs));
        }
        Ok(())
    }

    fn copy_catalog(&mut self) -> rusqlite::Result<()> {
        let losses = catalog_rows::copy(&self.inspected.db, self.to)?;
        self.has_lost_records = !losses.is_empty();
        losses.into_iter().for_each(|sentence| self.record_table_losses(sentence));
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
            self.lost_jobs.push(seq);
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
        let written = segment::write_rest(self.to, &image, &locations, frame);
        if let Err(error) = sql::of_row(written)? {
            self.record_loss(path, Some(at.into()), format!("a part of this frame: {error}"));
        }
        for (job, locations) in image.jobs.iter().zip(&locations) {
            let played = self.play_job(job, locations, frame);
            let played = sql::of_row(played)?.unwrap_or_else(|error| {
                Err(format!("a part of the job of row {}: {error}", job.seq))
            });
            if let Err(details) = played {
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
    fn move_kept(&mut self) -> rusqlite::Result<()> {
        let Inspected { journal, journal_dir, .. } = self.inspected;
        for kept in payloads::each_kept(self.to)? {
            let (seq, kind, location) = match kept {
                Ok(kept) => kept,
                Err(error) => {
                    let details = format!("a row of the table `kept` is damaged: {error}");
                    self.record_table_losses(details);
                    continue;
                }
            };
            match journal.payload(journal_dir, location) {
                Ok(Ok(bytes)) => {
                    if let Err(error) = sql::of_row(payloads::put(self.to, seq, kind, &bytes))? {
                        let details = format!("the {} of row {seq}: {error}", kind.name());
                        self.record_table_losses(details);
                    }
                }
                Ok(Err(damage)) => self.losses.push(damage),
                Err(error) => {
                    let details = format!("the {} of row {seq}: {error}", kind.name());
                    self.record_loss(journal_dir, None, details);
                }
            }
        }
        self.to.execute("DELETE FROM kept", ())?;
        Ok(())
    }

    /// Replaces what the catalog has lost. Returns the components that the first start keeps.
    fn repair_catalog(&mut self) -> rusqlite::Result<Option<BTreeSet<ComponentDigest>>> {
        let seal = self.leave_out_damaged_records()?;
        self.name_endpoints()?;
        let Some(seal) = seal else { return Ok(None) };
        self.replace_records(seal)?;
        placeholders::kept_components(self.to, seal).map(Some)
    }

    /// Finds the name of an endpoint whose row is lost, or has a damaged name, among the endpoints
    /// of the catalog, if only one is missing.
    fn name_endpoints(&mut self) -> rusqlite::Result<()> {
        let mut damaged = Vec::new();
        endpoints::each(self.to, |seq, found| {
            damaged.extend(found.err().map(|error| (seq, error)));
            Ok(())
        })?;
        for (seq, error) in damaged {
            self.to.execute("DELETE FROM endpoint WHERE seq = ?1", [seq])?;
            self.record_table_losses(format!(
                "row {seq} of the table `endpoint` is damaged: {error}"
            ));
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

    /// Removes the records of the catalog that cannot be decrypted or parsed. Returns the key of
    /// the secrets; `None` when there is no key: then all records stay as they are. A key that is
    /// there is the right one.
    fn leave_out_damaged_records(&mut self) -> rusqlite::Result<Option<&'a Seal>> {
        let inspected = self.inspected;
        let Some(seal) = &inspected.seal else {
            if self.to.prepare("SELECT 1 FROM catalog")?.exists(())? {
                self.record_table_losses(catalog::NOT_READ.to_owned());
            }
            return Ok(None);
        };
        let mut damaged = Vec::new();
        catalog::each(self.to, seal, |kind, name, body| {
            if body.is_none_or(|body| catalog::parse(&body).is_err()) {
                damaged.push((kind.to_owned(), name.to_owned()));
            }
            Ok(())
        })?;
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

    /// Removes the rows that a start would refuse. Those of jobs are among the unusable ones.
    fn leave_out_damaged_rows(&mut self) -> rusqlite::Result<()> {
        let to = self.to;
        let mut names = HashMap::new();
        endpoints::each(to, |_, found| {
            names.extend(found.ok().map(|(key, name, _)| (key, name)));
            Ok(())
        })?;
        let mut damaged = Vec::new();
        delivery::each(
            to,
            |key| names.get(&key).cloned(),
            |seq, found| {
                damaged.extend(found.err().map(|error| (seq, error)));
                Ok(())
            },
        )?;
        for (seq, error) in damaged.drain(..) {
            delivery::delete(to, DeliveryId(seq.unsigned_abs()))?;
            self.record_table_losses(format!("webhook {seq} is lost: {error}"));
        }
        idempotency::each(to, |seq, found| {
            damaged.extend(found.err().map(|error| (seq, error)));
            Ok(())
        })?;
        for (seq, error) in damaged.drain(..) {
            idempotency::delete(to, &[seq.unsigned_abs()])?;
            self.record_table_losses(format!(
                "the idempotency key of the job of row {seq} is lost: {error}"
            ));
        }
        schedules::each(to, |number, found| {
            damaged.extend(found.err().map(|error| (number, error)));
            Ok(())
        })?;
        for (number, error) in damaged {
            to.execute("DELETE FROM schedule WHERE number = ?1", [number])?;
            self.record_table_losses(format!(
                "row {number} of the table `schedule` is lost: {error}"
            ));
        }
        let mut of_usage = Vec::new();
        usage::each_damaged(to, |key, error| of_usage.push((key, error)))?;
        for (key, error) in of_usage {
            let sql = "DELETE FROM usage WHERE (hour, endpoint, template, owner, run) = (?1, ?2, ?3, ?4, ?5)";
            to.execute(sql, params_from_iter(key))?;
            self.record_table_losses(format!("a row of the table `usage` is lost: {error}"));
        }
        let sql = "SELECT endpoint FROM deleting WHERE endpoint NOT BETWEEN 0 AND ?1";
        let mut of_no_endpoint = to.prepare(sql)?;
        let of_no_endpoint = of_no_endpoint.query_map([u32::MAX], |row| row.get::<_, i64>(0))?;
        for number in of_no_endpoint.collect::<rusqlite::Result<Vec<_>>>()? {
            to.execute("DELETE FROM deleting WHERE endpoint = ?1", [number])?;
            self.record_table_losses(format!("row {number} of the table `deleting` is damaged"));
        }
        Ok(())
    }

    /// Removes what cannot be used without the parts that are lost.
    fn leave_out_unusable(&mut self) -> rusqlite::Result<()> {
        self.leave_out_damaged_payloads()?;
        let (mut owners, all_is_here) = (Owners::default(), Newer::default());
        let mut lost = Vec::new();
        let mut statement = self.to.prepare(jobs::SELECT_JOBS)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            match job_of_row(row, &mut owners) {
                Ok(job) => {
                    let why = parts::missing(self.to, &job, &all_is_here)?;
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
            self.lost_jobs.push(seq.unsigned_abs());
            self.record_table_losses(details);
        }
        // The answer to a repeated submission would be a job that does not exist.
        idempotency::delete(self.to, &self.lost_jobs)?;
        for seq in sql::list::<i64>(self.to, parts::WEBHOOKS_WITHOUT_BODY)? {
            self.to.execute("DELETE FROM delivery WHERE seq = ?1", [seq])?;
            self.record_table_losses(format!("webhook {seq} is lost: its body cannot be read"));
        }
        Ok(())
    }

    /// Reads the new tables as a start does: a start that is refused is a loss too.
    fn try_tables(&mut self) -> rusqlite::Result<()> {
        let Inspected { seal, seen_at, .. } = self.inspected;
        let now = seen_at.unwrap_or(Timestamp::from_millis(0));
        if let Err(error) = recover::try_tables(self.to, seal.as_ref(), now) {
            let details = format!("a host does not start on the new directory: {error}");
            self.record_table_losses(details);
        }
        Ok(())
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
        Ok(())
    }
}
