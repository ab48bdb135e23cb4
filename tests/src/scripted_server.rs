//! An HTTP server on the loopback interface with scripted answers, for hostile peers.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The answer to a call.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// Such as `200 OK`.
    pub status: &'static str,
    /// Lines such as `Location: /x`.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A success with this body.
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: "200 OK", headers: vec![], body: body.into() }
    }

    /// Another status, with these headers.
    pub fn with(status: &'static str, headers: &[&str]) -> Self {
        let headers = headers.iter().map(|line| (*line).to_owned()).collect();
        Self { status, headers, body: vec![] }
    }
}

/// Answers each call by its head. Stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl ScriptedServer {
    /// Starts on a free port; the script gets the address, and each call's head.
    pub async fn start(script: impl Fn(SocketAddr, &str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", script).await
    }

    /// The same on another address.
    pub async fn start_on(
        address: &str,
        script: impl Fn(SocketAddr, &str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (script, seen) = (Arc::new(script), Arc::clone(&heads));
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                tokio::spawn(async move {
                    answer(connection, |head| {
                        seen.lock().push(head.to_owned());
                        script(address, head)
                    })
                    .await;
                });
            }
        });
        Self { address, heads, task }
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The heads of all calls so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut connection: TcpStream, reply: impl FnOnce(&str) -> Reply) {
    let mut request = vec![];
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match connection.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend(buffer.iter().take(count)),
        }
    }
    let Reply { status, headers, body } = reply(&String::from_utf8_lossy(&request));
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // The caller may have disconnected; then no one needs the answer.
    let _ = connection.write_all(&[head.as_bytes(), &body].concat()).await;
}
