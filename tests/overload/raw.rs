//! HTTP written by hand, at whatever pace: what a client library would not do.

use std::time::Duration;

use gristmill_tests::TestHost;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// A connection of a client.
pub(crate) struct Raw {
    pub(crate) reader: OwnedReadHalf,
    pub(crate) writer: OwnedWriteHalf,
}

/// An answer, as far as these tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) async fn connect(host: &TestHost) -> Self {
        let stream = TcpStream::connect(host.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (reader, writer) = stream.into_split();
        Self { reader, writer }
    }

    /// Sends a head with the admin key; `headers` are whole lines.
    pub(crate) async fn send_head(
        &mut self,
        host: &TestHost,
        method: &str,
        path: &str,
        headers: &str,
    ) {
        let key = host.admin_key();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{headers}\r\n"
        );
        self.writer.write_all(head.as_bytes()).await.unwrap();
    }

    /// The next answer; `None` when the connection ends without one, or none comes in time.
    pub(crate) async fn answer(&mut self, patience: Duration) -> Option<RawAnswer> {
        answer(&mut self.reader, patience).await
    }
}

/// The next answer that has a Content-Length.
pub(crate) async fn answer(reader: &mut OwnedReadHalf, patience: Duration) -> Option<RawAnswer> {
    let mut bytes = vec![];
    let whole = async {
        loop {
            if let Some(answer) = parse(&bytes) {
                return Some(answer);
            }
            if reader.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    };
    timeout(patience, whole).await.ok()?
}

fn parse(bytes: &[u8]) -> Option<RawAnswer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    let length: usize = header("content-length: ")?;
    (body.len() >= length).then(|| RawAnswer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        retry_after: header("retry-after: ").map(|seconds: usize| seconds as u64),
        body: body.to_owned(),
    })
}
