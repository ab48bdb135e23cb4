//! The call of a handler of HTTP: a request in, and the answer out while the handler still runs.

use std::io;
use std::time::Instant;

use gristmill_core::http_call::{HttpBody, HttpCall, InstanceName, NoResponse};
use gristmill_core::runtime::AttemptEnd;
use http::uri;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use wasmtime::Result;
use wasmtime::component::ResourceTable;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::{
    HostFutureTrailers, HostIncomingBody, HostOutgoingBody, HyperOutgoingBody,
};
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};
use wasmtime_wasi_http::{Error, WasiHttpView as _};

use crate::attempt::answer_body::AnswerBody;
use crate::attempt::instance::Instance;
use crate::attempt::outcome::{failed, reported};
use crate::attempt::work::Work;
use crate::bindings::gristmill::handler::types::Failure;
use crate::egress::WRITE_BYTES_MAX;
use crate::sandbox::state::State;

/// What the host keeps of the bodies: a piece of the request, and the two pieces of the answer that
/// the handler may write ahead.
const PIECES_BYTES: u64 = 3 * WRITE_BYTES_MAX as u64;

impl Work for HttpCall {
    type Returned = std::result::Result<(), Failure>;
    type Output = ();

    async fn call(
        self,
        instance: &mut Instance,
        ready: &mut Option<Instant>,
    ) -> Result<Self::Returned> {
        let Self { request, answer, .. } = self;
        let name = instance.name();
        // One copy is the host's, and one the handler's resource.
        let bytes = 2 * head_bytes(request.headers()) + PIECES_BYTES;
        instance.charge_start(bytes).await?;
        let started = match instance.start().await? {
            Ok(started) => started,
            Err(failure) => return Ok(Err(failure)),
        };
        let (store, component) = instance.parts();
        let handler = component.http()?.load(&mut *store, &started)?;
        let mut http = store.data_mut().http();
        let scheme = match request.uri().scheme() {
            Some(scheme) if *scheme == uri::Scheme::HTTPS => Scheme::Https,
            _ => Scheme::Http,
        };
        let request = http.new_incoming_request(scheme, incoming(request))?;
        let outparam = http.new_response_outparam_from_callback(move |answered| {
            // Nobody waits for it when the client has left.
            let _ = answer.send(outgoing(answered, name));
        })?;
        *ready = Some(Instant::now());
        handler.wasi_http_incoming_handler().call_handle(&mut *store, request, outparam).await?;
        // What the handler has forgotten ends with the instance: an answer that was never given, a
        // body without its end, and the client's body.
        if !keeps_call(&mut store.data_mut().table) {
            instance.returned(started, bytes);
        }
        Ok(Ok(()))
    }

    fn end(returned: Self::Returned, state: &State) -> AttemptEnd<()> {
        match returned {
            Ok(()) => AttemptEnd::Returned(()),
            Err(failure) => failed(reported(failure, state)),
        }
    }
}

/// Whether the handler still has a part of the call. **Cost.** A look at its handles.
fn keeps_call(handles: &mut ResourceTable) -> bool {
    handles.iter_mut().any(|handle| {
        handle.is::<HostResponseOutparam>()
            || handle.is::<HostOutgoingBody>()
            || handle.is::<HostIncomingRequest>()
            || handle.is::<HostIncomingBody>()
            || handle.is::<HostFutureTrailers>()
    })
}

fn head_bytes(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len()) as u64).sum()
}

/// The request for the handler, whose body has errors that it knows.
fn incoming(
    request: Request<HttpBody>,
) -> Request<impl http_body::Body<Data = bytes::Bytes, Error = Error> + Send + 'static> {
    request.map(|body| {
        body.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => Error::HttpRequestBodySize(None),
            io::ErrorKind::TimedOut => Error::ConnectionReadTimeout,
            _ => Error::ConnectionTerminated,
        })
    })
}

/// The answer for the client.
fn outgoing(
    answered: std::result::Result<Response<HyperOutgoingBody>, ErrorCode>,
    name: Option<InstanceName>,
) -> std::result::Result<Response<HttpBody>, NoResponse> {
    match answered {
        // Such an answer is followed by another one, which a handler cannot send.
        Ok(answer) if answer.status().is_informational() => Err(NoResponse::Invalid(format!(
            "the handler answered with status {}",
            answer.status()
        ))),
        Ok(mut answer) => {
            if let Some(name) = name {
                answer.extensions_mut().insert(name);
            }
            Ok(answer.map(|body| AnswerBody::new(body).boxed_unsync()))
        }
        Err(code) => {
            Err(NoResponse::Invalid(format!("the handler answered with the error {code:?}")))
        }
    }
}
