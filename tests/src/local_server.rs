//! A small HTTP server on the loopback interface, for handlers that fetch.

use std::net::SocketAddr;

use crate::scripted_server::{Reply, ScriptedServer};

/// Answers every request by its path: `/redirect` with 302, all others with 200 and the text
/// `hello from PATH`. Stops when it is dropped.
#[derive(Debug)]
pub struct LocalServer(ScriptedServer);

impl LocalServer {
    /// Starts on a free port.
    pub async fn start() -> Self {
        Self(ScriptedServer::start(answer).await)
    }

    /// `127.0.0.1:PORT`, as an endpoint's `allowedHosts` names it.
    pub fn host(&self) -> String {
        self.0.host()
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host())
    }
}

fn answer(_: SocketAddr, head: &str) -> Reply {
    let path = head.split(' ').nth(1).unwrap_or("/");
    let reply = Reply::ok(format!("hello from {path}"));
    match path {
        "/redirect" => {
            Reply { body: reply.body, ..Reply::with("302 Found", &["location: /elsewhere"]) }
        }
        _ => reply,
    }
}
