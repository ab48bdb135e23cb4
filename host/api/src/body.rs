//! Request bodies, read up to a limit and no further. Their memory is bounded by
//! [`in_flight`](crate::in_flight).

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use gristmill_core::id::KeyId;
use gristmill_core::runtime::Staged;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::error::{ApiError, ErrorCode};
use crate::head;
use crate::in_flight::{InFlight, SMALL_BODY_BYTES, Share};

/// A body whose next bytes do not come for this long is given up: 408.
const IDLE_WAIT: Duration = Duration::from_secs(30);

/// And so is one that comes slower than this once [`IDLE_WAIT`] is over.
const BYTES_PER_SECOND_MIN: usize = 16 << 10;

/// Reads bodies within one common bound.
#[derive(Debug, Clone)]
pub(crate) struct BodyReader {
    in_flight: InFlight,
}

impl Default for BodyReader {
    fn default() -> Self {
        Self { in_flight: InFlight::of_bodies() }
    }
}

/// A body that was read; holds its share of the bound until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    _share: Option<Share>,
}

impl BodyReader {
    /// Reads the whole body, in the memory of the caller's key; `None` is the share of all
    /// management calls together.
    ///
    /// # Errors
    /// 413 when it is longer than `bytes_max`, told from Content-Length before a byte is read, or
    /// while reading; 408 when it stops coming; 400 when it breaks off; 503 under overload.
    pub(crate) async fn read(
        &self,
        key: Option<&KeyId>,
        headers: &HeaderMap,
        mut body: Body,
        bytes_max: usize,
    ) -> Result<ReadBody, ApiError> {
        let announced = announced(headers, bytes_max)?;
        // Without Content-Length a body may be as large as the limit.
        let mut share = match announced.unwrap_or(bytes_max) {
            0..=SMALL_BODY_BYTES => None,
            bytes => Some(self.in_flight.share(key, bytes)),
        };
        // The usual body is one frame, which is kept as it is; more frames are gathered.
        let mut bytes = Bytes::new();
        let mut gathered = BytesMut::new();
        let mut pace = Pace::start();
        loop {
            let received = bytes.len() + gathered.len();
            let next = next_data(&mut body, pace.deadline(received));
            let next = match &mut share {
                Some(share) => share.meanwhile(received, next).await?,
                None => next.await?,
            };
            let Some(data) = next else { break };
            if received + data.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            if let Some(share) = &mut share {
                pace.pause(share.cover(received + data.len()).await?);
            }
            if bytes.is_empty() && gathered.is_empty() {
                bytes = data;
                continue;
            }
            if gathered.is_empty() {
                gathered.reserve(announced.unwrap_or(0).max(bytes.len() + data.len()));
                gathered.extend_from_slice(&std::mem::take(&mut bytes));
            }
            gathered.extend_from_slice(&data);
        }
        if !gathered.is_empty() {
            bytes = gathered.freeze();
        }
        if let Some(share) = &mut share {
            share.ended(bytes.len());
        }
        Ok(ReadBody { bytes, _share: share })
    }
}

/// Adds a body to what is staged, as it comes: it is not held in memory, and so has no share of the
/// bound. What has come when it fails stays staged.
///
/// # Errors
/// Like those of [`BodyReader::read`]; 503 when too many uploads are on their way.
pub(crate) async fn stage(
    headers: &HeaderMap,
    mut body: Body,
    bytes_max: usize,
    into: &dyn Staged,
) -> Result<(), ApiError> {
    announced(headers, bytes_max)?;
    let pace = Pace::start();
    let mut bytes = 0;
    while let Some(data) = next_data(&mut body, pace.deadline(bytes)).await? {
        bytes += data.len();
        if bytes > bytes_max {
            return Err(too_large(bytes_max));
        }
        into.write(data).await?;
    }
    Ok(())
}

/// The length that a client tells beforehand.
fn announced(headers: &HeaderMap, bytes_max: usize) -> Result<Option<usize>, ApiError> {
    head::check_content_coding(headers)?;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    Ok(announced)
}

/// How fast a body has to come.
struct Pace(Instant);

impl Pace {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// We have let the client wait for so long.
    fn pause(&mut self, waited: Duration) {
        self.0 += waited;
    }

    /// When the next bytes have to be there, after so many.
    fn deadline(&self, bytes: usize) -> Instant {
        let seconds = (bytes / BYTES_PER_SECOND_MIN) as u64;
        let on_average = self.0 + IDLE_WAIT + Duration::from_secs(seconds);
        on_average.min(Instant::now() + IDLE_WAIT)
    }
}

/// The next bytes of a body; `None` at its end.
async fn next_data(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| {
            let (seconds, kib) = (IDLE_WAIT.as_secs(), BYTES_PER_SECOND_MIN >> 10);
            ApiError::new(
                ErrorCode::RequestTimeout,
                format!("the body stopped for {seconds} s, or came slower than {kib} KiB/s"),
            )
        })?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("the body could not be read: {error}"))
        })?;
        // Trailers carry nothing for us.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

pub(crate) fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(
        ErrorCode::PayloadTooLarge,
        format!("the body is too large, limit: {bytes_max} bytes"),
    )
}
