//! The queue of the host's log lines for standard error.
//!
//! **Promise.** Writing a line never waits for the reader of standard error: a separate thread
//! does. **Bounds.** [`BYTES_MAX`] of lines wait for that thread. Handlers' lines fill at most half
//! of it, so that they never displace a line of the host. Further lines are dropped and counted.
//! **Cost.** One allocation and one lock for each line.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// The target of the lines that handlers log.
const HANDLER: &str = "handler";

/// Bytes of lines that wait to be written (16 MiB).
const BYTES_MAX: usize = 16 << 20;

/// The cost of a line besides its text, in bytes.
const LINE_BYTES: usize = 64;

/// How long the end of the host waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The queue. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the thread is writing lines that it has taken out of `waiting`.
    is_writing: bool,
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread that writes the lines to `out`. It ends with the process.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self::default();
        let writer = queue.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_to(out))?;
        Ok(queue)
    }

    /// How many lines were dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.lines.lock().dropped
    }

    /// Waits until every line is written, for a second at most.
    pub(crate) fn flush(&self) {
        let deadline = Instant::now() + LAST_LINES;
        let mut lines = self.0.lines.lock();
        while lines.is_writing || !lines.waiting.is_empty() {
            if self.0.changed.wait_until(&mut lines, deadline).timed_out() {
                return;
            }
        }
    }

    fn push(&self, line: &[u8], bytes_max: usize) {
        let mut lines = self.0.lines.lock();
        let bytes = line.len() + LINE_BYTES;
        if lines.bytes + bytes > bytes_max {
            lines.dropped += 1;
            return;
        }
        lines.bytes += bytes;
        lines.waiting.push_back(line.to_vec());
        self.0.changed.notify_all();
    }

    fn write_to(&self, mut out: impl Write) {
        let mut lines = self.0.lines.lock();
        loop {
            let taken = std::mem::take(&mut lines.waiting);
            if taken.is_empty() {
                self.0.changed.wait(&mut lines);
                continue;
            }
            lines.is_writing = true;
            drop(lines);
            for line in taken {
                // There is no place to report that standard error is closed.
                let _ = out.write_all(&line);
                self.0.lines.lock().bytes -= line.len() + LINE_BYTES;
            }
            let _ = out.flush();
            lines = self.0.lines.lock();
            lines.is_writing = false;
            self.0.changed.notify_all();
        }
    }
}

/// The writer of one event.
#[derive(Debug)]
pub(crate) struct LineWriter {
    queue: LogQueue,
    bytes_max: usize,
}

impl Write for LineWriter {
    /// Accepts a whole line: the subscriber formats an event before it writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line, self.bytes_max);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter { queue: self.clone(), bytes_max: BYTES_MAX }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> LineWriter {
        let share = if meta.target() == HANDLER { 2 } else { 1 };
        LineWriter { queue: self.clone(), bytes_max: BYTES_MAX / share }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Passes written lines on, as long as the test receives them.
    struct Out(mpsc::SyncSender<Vec<u8>>);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_handlers_leave_room_for_lines_of_the_host() {
        let (send, written) = mpsc::sync_channel(0);
        let queue = LogQueue::start(Out(send)).unwrap();
        let line = [b'x'; 1_000];
        for _ in 0..BYTES_MAX / line.len() {
            queue.push(&line, BYTES_MAX / 2);
        }
        let dropped = queue.dropped();
        assert!(dropped > 0, "the share of handlers is full");
        queue.push(b"the host", BYTES_MAX);
        assert_eq!(queue.dropped(), dropped);
        // No accepted line is lost, and the order stays.
        let accepted = BYTES_MAX / line.len() - usize::try_from(dropped).unwrap();
        let lines: Vec<_> = (0..=accepted).map(|_| written.recv().unwrap()).collect();
        assert_eq!(lines.last().unwrap(), b"the host");
        queue.flush();
        assert_eq!(queue.0.lines.lock().bytes, 0);
    }

    #[test]
    fn the_end_of_the_host_does_not_wait_for_a_reader_that_never_reads() {
        let (send, _written) = mpsc::sync_channel(0);
        let queue = LogQueue::start(Out(send)).unwrap();
        queue.push(b"a line", BYTES_MAX);
        queue.flush();
        assert!(queue.0.lines.lock().is_writing);
    }
}
