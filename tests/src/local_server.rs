//! A small HTTP server on the loopback interface, for handlers that fetch.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Answers every request by its path: `/redirect` with 302, all others with 200 and the text
/// `hello from PATH`. Stops when it is dropped.
#[derive(Debug)]
pub struct LocalServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl LocalServer {
    /// Starts on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(answer(connection));
            }
        });
        Self { address, task }
    }

    /// `127.0.0.1:PORT`, as an endpoint's `allowedHosts` names it.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut connection: TcpStream) {
    let mut request = vec![];
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match connection.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend(buffer.iter().take(count)),
        }
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
    let (status, extra) = match path.as_str() {
        "/redirect" => ("302 Found", "location: /elsewhere\r\n"),
        _ => ("200 OK", ""),
    };
    let body = format!("hello from {path}");
    let text = format!(
        "HTTP/1.1 {status}\r\n{extra}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // The guest may be gone; then nobody misses the answer.
    let _ = connection.write_all(text.as_bytes()).await;
}
