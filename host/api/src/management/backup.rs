//! `GET /v1/backup`: all data of the running host at one instant. Only for keys with the scope
//! `admin`.
//!
//! **Bounds.** One backup at a time. It is read from the disk as fast as the client reads it, with
//! about a megabyte in memory. It is aborted when the client reads nothing for [`STALL_WAIT`], or
//! is not done after [`TIME_MAX`].

use std::io::{self, Write};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use futures::stream;
use gristmill_control::Backup;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::answer::error::ApiError;
use crate::identity::caller::{Admin, Caller};
use crate::openapi::parameters::WithSecretsKey;
use crate::openapi::refusals::BackupRefused;
use crate::openapi::tag;
use crate::request::query;
use gristmill_wire::schema::BackupBytes;

/// A backup is aborted when its client reads nothing for this long.
const STALL_WAIT: Duration = Duration::from_secs(60);

/// Most time for a whole backup.
const TIME_MAX: Duration = Duration::from_hours(24);

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
    let with_secrets_key = query::flag(query, &["secretsKey"])?;
    let backup = state.control.backups.create(with_secrets_key).await?;
    tracing::info!("a backup of {} files is being sent", backup.file_count());
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let pipe = Pipe {
        sender,
        handle: Handle::current(),
        piece: BytesMut::new(),
        deadline: Instant::now() + TIME_MAX,
    };
    tokio::task::spawn_blocking(move || send(backup, pipe));
    let pieces = stream::unfold(pieces, async |mut pieces| {
        let piece: io::Result<Bytes> = pieces.recv().await?;
        Some((piece, pieces))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(pieces)))
}

/// Sends the archive, or as much of it as the client reads.
fn send(backup: Backup, mut pipe: Pipe) {
    match backup.write(&mut pipe) {
        Ok(()) => tracing::info!("the backup was sent"),
        Err(error) => {
            tracing::warn!("a backup was aborted: {error}");
            // The client sees a broken connection, not a shorter archive.
            let _ = pipe.send(Err(error));
        }
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
