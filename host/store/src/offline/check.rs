//! Finds damage in a data directory that no host has open, without changing it.
//!
//! Cost: reads the journal, the tables and all payloads.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use gristmill_core::catalog::{kept_components, missing_templates};
use gristmill_core::deploy::digest::ComponentDigest;
use rusqlite::Connection;

use crate::damage;
use crate::damage::Damage;
use crate::error::OpenError;
use crate::format::archived::ArchivedSum;
use crate::format::decode;
use crate::format::payload::{InputBytes, Kind};
use crate::offline::inspect::Inspected;
use crate::offline::job_of_row;
use crate::offline::parts::{self, Newer};
use crate::state::owners::Owners;
use crate::tables::archived;
use crate::tables::catalog;
use crate::tables::deleting::Endpoints;
use crate::tables::delivery;
use crate::tables::endpoints;
use crate::tables::found_by;
use crate::tables::idempotency;
use crate::tables::job_action;
use crate::tables::jobs;
use crate::tables::payloads;
use crate::tables::schedules;
use crate::tables::sql;
use crate::tables::usage;

/// Most errors that `SQLite` reports of its file and that are listed.
const COMPLAINTS_MAX: u32 = 100;

/// The tables with payloads, and the column that names the payload.
pub(crate) const PAYLOAD_TABLES: [&str; 4] = ["input", "output", "chunk", "delivery_body"];

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// All damage that was found.
    pub damage: Vec<Damage>,
    /// Intact frames of the journal.
    pub frames: u64,
    /// Intact payloads.
    pub payloads: u64,
    /// Jobs in the tables and in the frames of the journal.
    pub jobs: u64,
    /// Whether the catalog was not checked, because the key that it is encrypted with is missing.
    /// It may have further damage.
    pub lacks_key: bool,
    /// The components that a start needs; `None` when the catalog cannot be read without its key.
    pub kept_components: Option<BTreeSet<ComponentDigest>>,
}

/// Checks the directory `dir`. `secrets_key` is the file with the key of the secrets, unless it is
/// in the directory; without the key the catalog is not checked, and [`Report::lacks_key`] is set.
///
/// # Errors
/// [`OpenError`] when the directory cannot be checked at all, for example while a host uses it.
pub fn check(dir: &Path, secrets_key: Option<&Path>) -> Result<Report, OpenError> {
    let mut inspected = Inspected::open(dir, secrets_key)?;
    let damage = std::mem::take(&mut inspected.journal.damage);
    let mut report = Report { damage, ..Report::default() };
    if let Err(error) = inspected.check_keys() {
        report.add(&inspected.file, None, error.to_string());
    }
    let newer = report.check_frames(&inspected)?;
    report.check_tables(&inspected, newer);
    Ok(report)
}

impl Report {
    fn add(&mut self, file: &Path, offset: Option<u64>, details: String) {
        self.damage.push(Damage { file: file.to_owned(), offset, details });
    }

    /// An error that prevents reading a table counts as damage too.
    fn note(&mut self, file: &Path, result: rusqlite::Result<()>) {
        if let Err(error) = result {
            let details = error.to_string();
            // An unreadable page can concern several tables.
            if !self.damage.iter().any(|known| known.file == file && known.details == details) {
                self.add(file, None, details);
            }
        }
    }

    /// Returns what the journal changes in the tables.
    fn check_frames(&mut self, inspected: &Inspected) -> Result<Newer, OpenError> {
        let mut newer = Newer::default();
        for segment in inspected.journal.uncheckpointed() {
            let path = inspected.journal_dir.join(segment.file.name());
            let (mut frames, mut bad) = (0, Vec::new());
            let mut gaps = Vec::new();
            let ended = segment.each_frame(
                |at, frame| match decode::frame(frame) {
                    Ok((image, locations)) => {
                        frames += 1;
                        newer.add(&image, &locations);
                    }
                    Err(error) => bad.push((at, error.to_string())),
                },
                |from, to| gaps.push((from, to)),
            )?;
            self.frames += frames;
            for (from, to) in gaps {
                let to = to.map_or_else(|| "its end".to_owned(), |to| format!("byte {to}"));
                let details = format!("the journal cannot be read from here to {to}");
                self.add(&path, Some(from.into()), details);
            }
            for (at, details) in bad {
                self.add(&path, Some(at.into()), details);
            }
            if let Some(end) = segment.end.filter(|end| *end < ended) {
                let details = format!(
                    "the last process recorded that the journal ends here, and frames follow up to byte \
                     {ended}"
                );
                self.add(&path, Some(end.into()), details);
            }
        }
        Ok(newer)
    }

    /// Each part is checked although another one cannot be read.
    fn check_tables(&mut self, inspected: &Inspected, newer: Newer) {
        let Inspected { db, file, .. } = inspected;
        self.part(file, |report| report.check_pages(db, file));
        self.part(file, |report| report.check_jobs(inspected, &newer));
        self.part(file, |report| report.check_webhooks(inspected, &newer));
        self.part(file, |report| report.check_idempotency_keys(db, file));
        self.part(file, |report| report.check_usage(db, file));
        self.part(file, |report| report.check_schedules(db, file));
        self.part(file, |report| report.check_sums(db, file));
        self.part(file, |report| report.check_found_by(db, file));
        self.part(file, |report| report.check_actions(db, file));
        for table in PAYLOAD_TABLES {
            self.part(file, |report| report.check_payloads(db, file, table));
        }
        self.part(file, |report| report.check_kept(inspected, &newer));
        self.part(file, |report| report.check_catalog(inspected));
        self.part(file, |report| report.check_endpoints(db, file, newer.endpoints));
    }

    fn part(&mut self, file: &Path, check: impl FnOnce(&mut Self) -> rusqlite::Result<()>) {
        let result = check(self);
        self.note(file, result);
    }

    fn check_pages(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        let page_bytes: u32 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
        for complaint in complaints(db)? {
            let offset = page_of(&complaint).map(|page| (page - 1) * u64::from(page_bytes));
            self.add(file, offset, complaint);
        }
        Ok(())
    }

    fn check_jobs(&mut self, inspected: &Inspected, newer: &Newer) -> rusqlite::Result<()> {
        let Inspected { db, file, .. } = inspected;
        let mut owners = Owners::default();
        let mut statement = db.prepare(jobs::SELECT_JOBS)?;
        let mut rows = statement.query(())?;
        self.jobs += newer.added_jobs.len() as u64;
        // A table that cannot be read would concern each job.
        let mut unreadable = None;
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)?;
            let is_counted = newer.added_jobs.contains(&seq.unsigned_abs())
                || newer.removed_jobs.contains(&seq.unsigned_abs());
            self.jobs += u64::from(!is_counted);
            let job = match job_of_row(row, &mut owners) {
                Ok(job) => job,
                Err(error) => {
                    self.add(file, None, format!("row {seq} of the table `job`: {error}"));
                    continue;
                }
            };
            match parts::missing(db, &job, newer) {
                Ok(None) => {}
                Ok(Some(part)) => self.add(file, None, format!("job {}: {part}", job.id)),
                Err(error) => unreadable = unreadable.or(Some(error)),
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    fn check_webhooks(&mut self, inspected: &Inspected, newer: &Newer) -> rusqlite::Result<()> {
        let Inspected { db, file, .. } = inspected;
        let mut names = HashMap::new();
        endpoints::each(db, |seq, found| {
            match found {
                Ok((key, name, _)) => drop(names.insert(key, name)),
                Err(error) => {
                    self.add(file, None, format!("row {seq} of the table `endpoint`: {error}"));
                }
            }
            Ok(())
        })?;
        delivery::each(
            db,
            |key| names.get(&key).cloned(),
            |seq, found| {
                if let Err(error) = found {
                    self.add(file, None, format!("row {seq} of the table `delivery`: {error}"));
                }
                Ok(())
            },
        )?;
        for seq in sql::list::<i64>(db, parts::WEBHOOKS_WITHOUT_BODY)? {
            if !newer.webhooks.contains(&seq.unsigned_abs()) {
                self.add(file, None, format!("webhook {seq}: its body is missing"));
            }
        }
        Ok(())
    }

    fn check_idempotency_keys(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        idempotency::each(db, |seq, found| {
            if let Err(error) = found {
                self.add(file, None, format!("row {seq} of the table `repeat`: {error}"));
            }
            Ok(())
        })
    }

    fn check_schedules(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        schedules::each(db, |number, found| {
            if let Err(error) = found {
                self.add(file, None, format!("row {number} of the table `schedule`: {error}"));
            }
            Ok(())
        })
    }

    fn check_usage(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        usage::each_damaged(db, |_, error| {
            self.add(file, None, format!("a row of the table `usage`: {error}"));
        })
    }

    fn check_actions(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        for (id, found) in job_action::read(db)? {
            if let Err(error) = found {
                self.add(file, None, format!("the job action `{id}`: {error}"));
            }
        }
        Ok(())
    }

    fn check_catalog(&mut self, inspected: &Inspected) -> rusqlite::Result<()> {
        let Inspected { db, file, seal, .. } = inspected;
        let Some(seal) = seal else {
            self.lacks_key = db.prepare("SELECT 1 FROM catalog")?.exists(())?;
            return Ok(());
        };
        let mut entries = Vec::new();
        let read = catalog::each(db, seal, |kind, name, body| {
            let details = match body.map(|body| catalog::parse(&body)) {
                Some(Ok(entry)) => {
                    entries.push(entry);
                    return Ok(());
                }
                Some(Err(error)) => format!("the {kind} `{name}` of the catalog: {error}"),
                None => format!("the {kind} `{name}` of the catalog cannot be decrypted"),
            };
            self.add(file, None, details);
            Ok(())
        });
        for missing in missing_templates(&entries) {
            self.add(file, None, missing.to_string());
        }
        self.kept_components = Some(kept_components(entries));
        read
    }

    /// The endpoints that a start would delete with their jobs.
    fn check_endpoints(
        &mut self,
        db: &Connection,
        file: &Path,
        endpoints: Endpoints,
    ) -> rusqlite::Result<()> {
        for (name, jobs) in endpoints.without_record(db, false)? {
            let details =
                format!("endpoint `{name}` has {jobs} jobs, and no record in the catalog");
            self.add(file, None, details);
        }
        Ok(())
    }

    /// A start counts archived jobs by their sums.
    fn check_sums(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        let (stored, computed) = (archived::sums(db)?, archived::computed_sums(db)?);
        for sum in stored.iter().filter(|sum| !computed.contains(sum)) {
            let ArchivedSum { endpoint, owner, jobs, .. } = sum;
            let details = format!(
                "the table `archived` has {jobs} ended jobs of owner `{owner}` on endpoint {}, and the \
                 table `job` has others",
                endpoint.0
            );
            self.add(file, None, details);
        }
        for ArchivedSum { endpoint, owner, jobs, .. } in &computed {
            let is_it = |sum: &ArchivedSum| (sum.endpoint, &sum.owner) == (*endpoint, owner);
            if !stored.iter().any(is_it) {
                let details = format!(
                    "the table `archived` lacks {jobs} ended jobs of owner `{owner}` on endpoint {}",
                    endpoint.0
                );
                self.add(file, None, details);
            }
        }
        Ok(())
    }

    /// Searches find archived jobs by these tables.
    fn check_found_by(&mut self, db: &Connection, file: &Path) -> rusqlite::Result<()> {
        let (missing, has_others) = found_by::wrong_tags(db)?;
        if missing > 0 {
            self.add(file, None, format!("the table `job_tag` lacks {missing} tags of ended jobs"));
        }
        if has_others {
            let details = "the table `job_tag` has tags that no ended job has".to_owned();
            self.add(file, None, details);
        }
        let blocks = found_by::wrong_times(db)?;
        if blocks > 0 {
            let details =
                format!("{blocks} rows of the table `archived_time` leave out ended jobs");
            self.add(file, None, details);
        }
        Ok(())
    }

    fn check_payloads(
        &mut self,
        db: &Connection,
        file: &Path,
        table: &str,
    ) -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!("SELECT seq, body, sum FROM {table}"))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            if sql::is_whole(row.get_ref(1)?.as_blob()?, row.get(2)?) {
                self.payloads += 1;
            } else {
                let seq: i64 = row.get(0)?;
                self.add(file, None, format!("row {seq} of the table `{table}` is damaged"));
            }
        }
        Ok(())
    }

    fn check_kept(&mut self, inspected: &Inspected, newer: &Newer) -> rusqlite::Result<()> {
        let Inspected { db, file, journal, journal_dir, .. } = inspected;
        for kept in payloads::each_kept(db)? {
            let (seq, kind, location) = match kept {
                Ok((seq, kind, _)) if newer.payloads.contains(&(seq, kind)) => continue,
                Ok(kept) => kept,
                Err(error) => {
                    self.add(file, None, format!("a row of the table `kept`: {error}"));
                    continue;
                }
            };
            let of_payload =
                |details: String| format!("{details}: the {} of row {seq}", kind.name());
            match journal.payload(journal_dir, location) {
                Ok(Ok(bytes)) if kind == Kind::Input && InputBytes::split(&bytes).is_none() => {
                    self.add(file, None, of_payload("the location has no input".to_owned()));
                }
                Ok(Ok(_)) => self.payloads += 1,
                Ok(Err(damage)) => {
                    let details = of_payload(damage.details);
                    self.damage.push(Damage { details, ..damage });
                }
                Err(error) => {
                    let details = damage::damaged(error.to_string()).to_string();
                    self.add(journal_dir, None, of_payload(details));
                }
            }
        }
        Ok(())
    }
}

/// The errors that `SQLite` reports of its file; empty when the file is intact.
fn complaints(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({COMPLAINTS_MAX})"))?;
    let lines = statement.query_map((), |row| row.get::<_, String>(0))?;
    let lines = lines.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(lines
        .into_iter()
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line != "ok")
        .collect())
}

/// The page that an error names.
fn page_of(complaint: &str) -> Option<u64> {
    let (_, rest) =
        complaint.to_lowercase().split_once("page ").map(|(a, b)| (a.to_owned(), b.to_owned()))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|page| *page > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_a_complaint_is_found() {
        assert_eq!(page_of("Tree 5 page 17 cell 3: Rowid 9 out of order"), Some(17));
        assert_eq!(page_of("Page 4: never used"), Some(4));
        assert_eq!(page_of("wrong # of entries in index x"), None);
    }
}
