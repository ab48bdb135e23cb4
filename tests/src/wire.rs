//! HTTP/1.1 written by hand, at any speed: behaviour that a client library would not permit.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::TestHost;

/// A connection of a client.
#[derive(Debug)]
pub struct Wire {
    /// The source of answers, see [`next_answer`].
    pub reader: OwnedReadHalf,
    /// The destination of calls.
    pub writer: OwnedWriteHalf,
}

impl Wire {
    /// Returns once the kernel has the connection; the host may not have seen it yet.
    pub async fn connect(host: &TestHost) -> Self {
        let stream = TcpStream::connect(host.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (reader, writer) = stream.into_split();
        Self { reader, writer }
    }

    /// Sends a head with the admin key; `headers` are whole lines.
    pub async fn send_head(&mut self, host: &TestHost, method: &str, path: &str, headers: &str) {
        let key = host.admin_key();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{headers}\r\n"
        );
        self.writer.write_all(head.as_bytes()).await.unwrap();
    }

    /// The next answer; `None` when the connection ends without one, or none arrives in time.
    pub async fn answer(&mut self, patience: Duration) -> Option<WireAnswer> {
        timeout(patience, next_answer(&mut self.reader)).await.ok()?
    }
}

/// A received answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireAnswer {
    /// Its status code.
    pub status: u16,
    /// Its first line and its headers.
    pub head: String,
    /// Its body.
    pub body: String,
}

impl WireAnswer {
    /// A header's value; `name` is lower case, as the host writes it.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Reads the next answer, which must have a Content-Length. `None` when the connection ends without
/// one.
pub async fn next_answer(reader: &mut (impl AsyncRead + Unpin)) -> Option<WireAnswer> {
    let mut bytes = vec![];
    loop {
        if let Some(answer) = parse(&bytes) {
            return Some(answer);
        }
        if reader.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn parse(bytes: &[u8]) -> Option<WireAnswer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length: usize = header(head, "content-length")?.parse().ok()?;
    (body.len() >= length).then(|| WireAnswer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
