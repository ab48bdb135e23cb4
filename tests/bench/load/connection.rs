//! One keep-alive HTTP/1.1 connection with the least possible cost, so that the cores are free for
//! the host. It parses the answers of the host and the peers: a status line, a body with a
//! Content-Length or in chunks. Bodies are held as a whole.

use anyhow::{Context as _, anyhow, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The content of a chunked body.
    unchunked: Vec<u8>,
}

/// An answer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    head: &'a str,
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }
}

impl Connection {
    pub(crate) async fn open(addr: &str) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 << 10), unchunked: Vec::new() })
    }

    /// Sends a request from [`request`] and reads its answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head_end = self.read_until(0, b"\r\n\r\n").await?;
        let body = head_end + 4;
        let head = std::str::from_utf8(&self.buffer[..head_end]).context("the head is text")?;
        let status = head.split(' ').nth(1).context("a status line")?.parse()?;
        let length = match header(head, "content-length") {
            Some(length) => Some(length.parse::<usize>()?),
            None if header(head, "transfer-encoding") == Some("chunked") => None,
            None => bail!("neither Content-Length nor chunks"),
        };
        if let Some(length) = length {
            while self.buffer.len() < body + length {
                self.read().await?;
            }
        } else {
            self.read_chunks(body).await?;
        }
        let body = match length {
            Some(length) => &self.buffer[body..body + length],
            None => &self.unchunked,
        };
        Ok(Answer { status, head: std::str::from_utf8(&self.buffer[..head_end])?, body })
    }

    /// Sends a request and discards its answer, which has no end.
    pub(crate) async fn discard(&mut self, request: &[u8]) -> anyhow::Error {
        if let Err(error) = self.stream.write_all(request).await {
            return error.into();
        }
        loop {
            self.buffer.clear();
            if let Err(error) = self.read().await {
                return error;
            }
            // A refusal has a status and then no more events.
            if self.buffer.starts_with(b"HTTP/1.1 4") {
                return anyhow!("{}", String::from_utf8_lossy(&self.buffer));
            }
        }
    }

    async fn read_chunks(&mut self, mut at: usize) -> anyhow::Result<()> {
        self.unchunked.clear();
        loop {
            let line_end = self.read_until(at, b"\r\n").await?;
            let line = std::str::from_utf8(&self.buffer[at..line_end])?;
            let length = usize::from_str_radix(line, 16).context("the length of a chunk")?;
            let chunk = line_end + 2;
            while self.buffer.len() < chunk + length + 2 {
                self.read().await?;
            }
            if length == 0 {
                return Ok(());
            }
            self.unchunked.extend_from_slice(&self.buffer[chunk..chunk + length]);
            at = chunk + length + 2;
        }
    }

    /// The position of `what`; reads until it arrives.
    async fn read_until(&mut self, from: usize, what: &[u8]) -> anyhow::Result<usize> {
        loop {
            if let Some(at) = find(&self.buffer[from..], what) {
                return Ok(from + at);
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}

pub(crate) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// The bytes of a request. `headers` are whole lines.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
