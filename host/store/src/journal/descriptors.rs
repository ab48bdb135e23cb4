//! Opens files of the journal when the process, or the machine, has no file descriptor left.
//!
//! That state is temporary: connections, outgoing calls and handlers' files end. The journal waits
//! for it, and the writer and all submissions wait with it; ending the host would only lead to the
//! same state again. **Bounds.** The time has no bound; the log has an error every
//! [`REPORT_INTERVAL`].

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::error;

/// Interval between two attempts to open a file.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Interval between two log lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Runs `open`; waits while there is no descriptor for it.
///
/// # Errors
/// Every other error of `open`.
pub(super) fn wait_for<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut reported: Option<Instant> = None;
    loop {
        match open() {
            Err(error) if is_out_of_descriptors(&error) => {
                if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                    reported = Some(Instant::now());
                    error!(%error, "the journal waits for a file descriptor: {error}");
                }
                std::thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Whether the process (EMFILE) or the machine (ENFILE) has too many files open.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_retried() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let mut tries = 0;
            let opened = wait_for(|| {
                tries += 1;
                if tries < 3 { Err(errno.into()) } else { Ok(tries) }
            });
            assert_eq!(opened.unwrap(), 3);
        }
        for errno in [Errno::NOSPC, Errno::IO, Errno::ACCESS] {
            let refused = wait_for(|| Err::<(), _>(errno.into())).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(errno.raw_os_error()));
        }
    }
}
