//! The signals that end a command, for commands that remove their temporary files first.

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGINT or SIGTERM.
pub async fn signalled() {
    let listeners = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = listeners else {
        // Without listeners a signal ends the process at once.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Does some work unless a signal comes first; then the work is dropped, with its temporary files.
///
/// # Errors
/// Those of the work, and `interrupted`.
pub async fn unless_signalled<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        done = work => done,
        () = signalled() => bail!("interrupted"),
    }
}
