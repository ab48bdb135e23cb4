//! The log lines of handlers on disk: the [archive](gristmill_core::logs::LogArchive) of
//! [`Logs`](gristmill_core::logs::Logs).
//!
//! **Promises.** No job waits for the disk: one thread writes the lines that wait in memory, every
//! [tenth of a second](writer::ROUND) or as soon as an endpoint has many. Written lines survive the
//! end of the process, also by `kill -9`. Nothing is synced, so a loss of power may lose the lines
//! that the kernel has not written yet. Damage costs the damaged lines and nothing else: a host
//! starts with any content of the directory.
//!
//! **Bounds.** [`LogSettings::endpoint_bytes_max`] for each endpoint and
//! [`LogSettings::all_bytes_max`] for all; beyond them the oldest files are deleted, for the second
//! bound those of the owner with the most. An endpoint has at most [`SEGMENTS`](files::SEGMENTS)
//! files, and one more, up to the largest size of a file. No file stays open. Nothing is written
//! while the disk is nearly full, or the owner's share of it has no room for new work: the lines
//! wait in memory, as far as it has room for them.
//!
//! **Costs.** Some hundred bytes of memory for each endpoint that has files. A start reads the last
//! 16 KiB of each endpoint's newest file. A search for the lines of a job reads all files of its
//! endpoint.

mod directory;
mod files;
mod line_format;
mod recovery;
mod segment;
mod writer;

pub use directory::{LogDirectory, LogSettings, Opened};
pub use writer::LogWriter;

#[cfg(test)]
mod tests;
