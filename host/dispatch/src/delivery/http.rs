//! Calls of webhook receivers over HTTP. Only public addresses, unless the operator permitted the
//! receiver. Redirects are not followed, and proxies in the environment are ignored. The connection
//! ends with the call, also if the receiver has not taken the whole request.

use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::deploy::egress::{HostPattern, Permission};
use gristmill_core::webhook::delivery::{ReceiverRefused, WebhookReceivers};
use gristmill_egress::{
    AGENT, AddressPolicy, AddressRefused, AddressScope, Clients, Destination, SendError,
    innermost_cause,
};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, USER_AGENT};
use url::Url;

use super::sender::{CallEnd, WebhookCall, WebhookSender};

/// Time for one call, from the moment when the receiver's addresses are known to the answer's last
/// byte. The lookup of its name has a separate time limit, since it may have to wait for its turn.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read; the rest is not waited for.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Calls receivers over HTTP.
#[derive(Debug)]
pub struct HttpSender {
    clients: Clients,
    allowed: Vec<HostPattern>,
}

impl HttpSender {
    /// A sender for receivers whose addresses the policy permits, and for receivers on the list at
    /// any address.
    pub fn new(allowed: Vec<HostPattern>, addresses: AddressPolicy) -> Self {
        Self::with_clients(allowed, Clients::new(addresses))
    }

    /// The same, with these clients.
    pub fn with_clients(allowed: Vec<HostPattern>, clients: Clients) -> Self {
        Self { clients, allowed }
    }

    /// The URL, and the addresses that a call of it may reach.
    fn check(&self, url: &str) -> Result<(Url, Destination, AddressScope), ReceiverRefused> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ReceiverRefused("the URL has a user name or a password".to_owned()));
        }
        let destination = Destination::of(&url).map_err(|error| error.to_string())?;
        let scope = match destination.permission(&self.allowed) {
            // The operator permitted this receiver by name, so its addresses need not be public.
            Permission::AnyAddress | Permission::Public => AddressScope::AnyAddress,
            Permission::Denied => {
                self.clients.check(&destination).map_err(|error| refusal(&error, &destination))?;
                AddressScope::PublicAddresses
            }
        };
        Ok((url, destination, scope))
    }
}

/// The refusal of a receiver's address, with the option that permits the receiver.
fn refusal(refused: &AddressRefused, destination: &Destination) -> String {
    let Destination { host, port, .. } = destination;
    format!("{refused}; only the operator can allow it, with `serve --webhook-allow {host}:{port}`")
}

impl WebhookReceivers for HttpSender {
    fn check(&self, url: &str) -> Result<(), ReceiverRefused> {
        self.check(url).map(drop)
    }
}

#[async_trait]
impl WebhookSender for HttpSender {
    async fn send(&self, call: WebhookCall) -> CallEnd {
        let (url, destination, scope) = match self.check(&call.url) {
            Ok(checked) => checked,
            Err(ReceiverRefused(reason)) => return CallEnd::Refused(reason),
        };
        let client = match self.clients.get(scope) {
            Ok(client) => client,
            Err(error) => return CallEnd::Failed(error.to_string()),
        };
        let found = match self.clients.look_up(&destination, &call.owner, &call.endpoint).await {
            Ok(found) => found,
            Err(error) => return CallEnd::Failed(format!("cannot connect: {error}")),
        };
        let mut request = client
            .post(url)
            .timeout(CALL_TIMEOUT)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .header("webhook-id", call.id)
            .header("webhook-timestamp", call.timestamp_s)
            .header("webhook-signature", call.signature)
            .body(call.body);
        if let Some(trace) = call.trace {
            request = request.header("traceparent", trace.to_string());
            if let Some(state) = trace.state.as_str() {
                request = request.header("tracestate", state);
            }
        }
        let request = match request.build() {
            Ok(request) => request,
            Err(error) => return CallEnd::Failed(innermost_cause(&error)),
        };
        match self.clients.send(request, &found, scope).await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                read(answer).await;
                CallEnd::Answered(status)
            }
            Err(SendError::Refused(refused)) => CallEnd::Refused(refusal(&refused, &destination)),
            Err(SendError::TimedOut) => {
                CallEnd::Failed(format!("no answer within {} s", CALL_TIMEOUT.as_secs()))
            }
            Err(error) => CallEnd::Failed(error.to_string()),
        }
    }
}

/// Lets the receiver finish its answer. The status has arrived, so nothing depends on the rest.
async fn read(mut answer: Response) {
    let mut bytes = 0;
    while let Ok(Some(piece)) = answer.chunk().await {
        bytes += piece.len();
        if bytes >= ANSWER_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
