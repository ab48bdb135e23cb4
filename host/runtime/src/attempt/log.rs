//! The log of one attempt: lines from the handler's `log`, its standard output and its standard
//! error, capped in length and in sum, without control characters.

use std::fmt;
use std::sync::Arc;

use gristmill_core::limits::{LOG_BYTES_MAX, LOG_LINE_BYTES_MAX};
use gristmill_core::runtime::{AttemptSink, LogLevel};
use parking_lot::Mutex;

/// The end of a line that was cut.
const CUT_MARK: &str = "…";

/// The line in place of the first one that is dropped. The cap leaves room for it.
const FULL: &str = "the log of this attempt is full (256 KiB): lines that do not fit are dropped";

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
        for line in message.lines() {
            self.push(&mut state, level, clean(line));
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
                self.end_line(&mut state, stream);
            }
        }
    }

    /// Flushes unfinished lines, and returns the number of dropped lines.
    pub(crate) fn finish(&self) -> u64 {
        let mut state = self.state.lock();
        self.end_line(&mut state, StdStream::Out);
        self.end_line(&mut state, StdStream::Err);
        state.lines_dropped
    }

    /// The end of standard error on one line; empty when nothing was written there.
    pub(crate) fn stderr_tail(&self) -> String {
        self.state.lock().stderr_tail.clone()
    }

    fn end_line(&self, state: &mut LogState, stream: StdStream) {
        let PartialLine { bytes, is_cut } = std::mem::take(state.partial(stream));
        let mut line = clean(&String::from_utf8_lossy(&bytes));
        if is_cut {
            line.push_str(CUT_MARK);
        }
        if stream == StdStream::Err {
            state.keep_tail(&line);
        }
        self.push(state, stream.level(), line);
    }

    fn push(&self, state: &mut LogState, level: LogLevel, mut line: String) {
        if line.is_empty() {
            return;
        }
        if line.len() > LOG_LINE_BYTES_MAX {
            line.truncate(line.floor_char_boundary(LOG_LINE_BYTES_MAX - CUT_MARK.len()));
            line.push_str(CUT_MARK);
        }
        // One more byte for the line break, so that empty lines count too.
        let bytes = state.bytes + line.len() + 1;
        if bytes > LOG_BYTES_MAX - FULL.len() {
            state.lines_dropped += 1;
            if state.lines_dropped == 1 {
                state.sink.log(LogLevel::Warn, FULL);
            }
            return;
        }
        state.bytes = bytes;
        state.sink.log(level, &line);
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
    let visible = |c: char| if c == '\t' { Some(' ') } else { (!c.is_control()).then_some(c) };
    text.chars().filter_map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RecordingSink;

    fn log() -> (Arc<RecordingSink>, AttemptLog) {
        let sink = Arc::new(RecordingSink::default());
        (sink.clone(), AttemptLog::new(sink))
    }

    #[test]
    fn standard_streams_become_lines() {
        let (sink, log) = log();
        log.write_std(StdStream::Out, b"one\ntw");
        log.write_std(StdStream::Err, b"oops\n");
        log.write_std(StdStream::Out, b"o\n\n\x1b[31mred\tx\x07\xff\nlast");
        assert_eq!(log.finish(), 0);
        let lines = sink.lines();
        let info = |text: &str| (LogLevel::Info, text.to_owned());
        let expected = [
            info("one"),
            (LogLevel::Warn, "oops".to_owned()),
            info("two"),
            info("[31mred x\u{fffd}"),
            info("last"),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn long_lines_are_cut_on_every_stream() {
        let (sink, log) = log();
        for _ in 0..100 {
            log.write_std(StdStream::Out, "é".repeat(1_000).as_bytes());
        }
        log.write_std(StdStream::Out, b"\nnext\n");
        log.write(LogLevel::Error, &"x".repeat(10_000));
        log.finish();
        let lines = sink.lines();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|(_, line)| line.len() <= LOG_LINE_BYTES_MAX));
        assert!(lines[0].1.ends_with('…') && lines[2].1.ends_with('…'));
        assert_eq!(lines[1].1, "next");
    }

    #[test]
    fn a_flood_is_counted_not_kept() {
        let (sink, log) = log();
        let lines = 100_000;
        for _ in 0..lines {
            log.write_std(StdStream::Out, b"all work and no play\n");
        }
        let dropped = log.finish();
        let kept: usize = sink.lines().iter().map(|(_, line)| line.len()).sum();
        assert!(kept <= LOG_BYTES_MAX && kept > LOG_BYTES_MAX - 64 * 1024, "{kept}");
        let (_, last) = sink.lines().pop().unwrap();
        assert_eq!(last, FULL);
        assert_eq!(dropped + sink.lines().len() as u64 - 1, lines);
    }

    #[test]
    fn the_end_of_standard_error_is_kept() {
        let (_, log) = log();
        log.write_std(StdStream::Err, "é".repeat(3_000).as_bytes());
        let panic = "\nthread 'main' panicked at src/lib.rs:5:9:\nboom\n\
                     note: run with `RUST_BACKTRACE=1` environment variable\n";
        log.write_std(StdStream::Err, panic.as_bytes());
        let tail = log.stderr_tail();
        assert!(tail.len() <= STDERR_TAIL_BYTES_MAX);
        assert!(tail.ends_with("thread 'main' panicked at src/lib.rs:5:9: boom"), "{tail}");
    }
}
