//! HTTP/2 frame by frame, for clients that a library would not permit.

use std::collections::HashMap;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::PATIENCE;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const FRAME_BYTES_MAX: usize = 16 << 10;

/// A setting of RFC 9113: bytes of the table of fields that an answer may refer to.
pub const HEADER_TABLE_SIZE: u16 = 1;

/// A setting of RFC 9113: number of bytes of an answer that may be sent before more are requested.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// An error code of RFC 9113.
pub const REFUSED_STREAM: u32 = 7;
/// An error code of RFC 9113.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A connection.
#[derive(Debug)]
pub struct Http2<IO> {
    stream: IO,
}

/// An event from the host on one stream, or on all.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The status of an answer.
    Status {
        /// The stream.
        stream: u32,
        /// The code.
        status: u16,
    },
    /// A stream is reset.
    Reset {
        /// The stream.
        stream: u32,
        /// The reason.
        code: u32,
    },
    /// The connection ends.
    GoAway {
        /// The reason.
        code: u32,
    },
    /// The connection is closed.
    Closed,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Http2<IO> {
    /// Begins a connection on a stream.
    pub async fn begin(stream: IO) -> Self {
        Self::begin_with(stream, &[]).await
    }

    /// The same with settings, by number.
    pub async fn begin_with(mut stream: IO, settings: &[(u16, u32)]) -> Self {
        let setting = |(number, value): &(u16, u32)| {
            [&number.to_be_bytes()[..], &value.to_be_bytes()].concat()
        };
        let settings: Vec<_> = settings.iter().flat_map(setting).collect();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &settings)).await.unwrap();
        Self { stream }
    }

    /// Makes room for so many more bytes of all answers together.
    pub async fn widen(&mut self, bytes: u32) {
        self.stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes())).await.unwrap();
    }

    /// The settings of the host, by number. Must be read first.
    pub async fn settings(&mut self) -> HashMap<u16, u32> {
        let (kind, _, _, payload) = self.read().await.expect("the host sends its settings");
        assert_eq!(kind, SETTINGS);
        let setting = |bytes: &[u8]| {
            let number = u16::from_be_bytes([bytes[0], bytes[1]]);
            (number, u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]))
        };
        payload.chunks(6).map(setting).collect()
    }

    /// Calls with a body of one frame, which may be empty.
    pub async fn call(
        &mut self,
        stream: u32,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) {
        let mut bytes = head(stream, method, path, fields, 0);
        bytes.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Calls without a body.
    pub async fn get(&mut self, stream: u32, path: &str, fields: &[(&str, &str)]) {
        let bytes = head(stream, "GET", path, fields, END_STREAM);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Calls without a body on the next `count` streams from `first` on, in one write. Each head
    /// names an empty field so many times more, with a byte for each. The host may close the
    /// connection instead.
    pub async fn flood(&mut self, first: u32, count: u32, path: &str, fields: usize) {
        let mut bytes = vec![];
        for stream in (first..).step_by(2).take(count as usize) {
            let mut block = block("GET", path, &[]);
            if fields > 0 {
                // A literal for the table, and then the newest entry of the table, again and again.
                block.extend([0x40, 1, b'a', 0]);
                block.resize(block.len() + fields, 0xbe);
            }
            bytes.extend(head_of(stream, &block, END_STREAM));
        }
        let _ = self.stream.write_all(&bytes).await;
    }

    /// Begins calls on the first streams, with so many bytes of their bodies, which never end.
    pub async fn flood_of_open_bodies(&mut self, count: u32, path: &str, bytes: usize) {
        let body = vec![b'x'; bytes];
        let streams = (1..).step_by(2).take(count as usize);
        let calls = streams.flat_map(|stream| {
            let piece = if bytes > 0 { frame(DATA, 0, stream, &body) } else { vec![] };
            [head(stream, "POST", path, &[], 0), piece].concat()
        });
        let calls: Vec<_> = calls.collect();
        let _ = self.stream.write_all(&calls).await;
    }

    /// The begin of a head that names an empty field so many times, and never ends.
    pub async fn begin_head(&mut self, stream: u32, fields: usize) {
        let mut block = block("GET", "/livez", &[]);
        block.extend([0x40, 1, b'a', 0]);
        block.resize(block.len() + fields, 0xbe);
        let _ = self.stream.write_all(&frame(HEADERS, END_STREAM, stream, &block)).await;
    }

    /// Sends a part of a body. The host may close the connection instead.
    pub async fn send_body(&mut self, stream: u32, bytes: &[u8]) {
        for part in bytes.chunks(FRAME_BYTES_MAX) {
            let _ = self.stream.write_all(&frame(DATA, 0, stream, part)).await;
        }
    }

    /// A call whose body never comes.
    pub async fn post_without_body(&mut self, stream: u32, path: &str, fields: &[(&str, &str)]) {
        self.begin_call(stream, "POST", path, fields).await;
    }

    /// Calls with a body that [`end_body`](Self::end_body) sends.
    pub async fn begin_call(
        &mut self,
        stream: u32,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) {
        self.stream.write_all(&head(stream, method, path, fields, 0)).await.unwrap();
    }

    /// Sends a body, or its rest, and ends it.
    pub async fn end_body(&mut self, stream: u32, body: &str) {
        self.stream.write_all(&frame(DATA, END_STREAM, stream, body.as_bytes())).await.unwrap();
    }

    /// The status and the whole body of the next answer, which must be on this stream. Another
    /// event is returned as an error, such as a reset of any stream.
    pub async fn whole_answer(&mut self, wanted: u32) -> Result<(u16, String), Event> {
        let (mut code, mut body) = (None, vec![]);
        loop {
            let Some((kind, flags, stream, payload)) = self.read().await else {
                return Err(Event::Closed);
            };
            match kind {
                HEADERS if stream == wanted => code = Some(status(&payload)),
                DATA if stream == wanted => body.extend(payload),
                _ => match self.event(kind, flags, stream, &payload).await {
                    Some(event) => return Err(event),
                    None => continue,
                },
            }
            if flags & END_STREAM != 0 {
                let code = code.expect("a head is before its body");
                return Ok((code, String::from_utf8(body).unwrap()));
            }
        }
    }

    /// Opens this many streams from `first` on, and resets each at once. The host may close before
    /// it has read all of them.
    pub async fn flood_with_resets(&mut self, first: u32, streams: u32) {
        let mut bytes = vec![];
        for stream in (first..first + 2 * streams).step_by(2) {
            bytes.extend(head(stream, "GET", "/openapi.json", &[], END_STREAM));
            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        let _ = self.stream.write_all(&bytes).await;
    }

    /// The next event.
    pub async fn next(&mut self) -> Event {
        loop {
            let Some((kind, flags, stream, payload)) = self.read().await else {
                return Event::Closed;
            };
            if let Some(event) = self.event(kind, flags, stream, &payload).await {
                return event;
            }
        }
    }

    /// The event that a frame is, if it is one. The host's settings are acknowledged.
    async fn event(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<Event> {
        let code = |at: usize| payload[at..at + 4].try_into().map(u32::from_be_bytes).unwrap();
        match kind {
            HEADERS => return Some(Event::Status { stream, status: status(payload) }),
            RST_STREAM => return Some(Event::Reset { stream, code: code(0) }),
            GOAWAY => return Some(Event::GoAway { code: code(4) }),
            SETTINGS if flags & ACK == 0 => {
                let _ = self.stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await;
            }
            DATA => assert!(stream > 0),
            _ => {}
        }
        None
    }

    /// The status of the answer on a stream.
    pub async fn status_of(&mut self, wanted: u32) -> u16 {
        loop {
            match self.next().await {
                Event::Status { stream, status } if stream == wanted => return status,
                Event::Closed => panic!("closed without an answer"),
                _ => {}
            }
        }
    }

    /// The next frame: kind, flags, stream, payload. `None` when the connection is closed.
    async fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let reading = async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some((kind, flags, u32::from_be_bytes(stream), payload))
        };
        timeout(PATIENCE, reading).await.expect("the host does something")
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a call, in as many frames as needed.
fn head(stream: u32, method: &str, path: &str, fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    head_of(stream, &block(method, path, fields), flags)
}

/// The fields of a head, each a literal that is not to be remembered.
fn block(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let fixed = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "x")];
    let mut block = vec![];
    for (name, value) in fixed.iter().chain(fields) {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

fn head_of(stream: u32, block: &[u8], flags: u8) -> Vec<u8> {
    let count = block.len().div_ceil(FRAME_BYTES_MAX);
    let mut bytes = vec![];
    for (number, part) in block.chunks(FRAME_BYTES_MAX).enumerate() {
        let end = if number + 1 == count { END_HEADERS } else { 0 };
        let (kind, flags) = if number == 0 { (HEADERS, flags | end) } else { (CONTINUATION, end) };
        bytes.extend(frame(kind, flags, stream, part));
    }
    bytes
}

/// A length in HPACK's encoding: seven bits, and the rest in groups of seven.
fn push_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return block.push(u8::try_from(length).unwrap());
    }
    block.push(127);
    let mut left = length - 127;
    while left >= 128 {
        block.push(u8::try_from(left % 128).unwrap() | 128);
        left /= 128;
    }
    block.push(u8::try_from(left).unwrap());
}

/// The status at the beginning of a header block: indexed, or a literal with its name indexed.
fn status(block: &[u8]) -> u16 {
    match block {
        // The size of the table of headers, if the client has set it.
        [0x20..=0x3f, block @ ..] => status(block),
        [indexed @ 0x88..=0x8e, ..] => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        // Three digits, plain or in Huffman's code: 5 bits for 0 to 2, 6 for the others.
        [_, 3, digits @ ..] => String::from_utf8_lossy(&digits[..3]).parse().unwrap(),
        [_, length, code @ ..] if length & 128 != 0 => {
            let bits = code
                .iter()
                .take(usize::from(length & 127))
                .fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
            let mut left = u32::from(length & 127) * 8;
            let mut take = |count: u32| {
                left -= count;
                (bits >> left) & ((1 << count) - 1)
            };
            (0..3).fold(0, |status, _| {
                let five = take(5);
                let digit = if five <= 2 { five } else { (five << 1 | take(1)) - 0x19 + 3 };
                status * 10 + u16::try_from(digit).unwrap()
            })
        }
        _ => panic!("no status in {block:02x?}"),
    }
}
