//! `wasi:http`: the same policy and the same clients as `http.send`, with streaming bodies.

use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use url::Url;
use wasmtime_wasi_http::{Error, RequestOptions, WasiHttpHooks};

use super::calls::WasiBody;
use super::error::EgressError;
use super::job::{JobEgress, OutgoingRequest};

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sending = Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send>;

/// Most bytes that a handler may write to a request's body in one call.
pub(crate) const WRITE_BYTES_MAX: usize = 64 << 10;

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
    let calls = egress.calls.clone();
    let body = (!http_body::Body::is_end_stream(&body)).then(|| {
        let pieces = calls.capped(body, egress.remaining(), None).into_data_stream();
        // An empty piece would end the body early on some framings, and costs memory on others
        // (GHSA-f8mm).
        reqwest::Body::wrap_stream(pieces.try_filter(|piece| std::future::ready(!piece.is_empty())))
    });
    let until_head = [options.connect_timeout, options.first_byte_timeout];
    let until_head = until_head.into_iter().flatten().fold(None, |sum: Option<Duration>, next| {
        Some(sum.unwrap_or_default().saturating_add(next))
    });
    // A time that no clock can hold is later than the attempt's deadline.
    let until = until_head.and_then(|limit| Instant::now().checked_add(limit));
    let request = OutgoingRequest { method: head.method, url, headers: head.headers, body, until };
    let (response, slot) = tokio::select! {
        sent = egress.send(request) => sent?,
        () = calls.ended() => return Err(Error::ConnectionTerminated),
    };
    let remaining = egress.remaining();
    let pause_max = options.between_bytes_timeout.map_or(remaining, |asked| asked.min(remaining));
    let response: Response<reqwest::Body> = response.into();
    Ok(response.map(|body| {
        let body = body.map_err(|error| Error::from(EgressError::from(error)));
        calls.capped(body.boxed_unsync(), pause_max, Some(slot))
    }))
}

impl From<EgressError> for Error {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::NotAllowed(_) => Self::HttpRequestDenied,
            EgressError::AddressRefused { .. } => Self::DestinationIpProhibited,
            EgressError::Invalid(_) => Self::HttpRequestUriInvalid,
            EgressError::TooMany => Self::ConnectionLimitReached,
            EgressError::Timeout => Self::HttpResponseTimeout,
            EgressError::Connect(_) => Self::ConnectionRefused,
            EgressError::HeadTooLarge { bytes } => {
                Self::HttpResponseHeaderSectionSize(u32::try_from(bytes).ok())
            }
            EgressError::Other(text) => Self::InternalError(Some(text)),
        }
    }
}
