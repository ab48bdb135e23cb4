//! What happens on a connection, and until when it may go on so: the deadlines of a head, of a wait
//! for the next call, and of an answer that is to be read.

use std::sync::Arc;
use std::time::Duration;

use hyper::Version;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::addresses::{CONNECTION_BYTES, Charge};
use crate::half_close::ClientSide;
use crate::linger::Linger;
use crate::response_budget::is_large;

/// A client must send the whole head of a request within this time after its first byte, or is
/// disconnected.
const HEAD_WAIT: Duration = Duration::from_secs(20);

/// Time for a client to close the connection after it was requested to.
const END_WAIT: Duration = Duration::from_secs(5);

/// A client that has read nothing of its answer for this long is disconnected.
const TAKE_WAIT: Duration = Duration::from_secs(30);

/// A client is also disconnected if the host has waited for it longer than [`TAKE_WAIT`] in total
/// and it reads slower than this.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// The first bytes of an HTTP/2 connection (RFC 9113, section 3.4). They are no head: a client may
/// open a connection ahead of its first call.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The memory of each stream for which HTTP/2 has made room, until the connection ends: 600 bytes
/// were measured, and 860 where the body of each call stayed open.
const STREAM_BYTES: usize = 896;

/// A byte of an incomplete head counts as so many bytes: on HTTP/1, the buffer may be twice as
/// large.
const HEAD_FACTOR: usize = 2;

/// The same on HTTP/2, where a byte may name a field.
const MULTIPLEXED_HEAD_FACTOR: usize = 32;

/// Most calls of an HTTP/2 connection without a valid key whose answers wait for the rests of their
/// bodies. Each wait is a task, with what has arrived of the body.
const RESTS_MAX: usize = 8;

/// After so many refused calls, with no call that has a valid key between them, the client is asked
/// to end the connection. A client that goes on is cut off after as many again: the 256 calls that
/// a connection of HTTP/2 may begin would take 2 ms.
pub(super) const REFUSED_MAX: usize = 16;

/// Most bytes of an incomplete head of HTTP/2, which has a frame of 16 KiB and 496 fields.
const MULTIPLEXED_HEAD_MAX: usize = 64 << 10;

/// Returns when the connection has been without a call for too long, or its client has not read an
/// answer in time.
pub(super) async fn quiet_for_too_long(activity: &Mutex<Activity>, idle_wait: Duration) {
    loop {
        let now = Instant::now();
        let deadline = activity.lock().deadline(idle_wait);
        if deadline.is_some_and(|deadline| deadline <= now) {
            return;
        }
        // A wait that begins from now on may last at least this long.
        let next = now + HEAD_WAIT.min(TAKE_WAIT).min(idle_wait);
        sleep_until(deadline.map_or(next, |deadline| deadline.min(next))).await;
    }
}

/// The activity on a connection.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) calls: usize,
    /// The calls with output that the client has not read yet, and their deadlines.
    pub(super) unread_answers: Vec<(u64, Instant)>,
    /// HTTP/2: bytes of answers that are unread and not counted among those of all connections. At
    /// most [`SMALL_ANSWER_BYTES`](crate::SMALL_ANSWER_BYTES).
    pub(super) uncounted_bytes: usize,
    /// The calls without a valid key whose answers wait for the rests of their bodies.
    rests: usize,
    /// The calls that were refused since the last one with a valid key.
    refused: usize,
    /// The number of the next call.
    next_call: u64,
    /// When the last call ended, or the connection was opened.
    quiet_since: Instant,
    /// When the first byte of an incomplete head arrived.
    head_since: Option<Instant>,
    /// Bytes that may belong to an incomplete head: all since the begin of the last call on HTTP/2,
    /// and those between two calls on HTTP/1.
    head_bytes: usize,
    /// Calls since bytes have arrived: on HTTP/2 all of them were in memory at one time.
    calls_at_once: usize,
    /// The most calls that were in memory at one time.
    calls_peak: usize,
    /// When the client was asked to close the connection.
    pub(super) ends_since: Option<Instant>,
    /// HTTP/2: bytes between two calls need not be a head.
    is_multiplexed: bool,
    /// The rest of the preface, with which the connection's next bytes are compared. Empty once the
    /// bytes so far have shown whether this is HTTP/2.
    preface_left: &'static [u8],
    /// An answer has announced that the connection ends with it.
    announced_close: bool,
    pub(super) client: Arc<ClientSide>,
}

impl Activity {
    pub(super) fn new() -> Self {
        let quiet_since = Instant::now();
        let (head_since, ends_since) = (None, None);
        let (calls, unread_answers, next_call) = (0, vec![], 0);
        let (is_multiplexed, announced_close) = (false, false);
        Self {
            calls,
            unread_answers,
            uncounted_bytes: 0,
            rests: 0,
            refused: 0,
            next_call,
            quiet_since,
            head_since,
            head_bytes: 0,
            calls_at_once: 0,
            calls_peak: 0,
            ends_since,
            is_multiplexed,
            preface_left: PREFACE,
            announced_close,
            client: Arc::default(),
        }
    }

    /// The calls that have begun so far.
    pub(super) fn calls_begun(&self) -> u64 {
        self.next_call
    }

    fn is_ending(&self) -> bool {
        self.ends_since.is_some()
    }

    /// The time at which the connection has been quiet for too long. During a call it is the
    /// deadline for reading the answer, if there is one.
    pub(super) fn deadline(&self, idle_wait: Duration) -> Option<Instant> {
        if self.calls > 0 {
            return self.unread_answers.iter().map(|(_, deadline)| *deadline).min();
        }
        if let Some(since) = self.ends_since {
            return Some(since.max(self.quiet_since) + END_WAIT);
        }
        let idle = self.quiet_since + idle_wait;
        Some(self.head_since.map_or(idle, |since| since + HEAD_WAIT))
    }

    /// How to end a connection after HTTP has finished: `None` when the client has nothing more to
    /// send. An incomplete head was refused by HTTP itself, without an announcement.
    pub(super) fn linger(&self) -> Option<Linger> {
        let is_head_refused = self.head_since.is_some() && !self.is_ending();
        (self.announced_close || is_head_refused).then(|| Linger::begin(self.announced_close))
    }

    pub(super) fn came(&mut self, bytes: &[u8]) {
        if !self.preface_left.is_empty() {
            self.look_for_preface(bytes);
        }
        if self.calls == 0 && !self.is_multiplexed {
            self.head_since.get_or_insert_with(Instant::now);
        }
        if self.calls == 0 || self.is_multiplexed {
            self.head_bytes += bytes.len();
        }
        self.calls_at_once = 0;
    }

    /// About the memory of an incomplete head, and of the connection's buffers.
    pub(super) fn memory(&self) -> (usize, usize) {
        let head = match self.is_multiplexed {
            true => (self.head_bytes * MULTIPLEXED_HEAD_FACTOR).min(MULTIPLEXED_HEAD_MAX),
            false => self.head_bytes * HEAD_FACTOR,
        };
        // A small one is a part of the buffers.
        let head = if head > CONNECTION_BYTES { head } else { 0 };
        let streams = match self.is_multiplexed && self.calls_peak > 1 {
            true => self.calls_peak.next_power_of_two() * STREAM_BYTES,
            false => 0,
        };
        let buffers = CONNECTION_BYTES + streams;
        (head, buffers)
    }

    /// Compares the connection's first bytes with the preface. An incomplete preface must be
    /// completed in the same time as a head.
    fn look_for_preface(&mut self, bytes: &[u8]) {
        let expected = self.preface_left;
        if let Some(left) = expected.strip_prefix(bytes) {
            self.preface_left = left;
            self.is_multiplexed = left.is_empty();
        } else {
            self.preface_left = &[];
            self.is_multiplexed = bytes.starts_with(expected);
        }
        if self.is_multiplexed {
            self.head_since = None;
        }
    }
}

/// What becomes of a connection after a refused call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRefusal {
    GoesOn,
    /// The client is asked to end it.
    Ends,
    /// It is closed at once.
    IsCutOff,
}

/// A call in progress: from its head until the client has read the last byte of its answer.
pub(super) struct Call {
    activity: Arc<Mutex<Activity>>,
    number: u64,
    pub(super) is_multiplexed: bool,
    /// Bytes of the answer that were passed on.
    handed: u64,
    /// The current piece's part of [`Activity::uncounted_bytes`].
    uncounted_bytes: usize,
    /// It is one of [`Activity::rests`].
    is_rest: bool,
    /// When the last of them were passed on, while the client has not read them.
    waits_since: Option<Instant>,
    /// The total time of waiting for the client.
    waited: Duration,
    /// What the call holds, if it has had no valid key.
    pub(super) charge: Option<Charge>,
    pub(super) has_key: bool,
}

impl Call {
    pub(super) fn begin(activity: &Arc<Mutex<Activity>>, version: Version) -> Self {
        let mut now = activity.lock();
        now.calls += 1;
        now.calls_at_once += 1;
        now.calls_peak = now.calls_peak.max(now.calls).max(now.calls_at_once);
        (now.head_since, now.head_bytes) = (None, 0);
        let is_multiplexed = version == Version::HTTP_2;
        now.is_multiplexed = is_multiplexed;
        now.client.call_began(is_multiplexed);
        let number = now.next_call;
        now.next_call += 1;
        drop(now);
        let (handed, waits_since, waited) = (0, None, Duration::ZERO);
        Self {
            activity: activity.clone(),
            number,
            is_multiplexed,
            handed,
            uncounted_bytes: 0,
            is_rest: false,
            waits_since,
            waited,
            charge: None,
            has_key: false,
        }
    }

    /// The answer announces that the connection ends with it.
    pub(super) fn announced_close(&self) {
        self.activity.lock().announced_close = true;
    }

    /// The call is refused. Returns what becomes of its connection.
    pub(super) fn count_refusal(&self) -> AfterRefusal {
        let mut activity = self.activity.lock();
        activity.refused += 1;
        match activity.refused {
            0..REFUSED_MAX => AfterRefusal::GoesOn,
            refused if refused < 2 * REFUSED_MAX => AfterRefusal::Ends,
            _ => AfterRefusal::IsCutOff,
        }
    }

    /// Whether the answer may wait for the rest of the call's body, until [`Self::end_rest`].
    pub(super) fn begin_rest(&mut self) -> bool {
        if self.charge.is_none() {
            return true;
        }
        let mut activity = self.activity.lock();
        self.is_rest = activity.rests < RESTS_MAX;
        activity.rests += usize::from(self.is_rest);
        self.is_rest
    }

    pub(super) fn end_rest(&mut self) {
        if std::mem::take(&mut self.is_rest) {
            self.activity.lock().rests -= 1;
        }
    }

    /// More bytes were passed on; HTTP asks for further ones once the client has read them.
    pub(super) fn hand_over(&mut self, bytes: usize) {
        let now = Instant::now();
        self.handed += bytes as u64;
        self.waits_since = Some(now);
        let earned = Duration::from_secs(self.handed / BYTES_PER_SECOND_MIN);
        let left = (TAKE_WAIT + earned).saturating_sub(self.waited).min(TAKE_WAIT);
        self.activity.lock().unread_answers.push((self.number, now + left));
    }

    /// Whether a piece needs no room among the answers of all connections: it is small, and so are
    /// all such pieces of its connection together. An HTTP/1 connection has one call at a time.
    pub(super) fn may_be_uncounted(&mut self, bytes: usize) -> bool {
        if is_large(bytes as u64) || !self.is_multiplexed {
            return !is_large(bytes as u64);
        }
        let mut activity = self.activity.lock();
        let sum = activity.uncounted_bytes + bytes;
        if is_large(sum as u64) {
            return false;
        }
        activity.uncounted_bytes = sum;
        self.uncounted_bytes = bytes;
        true
    }

    pub(super) fn end_piece(&mut self) {
        if self.uncounted_bytes > 0 {
            self.activity.lock().uncounted_bytes -= std::mem::take(&mut self.uncounted_bytes);
        }
    }

    pub(super) fn taken(&mut self) {
        let Some(since) = self.waits_since.take() else { return };
        self.waited += since.elapsed();
        self.activity.lock().unread_answers.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.taken();
        self.end_piece();
        self.end_rest();
        let mut activity = self.activity.lock();
        activity.calls -= 1;
        if self.has_key {
            activity.refused = 0;
        }
        activity.client.call_ended();
        activity.quiet_since = Instant::now();
    }
}

#[cfg(test)]
#[path = "activity_tests.rs"]
mod tests;
