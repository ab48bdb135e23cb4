//! The log of one attempt: lines from the handler's `log`, its standard output and its standard
//! error, capped in length and in sum, without control characters.
//!
//! One message of the handler's `log` can have millions of lines. Those for which there is no room
//! cost one look at each character, and no memory.

use std::fmt;
use std::sync::Arc;

use gristmill_core::limits::{LOG_BYTES_MAX, LOG_LINE_BYTES_MAX};
use gristmill_core::runtime::{AttemptSink, LogLevel};
use parking_lot::Mutex;

/// The end of a line that was cut.
const CUT_MARK: &str = "…";

/// The line in place of the first one that is dropped. The cap leaves room for it.
const FULL: &str = "the log of this attempt is full (256 KiB): lines that do not fit are dropped";

/// Fewest bytes of a line that was cut.
const CUT_LINE_BYTES_MIN: usize = LOG_LINE_BYTES_MAX - CUT_MARK.len();

/// Bytes of standard error that are kept for the error of a handler that ends abnormally.
const STDERR_TAIL_BYTES_MAX: usize = 1_024;

/// Which standard stream a handler writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdStream {
    Out,
    Err,
}

impl StdStream {
    fn level(self) -> LogLevel {
        match self {
            Self::Out => LogLevel::Info,
            Self::Err => LogLevel::Warn,
        }
    }
}

/// The destination of all log lines of one attempt. An instance keeps its log object, which is
/// reset for each further job.
pub(crate) struct AttemptLog {
    state: Mutex<LogState>,
}

struct LogState {
    sink: Arc<dyn AttemptSink>,
    bytes: usize,
    lines_dropped: u64,
    /// Unfinished lines; never longer than [`LOG_LINE_BYTES_MAX`].
    stdout: PartialLine,
    stderr: PartialLine,
    stderr_tail: String,
}

#[derive(Default)]
struct PartialLine {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl AttemptLog {
    pub(crate) fn new(sink: Arc<dyn AttemptSink>) -> Self {
        Self { state: Mutex::new(LogState::new(sink)) }
    }

    /// Resets the log, and sends further lines to `sink`.
    pub(crate) fn begin(&self, sink: Arc<dyn AttemptSink>) {
        *self.state.lock() = LogState::new(sink);
    }

    /// Adds one message of the handler's `log`; line breaks in it make several lines.
    pub(crate) fn write(&self, level: LogLevel, message: &str) {
        let mut state = self.state.lock();
        let mut rest = state.drop_lines(message);
        while !rest.is_empty() {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            state.push(level, clean(line));
            rest = state.drop_lines(after);
        }
    }

    /// Adds bytes of a standard stream.
    pub(crate) fn write_std(&self, stream: StdStream, bytes: &[u8]) {
        let mut state = self.state.lock();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let partial = state.partial(stream);
            let room = LOG_LINE_BYTES_MAX.saturating_sub(partial.bytes.len());
            let (kept, cut) = piece.split_at_checked(room).unwrap_or((piece, &[]));
            partial.bytes.extend_from_slice(kept);
            partial.is_cut |= !cut.is_empty();
            if pieces.peek().is_some() {
                state.end_line(stream);
            }
        }
    }

    /// Flushes unfinished lines, and returns the number of dropped lines.
    pub(crate) fn finish(&self) -> u64 {
        let mut state = self.state.lock();
        state.end_line(StdStream::Out);
        state.end_line(StdStream::Err);
        state.lines_dropped
    }

    /// The end of standard error on one line; empty when nothing was written there.
    pub(crate) fn stderr_tail(&self) -> String {
        self.state.lock().stderr_tail.clone()
    }
}

impl fmt::Debug for AttemptLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptLog").field("bytes", &self.state.lock().bytes).finish()
    }
}

impl LogState {
    fn new(sink: Arc<dyn AttemptSink>) -> Self {
        Self {
            sink,
            bytes: 0,
            lines_dropped: 0,
            stdout: PartialLine::default(),
            stderr: PartialLine::default(),
            stderr_tail: String::new(),
        }
    }

    fn partial(&mut self, stream: StdStream) -> &mut PartialLine {
        match stream {
            StdStream::Out => &mut self.stdout,
            StdStream::Err => &mut self.stderr,
        }
    }

    fn end_line(&mut self, stream: StdStream) {
        let PartialLine { bytes, is_cut } = std::mem::take(self.partial(stream));
        let mut line = clean(&String::from_utf8_lossy(&bytes));
        if is_cut {
            line.push_str(CUT_MARK);
        }
        if stream == StdStream::Err {
            self.keep_tail(&line);
        }
        self.push(stream.level(), line);
    }

    fn push(&mut self, level: LogLevel, mut line: String) {
        if line.is_empty() {
            return;
        }
        if line.len() > LOG_LINE_BYTES_MAX {
            line.truncate(line.floor_char_boundary(LOG_LINE_BYTES_MAX - CUT_MARK.len()));
            line.push_str(CUT_MARK);
        }
        // One more byte for the line break.
        let bytes = line.len() + 1;
        if bytes > self.room() {
            return self.count_dropped(1);
        }
        self.bytes += bytes;
        self.sink.log(level, &line);
    }

    /// Counts the lines at the beginning of `text` for which there is no room, and returns the
    /// rest. Lines without a visible character do not count. The lines are neither cleaned nor
    /// copied.
    fn drop_lines<'a>(&mut self, text: &'a str) -> &'a str {
        let room = self.room();
        if room > LOG_LINE_BYTES_MAX {
            return text;
        }
        let (mut start, mut line_bytes, mut dropped) = (0, 0, 0);
        for (at, c) in text.char_indices().chain([(text.len(), '\n')]) {
            if c != '\n' {
                line_bytes += visible(c).map_or(0, char::len_utf8);
                continue;
            }
            if line_bytes > 0 {
                // A longer line may be cut to this length.
                if line_bytes.min(CUT_LINE_BYTES_MIN) < room {
                    break;
                }
                dropped += 1;
            }
            (start, line_bytes) = (at + 1, 0);
        }
        self.count_dropped(dropped);
        text.get(start..).unwrap_or_default()
    }

    /// Bytes of lines, with their line breaks, that the log has room for.
    fn room(&self) -> usize {
        (LOG_BYTES_MAX - FULL.len()).saturating_sub(self.bytes)
    }

    fn count_dropped(&mut self, lines: u64) {
        if self.lines_dropped == 0 && lines > 0 {
            self.sink.log(LogLevel::Warn, FULL);
        }
        self.lines_dropped += lines;
    }

    fn keep_tail(&mut self, line: &str) {
        let line = line.trim();
        // Rust's hint on backtraces is not about this handler.
        if line.is_empty() || line.starts_with("note: run with `RUST_BACKTRACE") {
            return;
        }
        if !self.stderr_tail.is_empty() {
            self.stderr_tail.push(' ');
        }
        self.stderr_tail.push_str(line);
        if let Some(excess) = self.stderr_tail.len().checked_sub(STDERR_TAIL_BYTES_MAX) {
            let start = self.stderr_tail.ceil_char_boundary(excess);
            self.stderr_tail.drain(..start);
        }
    }
}

/// The text without control characters; a tab becomes a space.
fn clean(text: &str) -> String {
    text.chars().filter_map(visible).collect()
}

fn visible(c: char) -> Option<char> {
    if c == '\t' { Some(' ') } else { (!c.is_control()).then_some(c) }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
