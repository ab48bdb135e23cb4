//! Repeated observations of the host from outside.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;

use crate::drive::Figures;
use crate::host::Host;

/// The columns, in the order in which [`Sample::values`] has them.
pub(crate) const COLUMNS: [&str; 11] = [
    "seconds",
    "jobs_per_s",
    "p50_ms",
    "p99_ms",
    "max_ms",
    "rss_mib",
    "journal_mib",
    "database_mib",
    "open_files",
    "threads",
    "waiting_jobs",
];

/// One observation of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    values: [f64; COLUMNS.len()],
}

impl Sample {
    /// Observes the host, after `elapsed` of the load; `latencies` are those of the last `period`.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) async fn take(
        host: &Host,
        endpoints: &[&str],
        elapsed: Duration,
        period: Duration,
        latencies: &Histogram<u64>,
    ) -> anyhow::Result<Self> {
        let figures = Figures::of(latencies, period);
        let (journal, database) = bytes_on_disk(host.data_dir())?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut waiting = 0;
        for endpoint in endpoints {
            waiting += host.jobs(endpoint).await?["inQueue"].as_u64().context("inQueue")?;
        }
        let values = [
            elapsed.as_secs_f64().round(),
            figures.jobs_per_s,
            figures.p50_ms,
            figures.p99_ms,
            latencies.max() as f64 / 1e3,
            mib(host.resident_kib()? << 10),
            mib(journal),
            mib(database),
            host.open_files()? as f64,
            host.threads()? as f64,
            waiting as f64,
        ];
        Ok(Self { values })
    }

    /// The value of a column.
    pub(crate) fn get(&self, column: &str) -> f64 {
        let index = COLUMNS.iter().position(|name| *name == column);
        index.map_or(f64::NAN, |index| self.values[index])
    }
}

/// Bytes of the journal, and of the database with its further files.
fn bytes_on_disk(data: &Path) -> anyhow::Result<(u64, u64)> {
    let (mut journal, mut database) = (0, 0);
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        if entry.file_name() == "journal" {
            for segment in fs::read_dir(entry.path())? {
                // A segment may be removed meanwhile.
                journal += segment?.metadata().map_or(0, |segment| segment.blocks() * 512);
            }
        } else if entry.file_name().to_string_lossy().contains(".db") {
            database += entry.metadata().map_or(0, |file| file.blocks() * 512);
        }
    }
    Ok((journal, database))
}

/// The file for the samples; each is written at once.
pub(crate) struct Csv(BufWriter<File>);

impl Csv {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
        let mut csv = Self(BufWriter::new(file));
        csv.line(&COLUMNS.map(str::to_owned))?;
        Ok(csv)
    }

    pub(crate) fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.line(&sample.values.map(|value| format!("{value:.2}")))
    }

    fn line(&mut self, cells: &[String]) -> anyhow::Result<()> {
        writeln!(self.0, "{}", cells.join(","))?;
        Ok(self.0.flush()?)
    }
}
