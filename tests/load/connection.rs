//! One keep-alive HTTP/1.1 connection that costs as little as possible, so that the cores are the
//! host's. It reads exactly what the host sends: a status line, Content-Length, a body.

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection to the host.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What came back.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Connection {
    pub(crate) async fn open(addr: &str) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 << 10) })
    }

    /// Sends a request that was written out by [`request`] and reads its answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the host closed the connection");
            }
            let Some(head_end) = find(&self.buffer, b"\r\n\r\n") else { continue };
            let (status, length) = parse_head(&self.buffer[..head_end])?;
            let body = head_end + 4;
            while self.buffer.len() < body + length {
                if self.stream.read_buf(&mut self.buffer).await? == 0 {
                    bail!("the host closed the connection");
                }
            }
            return Ok(Answer { status, body: &self.buffer[body..body + length] });
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn parse_head(head: &[u8]) -> anyhow::Result<(u16, usize)> {
    let head = std::str::from_utf8(head).context("the head is text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("a status line")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("a Content-Length")?
        .1;
    Ok((status.parse()?, length.trim().parse()?))
}

/// A request, written out.
pub(crate) fn request(method: &str, path: &str, key: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: gristmill\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
