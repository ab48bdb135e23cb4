//! The host of `gristmill dev`: that of `serve` in this process, without keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use gristmill_author::DevHook;

use crate::serve::{ServeSettings, Within, run_with};

/// Free space below which the host refuses work, in MiB. A developer's disk may be fuller than a
/// server's.
const DISK_RESERVE_MIB: u64 = 64;

/// Seconds that running jobs have at the end.
const DRAIN_TIMEOUT_S: u64 = 5;

/// The handler's lines are shown with the progress of its job.
const LOG_FILTER: &str = "warn,handler=off";

/// Serves at this address until the hook or a signal ends it.
///
/// # Errors
/// Those of [`run_with`].
pub(super) fn serve(listen: SocketAddr, data_dir: PathBuf, hook: DevHook) -> anyhow::Result<()> {
    let settings = ServeSettings {
        listen,
        data_dir,
        no_key: true,
        log: LOG_FILTER.parse().map_err(anyhow::Error::msg)?,
        drain_timeout: Within::exactly::<DRAIN_TIMEOUT_S>(),
        // Jobs left in a queue here do not matter.
        accept_clock: true,
        disk_reserve_mib: Some(Within::exactly::<DISK_RESERVE_MIB>()),
        ..ServeSettings::default()
    };
    run_with(&settings, hook)
}
