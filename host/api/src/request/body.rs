//! Reads request bodies up to a limit. [`in_flight`](crate::limits::in_flight) bounds their memory.

use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Version, header};
use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use gristmill_core::id::KeyId;
use gristmill_core::runtime::Staged;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::answer::error::{ApiError, ErrorCode};
use crate::limits::in_flight::{InFlight, SMALL_BODY_BYTES, Share};
use crate::request::head;

/// A body without new bytes for this long is given up: 408.
const IDLE_WAIT: Duration = Duration::from_secs(30);

/// A body that is slower than this on average after [`IDLE_WAIT`] is given up, too: 408.
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
    /// Reads the whole body of the request with this head, in the memory share of the caller's key.
    ///
    /// # Errors
    /// 415 for a content coding; 413 when it is longer than `bytes_max`, from Content-Length before
    /// a byte is read, or while reading; 408 when it pauses too long; 400 when it ends early; 503
    /// under overload.
    pub(crate) async fn read(
        &self,
        key: &KeyId,
        head: &Parts,
        body: Body,
        bytes_max: usize,
    ) -> Result<ReadBody, ApiError> {
        head::check_content_coding(&head.headers)?;
        self.read_as_it_is(key, head, body, bytes_max).await
    }

    /// The same for a body of any content coding, which is not decoded.
    ///
    /// # Errors
    /// The same, except for the coding.
    pub(crate) async fn read_as_it_is(
        &self,
        key: &KeyId,
        head: &Parts,
        mut body: Body,
        bytes_max: usize,
    ) -> Result<ReadBody, ApiError> {
        let announced = announced(&head.headers, bytes_max)?;
        let uncounted = if head.version == Version::HTTP_2 { 0 } else { SMALL_BODY_BYTES };
        // Without Content-Length a body may be as large as the limit.
        let mut share = match announced.unwrap_or(bytes_max) {
            bytes if bytes <= uncounted => None,
            bytes => Some(self.in_flight.share(key, bytes, uncounted)),
        };
        // Most bodies are one frame, which is kept unchanged; several frames are copied together.
        let mut bytes = Bytes::new();
        let mut gathered = BytesMut::new();
        let mut pace = Pace::start();
        loop {
            let received = bytes.len() + gathered.len();
            let next = next_data(&mut body, || pace.deadline(received));
            let next = match &mut share {
                Some(share) => share.meanwhile(received, next).boxed().await?,
                None => next.await?,
            };
            let Some(data) = next else { break };
            if received + data.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            if let Some(share) = &mut share {
                pace.pause(share.cover(received + data.len()).boxed().await?);
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

/// Appends a body to a staged upload while it arrives: it is not held in memory, and so needs no
/// share of the bound. Bytes that have arrived before an error stay staged.
///
/// # Errors
/// Like those of [`BodyReader::read`]; 503 when too many uploads are in progress.
pub(crate) async fn stage(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
    into: &dyn Staged,
) -> Result<(), ApiError> {
    let mut pieces = Pieces::new(headers, body, bytes_max)?;
    while let Some(piece) = pieces.next().await? {
        into.write(piece).await?;
    }
    Ok(())
}

/// A body, piece by piece. Nothing of it is held in memory.
#[derive(Debug)]
pub(crate) struct Pieces {
    body: Body,
    bytes_max: usize,
    announced: Option<usize>,
    bytes: usize,
    pace: Pace,
}

impl Pieces {
    /// # Errors
    /// 413 when the announced length is over the limit; 415.
    pub(crate) fn new(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Self, ApiError> {
        head::check_content_coding(headers)?;
        let announced = announced(headers, bytes_max)?;
        Ok(Self { body, bytes_max, announced, bytes: 0, pace: Pace::start() })
    }

    /// The length that the client announces.
    pub(crate) fn announced(&self) -> Option<usize> {
        self.announced
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Like those of [`BodyReader::read`].
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Self { body, pace, bytes, .. } = self;
        let Some(data) = next_data(body, || pace.deadline(*bytes)).await? else { return Ok(None) };
        self.bytes = self.bytes.saturating_add(data.len());
        match self.bytes > self.bytes_max {
            true => Err(too_large(self.bytes_max)),
            false => Ok(Some(data)),
        }
    }
}

/// The length that the client announces.
///
/// # Errors
/// 413 when it is over the limit.
pub(crate) fn announced(headers: &HeaderMap, bytes_max: usize) -> Result<Option<usize>, ApiError> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    Ok(announced)
}

/// The required speed of a body.
#[derive(Debug)]
pub(crate) struct Pace(Instant);

impl Pace {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Excludes the time in which the host let the client wait.
    pub(crate) fn pause(&mut self, waited: Duration) {
        self.0 += waited;
    }

    /// The deadline for the next bytes, after this many.
    pub(crate) fn deadline(&self, bytes: usize) -> Instant {
        let seconds = (bytes / BYTES_PER_SECOND_MIN) as u64;
        let on_average = self.0 + IDLE_WAIT + Duration::from_secs(seconds);
        on_average.min(Instant::now() + IDLE_WAIT)
    }
}

/// The next bytes of a body; `None` at its end.
async fn next_data(
    body: &mut Body,
    deadline: impl Fn() -> Instant,
) -> Result<Option<Bytes>, ApiError> {
    loop {
        // Most bodies arrive together with their head, and need neither clock nor timer.
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => timeout_at(deadline(), body.frame()).boxed().await.map_err(|_| {
                let (seconds, kib) = (IDLE_WAIT.as_secs(), BYTES_PER_SECOND_MIN >> 10);
                ApiError::new(
                    ErrorCode::RequestTimeout,
                    format!("the body stopped for {seconds} s, or arrived slower than {kib} KiB/s"),
                )
            })?,
        };
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("the body could not be read: {error}"))
        })?;
        // Trailers have no meaning here.
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

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use gristmill_core::id::KeyId;

    use super::*;

    #[tokio::test]
    async fn every_body_of_http_2_takes_memory_from_the_pool() {
        let reader = BodyReader::default();
        let key = KeyId::new("k").unwrap();
        for (version, takes) in [(Version::HTTP_11, false), (Version::HTTP_2, true)] {
            let (head, ()) = Request::builder().version(version).body(()).unwrap().into_parts();
            let mut head = head;
            head.headers.insert(header::CONTENT_LENGTH, "2".parse().unwrap());
            let read = reader.read(&key, &head, Body::from("{}"), 1 << 20).await.unwrap();
            assert_eq!(read._share.is_some(), takes, "{version:?}");
        }
    }
}
