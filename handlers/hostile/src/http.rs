//! Exhausts the host's memory with requests.

use gristmill_sdk::http::Request;
use gristmill_sdk::{Context, Error};
use wasip2::http::types::{Fields, Method, OutgoingRequest};

/// Returns the number of texts that the host accepted.
pub fn heads(count: usize, bytes: usize) -> usize {
    let text = "x".repeat(bytes);
    let method = Method::Other(text.clone());
    let mut taken = 0;
    let mut kept = Vec::new();
    for _ in 0..count {
        let request = OutgoingRequest::new(Fields::new());
        taken += usize::from(request.set_method(&method).is_ok());
        taken += usize::from(request.set_authority(Some(&text)).is_ok());
        kept.push(request);
    }
    taken
}

/// Returns the number of sets that the host accepted.
pub fn fields(count: usize, bytes: usize) -> usize {
    let value = vec![b'x'; bytes];
    let kept: Vec<_> = (0..count)
        .map_while(|_| {
            let fields = Fields::new();
            fields.append("x-flood", &value).ok().map(|()| fields)
        })
        .collect();
    kept.len()
}

/// Returns the number of bytes that the host accepted.
pub fn bodies(count: usize) -> usize {
    let mut taken = 0;
    let mut kept = Vec::new();
    for _ in 0..count {
        let request = OutgoingRequest::new(Fields::new());
        let Ok(body) = request.body() else { break };
        let Ok(stream) = body.write() else { break };
        while let Ok(room @ 1..) = stream.check_write() {
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            if stream.write(&vec![b'x'; room]).is_err() {
                break;
            }
            taken += room;
        }
        kept.push((stream, body, request));
    }
    taken
}

pub fn headers(ctx: &Context, url: String, count: usize, bytes: usize) -> Result<usize, Error> {
    let value = "x".repeat(bytes);
    let request = Request::get(url);
    let request = (0..count)
        .fold(request, |request, n| request.with_header(format!("x-{n}"), value.as_str()));
    Ok(ctx.http_send(request)?.status.into())
}
