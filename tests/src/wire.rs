//! HTTP/1.1 written by hand, at any speed: behaviour that a client library would not permit.

use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rustix::net::sockopt::set_tcp_cork;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::wait::PATIENCE;
use crate::{Answer, TestHost};

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

    /// Keeps back what is written from now on, for up to 200 ms, until this side ends: the host
    /// gets it together with the end. For less than a segment, 64 KiB.
    pub fn cork(&self) {
        let stream: &TcpStream = self.writer.as_ref();
        set_tcp_cork(stream, true).unwrap();
    }

    /// The answer to a call whose body has this many bytes, in chunks and so without an announced
    /// length. The answer is read while the body is sent: the host may close the connection before
    /// it has the whole body.
    pub async fn call_in_chunks(host: &TestHost, method: &str, path: &str, bytes: usize) -> Answer {
        const PIECE_BYTES: usize = 64 << 10;
        let mut wire = Self::connect(host).await;
        wire.send_head(host, method, path, "transfer-encoding: chunked\r\n").await;
        let Self { mut reader, mut writer } = wire;
        let chunk = format!("{PIECE_BYTES:x}\r\n{}\r\n", "x".repeat(PIECE_BYTES));
        let writing = async {
            for _ in 0..bytes.div_ceil(PIECE_BYTES) {
                if writer.write_all(chunk.as_bytes()).await.is_err() {
                    return;
                }
            }
            // The host may have closed the connection by now.
            let _ = writer.write_all(b"0\r\n\r\n").await;
        };
        let (answer, ()) = tokio::join!(timeout(PATIENCE, next_answer(&mut reader)), writing);
        let call = format!("{method} {path}");
        match answer {
            Ok(Some(answer)) => answer.into_answer(call),
            missing => panic!("{call}: no answer: {missing:?}"),
        }
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

    /// The same with the assertions of [`Answer`].
    fn into_answer(self, call: String) -> Answer {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let header = |(name, value): (&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        let headers = lines.map(header).collect();
        Answer { call, status: self.status, headers, text: self.body }
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
