//! The log lines of handlers: in memory, and in the directory `logs` unless an option says
//! otherwise.

use std::sync::Arc;

use anyhow::Context as _;
use gristmill_core::catalog::Catalog;
use gristmill_core::logs::Logs;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_logs::{LogDirectory, LogSettings, LogWriter, Opened};

use super::settings::ServeSettings;

/// The directory of the files in a data directory.
const LOGS: &str = "logs";

/// Opens the lines that earlier processes have written, before any job adds another one. Without a
/// writer, lines are only in memory.
///
/// # Errors
/// When the thread of the writer cannot be started.
pub(super) fn open(
    settings: &ServeSettings,
    catalog: &Catalog,
    disk_space: Arc<DiskSpaceGauge>,
) -> anyhow::Result<(Arc<Logs>, Option<LogWriter>)> {
    let dir = settings.data_dir.join(LOGS);
    let all_bytes_max = settings.max_log_mib.mib_as_bytes();
    let endpoint_bytes_max = settings.max_endpoint_log_mib.mib_as_bytes().min(all_bytes_max);
    if endpoint_bytes_max == 0 {
        LogDirectory::clear(&dir);
        return Ok((Arc::default(), None));
    }
    let settings = LogSettings { endpoint_bytes_max, all_bytes_max, disk_space };
    let view = catalog.view();
    let endpoints = view.deployments.values().map(|deployment| &deployment.incarnation);
    let Opened { directory, last_numbers } = LogDirectory::open(&dir, settings, endpoints);
    let logs = Arc::new(Logs::with_archive(directory.clone(), last_numbers));
    let writer = LogWriter::start(logs.clone(), directory)
        .context("cannot start the thread that writes handlers' log lines")?;
    Ok((logs, Some(writer)))
}
