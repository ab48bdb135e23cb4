//! `wasi:http`: the same policy and the same clients as `http.send`, with streaming bodies.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::{Instant, Sleep};
use url::Url;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::{
    HostOutgoingRequest as _, Method, OutgoingRequest as WasiRequest,
};
use wasmtime_wasi_http::{Error, RequestOptions, WasiHttpHooks, WasiHttpView as _};

use super::{
    EgressError, HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX, JobEgress, OutgoingRequest, Slot,
};
use crate::state::State;

type WasiBody = UnsyncBoxBody<Bytes, Error>;
type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sending = Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send>;

/// Most bytes that a handler may write to a request's body in one call.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// The linker's name of the interface whose functions are bounded here.
const WASI_HTTP_TYPES: &str = "wasi:http/types@0.2.12";

/// Bounds the memory of requests that are not sent yet. Wasmtime bounds their headers and paths;
/// method and authority may have any length that one call can pass, and a handler may keep a
/// thousand requests.
///
/// # Errors
/// When the linker does not have the interface.
pub(crate) fn bound_heads(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type Answer = (Result<(), ()>,);
    linker.allow_shadowing(true);
    let mut types = linker.instance(WASI_HTTP_TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, State>,
         (request, method): (Resource<WasiRequest>, Method)|
         -> wasmtime::Result<Answer> {
            match &method {
                Method::Other(text) if text.len() > HTTP_HEAD_BYTES_MAX => Ok((Err(()),)),
                _ => Ok((store.data_mut().http().set_method(request, method)?,)),
            }
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, State>,
         (request, authority): (Resource<WasiRequest>, Option<String>)|
         -> wasmtime::Result<Answer> {
            match &authority {
                Some(text) if text.len() > HTTP_HEAD_BYTES_MAX => Ok((Err(()),)),
                _ => Ok((store.data_mut().http().set_authority(request, authority)?,)),
            }
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

impl WasiHttpHooks for JobEgress {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _outcome: Io,
    ) -> Sending {
        let egress = self.clone();
        Box::new(async move {
            let options = options.unwrap_or_default();
            let response = exchange(&egress, request, options).await?;
            Ok((response, Box::new(std::future::ready(Ok(()))) as Io))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        WRITE_BYTES_MAX
    }
}

async fn exchange(
    egress: &JobEgress,
    request: Request<WasiBody>,
    options: RequestOptions,
) -> Result<Response<WasiBody>, Error> {
    let (head, body) = request.into_parts();
    let url = Url::parse(&head.uri.to_string()).map_err(|_| Error::HttpRequestUriInvalid)?;
    let body = (!http_body::Body::is_end_stream(&body)).then(|| {
        let pieces = capped(body, egress.remaining(), None).into_data_stream();
        // An empty piece would end the body early with some framings, and costs memory with others
        // (GHSA-f8mm).
        reqwest::Body::wrap_stream(pieces.try_filter(|piece| std::future::ready(!piece.is_empty())))
    });
    let request = OutgoingRequest { method: head.method, url, headers: head.headers, body };
    let until_head = [options.connect_timeout, options.first_byte_timeout];
    let until_head = until_head.into_iter().flatten().fold(None, |sum: Option<Duration>, next| {
        Some(sum.unwrap_or_default().saturating_add(next))
    });
    let sending = egress.send(request);
    let (response, slot) = match until_head {
        Some(limit) => {
            tokio::time::timeout(limit, sending).await.map_err(|_| Error::ConnectionTimeout)?
        }
        None => sending.await,
    }
    .map_err(Error::from)?;
    let remaining = egress.remaining();
    let pause_max = options.between_bytes_timeout.map_or(remaining, |asked| asked.min(remaining));
    let response: Response<reqwest::Body> = response.into();
    Ok(response.map(|body| {
        let body = body.map_err(|error| Error::from(EgressError::from(error)));
        capped(body.boxed_unsync(), pause_max, Some(slot))
    }))
}

/// A body that fails beyond [`HTTP_BODY_BYTES_MAX`], or when it pauses too long.
struct Capped {
    body: WasiBody,
    room: usize,
    pause_max: Duration,
    pause: Pin<Box<Sleep>>,
    /// Held by the body of a response until the handler is done with it.
    slot: Option<Slot>,
}

fn capped(body: WasiBody, pause_max: Duration, slot: Option<Slot>) -> WasiBody {
    let pause = Box::pin(tokio::time::sleep(pause_max));
    let room = HTTP_BODY_BYTES_MAX;
    Capped { body, room, pause_max, pause, slot }.boxed_unsync()
}

impl http_body::Body for Capped {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let is_over = self.pause.as_mut().poll(context).is_ready();
            let timeout = || Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            return if is_over { timeout() } else { Poll::Pending };
        };
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(room) = self.room.checked_sub(bytes) else {
            let max = Some(HTTP_BODY_BYTES_MAX as u64);
            return Poll::Ready(Some(Err(match self.slot {
                None => Error::HttpRequestBodySize(max),
                Some(_) => Error::HttpResponseBodySize(max),
            })));
        };
        self.room = room;
        let next = Instant::now() + self.pause_max;
        self.pause.as_mut().reset(next);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

impl From<EgressError> for Error {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::NotAllowed { .. } => Self::HttpRequestDenied,
            EgressError::AddressRefused(_) => Self::DestinationIpProhibited,
            EgressError::Invalid(_) => Self::HttpRequestUriInvalid,
            EgressError::TooMany => Self::ConnectionLimitReached,
            EgressError::Timeout => Self::HttpResponseTimeout,
            EgressError::Connect(_) => Self::ConnectionRefused,
            EgressError::Other(text) => Self::InternalError(Some(text)),
        }
    }
}
