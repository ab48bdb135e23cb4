//! `http`: one request, one response, both in memory.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use crate::bindings::gristmill::handler::http::{Host, HttpError, Request, Response};
use crate::egress::{
    EgressError, HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX, JobEgress, OutgoingRequest, within,
};
use crate::sandbox::state::State;

impl Host for State {
    async fn send(&mut self, request: Request) -> Result<Response, HttpError> {
        let until = request.timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms.into()));
        let egress = self.egress();
        let request = outgoing(egress, request, until)?;
        // Held until the body is read; the connection ends with the response.
        let (response, _slot) = egress.send(request).await?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            // The contract carries headers as strings, so values that are not UTF-8 are dropped.
            .filter_map(|(name, value)| {
                Some((name.to_string(), std::str::from_utf8(value.as_bytes()).ok()?.to_owned()))
            })
            .collect();
        let body = read_body(response, |bytes| egress.count_received(bytes));
        // The attempt's own deadline ends the wait in any case.
        let body = within(until, body).await??;
        Ok(Response { status, headers, body })
    }
}

fn outgoing(
    egress: &JobEgress,
    request: Request,
    until: Option<Instant>,
) -> Result<OutgoingRequest, HttpError> {
    let invalid = |what: String| HttpError::InvalidRequest(what);
    let head_bytes = head_bytes(&request);
    if head_bytes > HTTP_HEAD_BYTES_MAX {
        return Err(invalid(format!(
            "method, URL and headers have {head_bytes} bytes, limit: {HTTP_HEAD_BYTES_MAX} bytes"
        )));
    }
    if request.body.len() > HTTP_BODY_BYTES_MAX {
        return Err(invalid(format!(
            "the body has {} bytes, limit: {HTTP_BODY_BYTES_MAX} bytes",
            request.body.len()
        )));
    }
    let method = Method::from_bytes(request.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| invalid(format!("`{}` is no method", request.method)))?;
    let url = Url::parse(&request.url).map_err(|error| invalid(format!("bad URL: {error}")))?;
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers {
        let name = HeaderName::try_from(name.as_str())
            .map_err(|_| invalid(format!("`{name}` is no header name")))?;
        let value = HeaderValue::try_from(value)
            .map_err(|_| invalid(format!("the value of header `{name}` is malformed")))?;
        headers.append(name, value);
    }
    // The body determines the length.
    headers.remove(http::header::CONTENT_LENGTH);
    let body = egress.whole_body(request.body);
    Ok(OutgoingRequest { method, url, headers, body, until })
}

/// Approximate size of the head on the wire, with four bytes around each header.
fn head_bytes(request: &Request) -> usize {
    let headers = request.headers.iter().map(|(name, value)| name.len() + value.len() + 4);
    request.method.len() + request.url.len() + headers.sum::<usize>()
}

/// Reads the body of a response, and calls `count` with the bytes of each piece.
async fn read_body(
    mut response: reqwest::Response,
    count: impl Fn(usize),
) -> Result<Vec<u8>, HttpError> {
    let max = HTTP_BODY_BYTES_MAX;
    let too_large = || HttpError::TooLarge(max as u64);
    let announced = response.content_length().unwrap_or(0);
    if announced > max as u64 {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(EgressError::from)? {
        count(piece.len());
        if body.len() + piece.len() > max {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

impl From<EgressError> for HttpError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::NotAllowed(_) | EgressError::AddressRefused { .. } => {
                Self::Denied(error.to_string())
            }
            EgressError::Invalid(_) => Self::InvalidRequest(error.to_string()),
            EgressError::Timeout => Self::Timeout,
            EgressError::Connect(_) => Self::Connect(error.to_string()),
            EgressError::TooMany | EgressError::HeadTooLarge { .. } | EgressError::Other(_) => {
                Self::Other(error.to_string())
            }
        }
    }
}
