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
use futures::{Stream, StreamExt as _, future, stream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
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
/// incomplete. It contains the key of stored secrets only with `secretsKey=true`. Refused with 503
/// while another backup is being made and, without that key, while the key is being replaced; with
/// 501 if the data is in a database.
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
    let on_received = backup.on_received();
    let on_received = move || {
        tracing::info!("the backup was sent");
        on_received();
    };
    let archive = send(|pipe| backup.write(pipe), Instant::now() + TIME_MAX, on_received);
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(archive)))
}

/// Calls `write` on a thread of its own, and returns the archive for the client, or as much of it
/// as the client reads until the deadline. Calls `on_received` when the client has taken all of it.
fn send(
    write: impl FnOnce(&mut Pipe) -> io::Result<()> + Send + 'static,
    deadline: Instant,
    on_received: impl FnOnce(),
) -> impl Stream<Item = io::Result<Bytes>> {
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let (outcome, written) = oneshot::channel();
    let mut pipe = Pipe { sender, handle: Handle::current(), piece: BytesMut::new(), deadline };
    tokio::task::spawn_blocking(move || {
        let result = write(&mut pipe);
        if let Err(error) = &result {
            tracing::warn!("a backup was aborted: {error}");
        }
        // A client that has disconnected needs no outcome.
        let _ = outcome.send(result);
    });
    let pieces = stream::unfold(pieces, async |mut pieces| Some((pieces.recv().await?, pieces)));
    pieces.map(Ok).chain(end(written, on_received))
}

/// The end of an archive: nothing after a whole one, and otherwise an error, so that the client
/// sees a broken connection, not a shorter archive. The error does not need a place in the channel,
/// which may be full, and a thread that panics sends no outcome: both end as an error.
fn end(
    written: oneshot::Receiver<io::Result<()>>,
    on_received: impl FnOnce(),
) -> impl Stream<Item = io::Result<Bytes>> {
    let error = async {
        let ended = || io::Error::other("the thread that wrote the backup has ended");
        let result = written.await.map_err(|_| ended()).flatten();
        result.map(|()| on_received()).err()
    };
    stream::once(error).filter_map(|error| future::ready(error.map(Err)))
}

/// From a thread that reads files to the connection.
struct Pipe {
    sender: mpsc::Sender<Bytes>,
    handle: Handle,
    piece: BytesMut,
    deadline: Instant,
}

impl Pipe {
    fn send(&self, piece: Bytes) -> io::Result<()> {
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
        self.send(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// The pieces that a client reads after the thread has ended, the error at their end, and
    /// whether the archive counts as received.
    async fn read_late(
        deadline: Instant,
        write: impl FnOnce(&mut Pipe) -> io::Result<()> + Send + 'static,
    ) -> (usize, Option<String>, bool) {
        let received = Arc::new(AtomicBool::new(false));
        let (ended, has_ended) = oneshot::channel::<()>();
        let is_received = received.clone();
        let archive = send(
            move |pipe| {
                // The end of the function drops it, also after a panic.
                let _ended = ended;
                write(pipe)
            },
            deadline,
            move || is_received.store(true, Ordering::Relaxed),
        );
        let _ = has_ended.await;
        assert!(!received.load(Ordering::Relaxed), "nobody has read anything");
        let read: Vec<_> = archive.collect().await;
        let pieces = read.iter().take_while(|piece| piece.is_ok()).count();
        let mut rest = read.into_iter().skip(pieces);
        let error = rest.next().map(|last| last.unwrap_err().to_string());
        assert!(rest.next().is_none(), "nothing follows an error");
        (pieces, error, received.load(Ordering::Relaxed))
    }

    fn write_pieces(pipe: &mut Pipe, count: usize) -> io::Result<()> {
        (0..count).try_for_each(|_| pipe.write_all(&[1; PIECE_BYTES]))
    }

    #[tokio::test]
    async fn an_archive_counts_as_received_when_the_client_has_read_it() {
        let later = Instant::now() + TIME_MAX;
        let whole = read_late(later, |pipe| {
            write_pieces(pipe, PIECES_MAX - 1)?;
            pipe.write_all(b"end")?;
            pipe.flush()
        });
        assert_eq!(whole.await, (PIECES_MAX, None, true));
    }

    #[tokio::test]
    async fn an_aborted_archive_ends_with_an_error_though_its_channel_is_full() {
        let aborted = read_late(Instant::now(), |pipe| write_pieces(pipe, PIECES_MAX + 1));
        let slow = Some("the caller is too slow".to_owned());
        assert_eq!(aborted.await, (PIECES_MAX, slow, false));
    }

    #[tokio::test]
    async fn an_archive_ends_with_an_error_when_its_thread_panics() {
        let later = Instant::now() + TIME_MAX;
        let panicked = read_late(later, |pipe| {
            write_pieces(pipe, 1)?;
            panic!("as a bug would do");
        });
        let ended = Some("the thread that wrote the backup has ended".to_owned());
        assert_eq!(panicked.await, (1, ended, false));
    }
}
