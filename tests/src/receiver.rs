//! A receiver of webhooks on the loopback interface: records its calls, and answers as the test
//! requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::wait::eventually;

/// A name that resolves to an address which no webhook may have, and that is seen only when it is
/// resolved: the machine's own name.
pub fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_ascii_lowercase()
}

/// One received call.
#[derive(Debug, Clone)]
pub struct ReceivedCall {
    /// Method and path.
    pub line: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl ReceivedCall {
    /// A header's value.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map_or_else(|| panic!("no {name}: {self:?}"), |(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    calls: Arc<Mutex<Vec<ReceivedCall>>>,
    connections: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Starts on a free port. The n-th call is answered with the n-th status line, such as `200
    /// OK`; later ones with the last. An empty line means no answer.
    pub async fn start(answers: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", answers).await
    }

    /// The same on another address.
    pub async fn start_on(address: &str, answers: &[&str]) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (calls, connections) =
            (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<usize>>::default());
        let (kept, counted) = (calls.clone(), connections.clone());
        let answers: Vec<_> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                let (kept, answers) = (kept.clone(), answers.clone());
                tokio::spawn(async move { serve(connection, &kept, &answers).await });
            }
        });
        Self { address, calls, connections, task }
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The port alone.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<ReceivedCall> {
        self.calls.lock().unwrap().clone()
    }

    /// All calls since the last call of this; the next one is answered like the first.
    pub fn take(&self) -> Vec<ReceivedCall> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// Waits until there were this many calls.
    pub async fn until(&self, count: usize) -> Vec<ReceivedCall> {
        eventually(&format!("{count} calls of the webhook"), async || {
            let calls = self.calls();
            (calls.len() >= count).then_some(calls)
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut connection: TcpStream, calls: &Mutex<Vec<ReceivedCall>>, answers: &[String]) {
    let Some(call) = read(&mut connection).await else { return };
    let count = {
        let mut calls = calls.lock().unwrap();
        calls.push(call);
        calls.len()
    };
    let answer = answers.get(count - 1).or_else(|| answers.last()).unwrap();
    if answer.is_empty() {
        // A receiver that does not answer, for longer than the host waits.
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    // The caller may have disconnected; then no one needs the answer.
    let _ = connection.write_all(text.as_bytes()).await;
}

async fn read(connection: &mut TcpStream) -> Option<ReceivedCall> {
    let mut bytes = vec![];
    let mut buffer = [0; 4096];
    loop {
        let count = connection.read(&mut buffer).await.ok()?;
        bytes.extend_from_slice(&buffer[..count]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut lines = head.lines();
            let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
            let headers: Vec<_> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length = length.map_or(0, |(_, value)| value.parse().unwrap());
            let body = &bytes[end + 4..];
            if body.len() >= length {
                return Some(ReceivedCall { line, headers, body: body.to_vec() });
            }
        }
        if count == 0 {
            return None;
        }
    }
}
