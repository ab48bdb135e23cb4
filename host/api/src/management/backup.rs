//! `GET /v1/backup`: all data of the running host at one instant. Only for keys with the scope
//! `admin`.
//!
//! **Bounds.** One backup at a time. It is read from the disk as fast as the client reads it, with
//! about a megabyte in memory. It is aborted when the client reads nothing for [`STALL_WAIT`], or
//! is not done after [`TIME_MAX`].

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use futures::stream;
use gristmill_core::backup::{BackupError, BackupFile, CHECKSUMS};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::input;
use crate::caller::{Admin, Caller};
use crate::error::{ApiError, ErrorCode};
use crate::openapi::parameters::WithSecretsKey;
use crate::openapi::refusals::BackupRefused;
use crate::openapi::schema::BackupBytes;
use crate::openapi::tag;

/// A backup is aborted when its client reads nothing for this long.
const STALL_WAIT: Duration = Duration::from_secs(60);

/// Most time for a whole backup.
const TIME_MAX: Duration = Duration::from_hours(24);

/// How long a call waits for the end of another backup: an abandoned backup ends soon.
const TURN_WAIT: Duration = Duration::from_secs(5);

/// Bytes that are passed to the connection at one time.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 3;

/// All data of the host at this instant.
///
/// The answer is a tar archive whose last file is `SHA256SUMS`; an archive without it is
/// incomplete. It contains the key of stored secrets only with `secretsKey=true`.
#[utoipa::path(
    get, path = "/backup", operation_id = "Backup", tag = tag::HOST, params(WithSecretsKey),
    responses((status = 200, description = "The archive", body = BackupBytes, content_type = "application/x-tar"), BackupRefused),
)]
pub(crate) async fn backup(
    Caller { state, .. }: Caller<Admin>,
    request: Request,
) -> Result<impl IntoResponse, ApiError> {
    let query = request.uri().query().unwrap_or_default();
    let with_secrets_key = input::flag(query, &["secretsKey"])?;
    let turn = timeout(TURN_WAIT, state.backup_turn.clone().acquire_owned()).await;
    let turn = turn.map_err(|_| BackupError::Busy)?.map_err(|_| BackupError::Closed)?;
    let files = state.backups.backup(with_secrets_key).await?;
    tracing::info!("a backup of {} files is being sent", files.len());
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let pipe = Pipe {
        sender,
        handle: Handle::current(),
        piece: BytesMut::new(),
        deadline: Instant::now() + TIME_MAX,
    };
    tokio::task::spawn_blocking(move || {
        send(files, pipe);
        drop(turn);
    });
    let pieces = stream::unfold(pieces, async |mut pieces| {
        let piece: io::Result<Bytes> = pieces.recv().await?;
        Some((piece, pieces))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(pieces)))
}

impl From<BackupError> for ApiError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Busy | BackupError::Rotating => {
                Self::new(ErrorCode::Unavailable, error.to_string())
            }
            BackupError::Closed => {
                Self::new(ErrorCode::Unavailable, "the host is shutting down; try again shortly")
            }
            BackupError::Io(error) => {
                tracing::error!("a backup cannot be made: {error}");
                Self::new(ErrorCode::Internal, "the host's files cannot be read; see its log")
            }
        }
    }
}

/// Sends the archive, or as much of it as the client reads.
fn send(files: Vec<BackupFile>, mut pipe: Pipe) {
    match write_archive(files, &mut pipe) {
        Ok(()) => tracing::info!("the backup was sent"),
        Err(error) => {
            tracing::warn!("a backup was aborted: {error}");
            // The client sees a broken connection, not a shorter archive.
            let _ = pipe.send(Err(error));
        }
    }
}

fn write_archive(files: Vec<BackupFile>, pipe: &mut Pipe) -> io::Result<()> {
    let mut archive = tar::Builder::new(&mut *pipe);
    let mut sums = String::new();
    for BackupFile { name, bytes, content } in files {
        let mut content = Hashed { content: content.take(bytes), bytes: 0, hash: Sha256::new() };
        archive.append_data(&mut head(bytes), &name, &mut content)?;
        if content.bytes != bytes {
            return Err(io::Error::other(format!("{name} has become shorter")));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(sums, "{}  {name}", HEXLOWER.encode(&content.hash.finalize()));
    }
    archive.append_data(&mut head(sums.len() as u64), CHECKSUMS, sums.as_bytes())?;
    archive.finish()?;
    drop(archive);
    pipe.flush()
}

fn head(bytes: u64) -> tar::Header {
    let mut head = tar::Header::new_gnu();
    head.set_size(bytes);
    head.set_mode(0o600);
    head
}

/// Reads a file, and hashes the bytes.
struct Hashed<R> {
    content: R,
    bytes: u64,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(into)?;
        self.hash.update(into.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        Ok(count)
    }
}

/// From a thread that reads files to the connection.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    handle: Handle,
    piece: BytesMut,
    deadline: Instant,
}

impl Pipe {
    fn send(&self, piece: io::Result<Bytes>) -> io::Result<()> {
        let latest = self.deadline.min(Instant::now() + STALL_WAIT);
        match self.handle.block_on(async { timeout_at(latest, self.sender.send(piece)).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::other("the caller went away")),
            Err(_) => Err(io::Error::other("the caller is too slow")),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = self.piece.split().freeze();
        self.send(Ok(piece))
    }
}
