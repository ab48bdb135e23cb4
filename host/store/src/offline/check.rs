//! Finds damage in a data directory that no host has open, without changing it.
//!
//! Cost: reads the journal, the tables and all payloads.

use std::collections::HashSet;
use std::path::Path;

use gristmill_core::catalog::missing_templates;
use rusqlite::Connection;

use crate::damage;
use crate::damage::Damage;
use crate::error::OpenError;
use crate::format::archived::ArchivedSum;
use crate::format::decode;
use crate::format::image::{JobImage, JobLocations, StateImage};
use crate::format::payload::Kind;
use crate::offline::inspect::Inspected;
use crate::offline::job_of_row;
use crate::state::job::JobRow;
use crate::state::owners::Owners;
use crate::tables::archived;
use crate::tables::catalog;
use crate::tables::deleting::Endpoints;
use crate::tables::found_by;
use crate::tables::job_action;
use crate::tables::jobs;
use crate::tables::payloads;
use crate::tables::schema;
use crate::tables::sql;

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
    /// Jobs in the tables.
    pub jobs: u64,
}

/// Checks the directory `dir`. `secrets_key` is the file with the key of the secrets, unless it is
/// in the directory; without the key the catalog cannot be checked, which counts as damage.
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
    let mut endpoints = Endpoints::default();
    let superseded = report.check_frames(&inspected, &mut endpoints)?;
    let of_tables = report.check_tables(&inspected, endpoints);
    report.note(&inspected.file, of_tables);
    let kept = report.check_kept(&inspected, &superseded);
    report.note(&inspected.file, kept);
    Ok(report)
}

impl Report {
    fn add(&mut self, file: &Path, offset: Option<u64>, details: String) {
        self.damage.push(Damage { file: file.to_owned(), offset, details });
    }

    /// An error that prevents reading a table counts as damage too.
    fn note(&mut self, file: &Path, result: rusqlite::Result<()>) {
        if let Err(error) = result {
            self.add(file, None, error.to_string());
        }
    }

    /// Returns the payloads that the tables name but the journal has replaced or removed.
    fn check_frames(
        &mut self,
        inspected: &Inspected,
        endpoints: &mut Endpoints,
    ) -> Result<Superseded, OpenError> {
        let mut superseded = Superseded::new();
        for segment in inspected.journal.uncheckpointed() {
            let path = inspected.journal_dir.join(segment.file.name());
            let (mut frames, mut bad) = (0, Vec::new());
            let mut gaps = Vec::new();
            segment.each_frame(
                |at, frame| match decode::frame(frame) {
                    Ok((image, locations)) => {
                        frames += 1;
                        endpoints.add(&image);
                        image.jobs.iter().zip(&locations).for_each(|(job, locations)| {
                            supersede(&mut superseded, job, locations);
                        });
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
        }
        Ok(superseded)
    }

    fn check_tables(
        &mut self,
        inspected: &Inspected,
        endpoints: Endpoints,
    ) -> rusqlite::Result<()> {
        let Inspected { db, file, version, seal, .. } = inspected;
        let complaints = complaints(db)?;
        let page_bytes: u32 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
        for complaint in complaints {
            let offset = page_of(&complaint).map(|page| (page - 1) * u64::from(page_bytes));
            self.add(file, offset, complaint);
        }
        let has_checksums = *version >= schema::CHECKSUMS_SINCE;
        self.check_jobs(db, file, *version)?;
        if *version >= schema::ARCHIVED_SINCE {
            self.check_sums(db, file, *version)?;
        }
        if *version >= schema::TAGS_SINCE {
            self.check_found_by(db, file)?;
        }
        if *version >= schema::ACTIONS_SINCE {
            for (id, found) in job_action::read(db)? {
                if let Err(error) = found {
                    self.add(file, None, format!("the job action `{id}`: {error}"));
                }
            }
        }
        if has_checksums {
            for table in PAYLOAD_TABLES {
                self.check_payloads(db, file, table)?;
            }
        }
        if let Some(seal) = seal {
            let mut entries = Vec::new();
            catalog::each(db, seal, |kind, name, body| {
                match body.map(|body| catalog::parse(&body)) {
                    Some(Ok(entry)) => entries.push(entry),
                    Some(Err(error)) => {
                        self.add(
                            file,
                            None,
                            format!("the {kind} `{name}` of the catalog: {error}"),
                        );
                    }
                    None => {
                        let details =
                            format!("the {kind} `{name}` of the catalog cannot be decrypted");
                        self.add(file, None, details);
                    }
                }
                Ok(())
            })?;
            for missing in missing_templates(&entries) {
                self.add(file, None, missing.to_string());
            }
        }
        if seal.is_none() && db.prepare("SELECT 1 FROM catalog")?.exists(())? {
            self.add(file, None, catalog::NOT_READ.to_owned());
        }
        for (name, jobs) in endpoints.without_record(db, false)? {
            let details =
                format!("endpoint `{name}` has {jobs} jobs, and no record in the catalog");
            self.add(file, None, details);
        }
        Ok(())
    }

    fn check_jobs(&mut self, db: &Connection, file: &Path, version: i64) -> rusqlite::Result<()> {
        let mut owners = Owners::default();
        let mut statement = db.prepare(&jobs::select_jobs_of(version))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            self.jobs += 1;
            if let Err(error) = job_of_row(row, &mut owners) {
                let seq: i64 = row.get(0)?;
                self.add(file, None, format!("row {seq} of the table `job`: {error}"));
            }
        }
        Ok(())
    }

    /// A start counts archived jobs by their sums.
    fn check_sums(&mut self, db: &Connection, file: &Path, version: i64) -> rusqlite::Result<()> {
        let (stored, computed) = (archived::sums(db)?, archived::computed_sums(db, version)?);
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

    fn check_kept(
        &mut self,
        inspected: &Inspected,
        superseded: &Superseded,
    ) -> rusqlite::Result<()> {
        let Inspected { db, journal, journal_dir, .. } = inspected;
        let mut kept = Vec::new();
        payloads::load_kept(db, |seq, kind, location| kept.push((seq, kind, location)))?;
        kept.retain(|(seq, kind, _)| !superseded.contains(&(*seq, *kind)));
        for (seq, kind, location) in kept {
            match journal.payload(journal_dir, location) {
                Ok(Ok(_)) => self.payloads += 1,
                Ok(Err(damage)) => {
                    let name = kind.name();
                    let details = format!("{}: the {name} of row {seq}", damage.details);
                    self.damage.push(Damage { details, ..damage });
                }
                Err(error) => {
                    self.add(journal_dir, None, damage::damaged(error.to_string()).to_string())
                }
            }
        }
        Ok(())
    }
}

/// Payloads, by the number of their job, about which the journal has newer information than the
/// tables.
type Superseded = HashSet<(u64, Kind)>;

/// Adds the payloads that a frame replaces or removes.
fn supersede(superseded: &mut Superseded, job: &JobImage<'_>, locations: &JobLocations) {
    let row = match &job.state {
        StateImage::New { row, .. } | StateImage::Changed(row) => JobRow::of(row).ok(),
        StateImage::Deleted { .. } => None,
    };
    if locations.input.is_some() || !row.as_ref().is_some_and(JobRow::needs_input) {
        superseded.insert((job.seq, Kind::Input));
    }
    if locations.output.is_some() || job.clears_result || row.is_none() {
        superseded.insert((job.seq, Kind::Output));
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
