//! What a candidate has seen of the active host, and when that host counts as ended.
//!
//! Only the candidate's own monotonic clock counts: the database's clock may be set forward, when
//! every host seems silent, or back, when an ended host seems to show signs of life for as long.
//!
//! The candidate must itself have seen the database for as long as it counts the silence. Otherwise
//! the first host that reaches the database after an outage would replace the active host.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::postgres::session::Predecessor;

/// Silence after which a host without its connection counts as ended.
pub(super) const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Silence after which a host counts as ended although its connection is open.
pub(super) const FROZEN_MIN: Duration = Duration::from_secs(10);

/// Longest time between two looks of one uninterrupted observation.
const LOOK_GAP_MAX: Duration = Duration::from_secs(2);

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Another host is active.
    Taken(ActiveHost),
    /// No host is active: this one may begin.
    Free(Vacancy),
}

/// The active host of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveHost {
    /// The number of its session.
    pub session: u64,
    /// Where other hosts reach it.
    pub address: Option<SocketAddr>,
}

/// The state of a database without an active host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacancy {
    pub(super) predecessor: Option<Predecessor>,
    /// The connection that is closed by force.
    pub(super) frozen: Option<i32>,
}

/// The newest session, as the database shows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newest {
    pub(super) session: i64,
    pub(super) is_alive: bool,
    pub(super) address: Option<SocketAddr>,
    /// The time of its last sign of life on the database's clock, in microseconds.
    pub(super) beat: Option<i64>,
}

impl Newest {
    /// The session as the next one finds it, if it has not shown a further sign of life by then.
    pub(super) fn as_predecessor(&self) -> Predecessor {
        Predecessor { session: self.session, beat: self.beat.filter(|_| self.is_alive) }
    }
}

/// The looks without a longer gap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    begun: Instant,
    last: Instant,
    /// The newest sign of life, and when it was first seen; `None` for a session without one.
    beat: Option<((i64, i64), Instant)>,
    /// The connection that holds the lock, and when it was first seen with it.
    holder: Option<(i32, Instant)>,
}

impl Observation {
    /// Continues the observation `before` with a look at this time, or begins one.
    pub(super) fn look(
        before: Option<Self>,
        newest: Option<&Newest>,
        holder: Option<i32>,
        now: Instant,
    ) -> Self {
        let before = before.filter(|it| now - it.last < LOOK_GAP_MAX);
        let beat = newest.and_then(|newest| Some((newest.session, newest.beat?)));
        let (beat_before, holder_before) =
            before.map_or((None, None), |before| (before.beat, before.holder));
        Self {
            begun: before.map_or(now, |before| before.begun),
            last: now,
            beat: beat.map(|beat| first_seen(beat_before, beat, now)),
            holder: holder.map(|pid| first_seen(holder_before, pid, now)),
        }
    }

    /// What the newest session means to the candidate. `refuses` returns whether no process listens
    /// at an address.
    pub(super) fn judge(
        &self,
        newest: Option<&Newest>,
        refuses: impl FnOnce(SocketAddr) -> bool,
    ) -> Seen {
        let Some(newest) = newest else {
            return Seen::Free(Vacancy { predecessor: None, frozen: None });
        };
        let since = |begin: Instant| self.last - begin;
        // A session without a sign of life counts from the first look.
        let silence = since(self.beat.map_or(self.begun, |(_, first_seen)| first_seen));
        let is_over = !newest.is_alive
            || match self.holder {
                Some((_, first_seen)) => silence.min(since(first_seen)) >= FROZEN_MIN,
                None => silence >= SILENCE_MIN || newest.address.is_some_and(refuses),
            };
        if is_over {
            let frozen = self.holder.filter(|_| newest.is_alive).map(|(pid, _)| pid);
            return Seen::Free(Vacancy { predecessor: Some(newest.as_predecessor()), frozen });
        }
        let session = newest.session.unsigned_abs();
        Seen::Taken(ActiveHost { session, address: newest.address })
    }
}

/// The value with the time at which it was first seen.
fn first_seen<T: PartialEq>(before: Option<(T, Instant)>, value: T, now: Instant) -> (T, Instant) {
    match before {
        Some((known, first_seen)) if known == value => (known, first_seen),
        _ => (value, now),
    }
}

#[cfg(test)]
#[path = "observation_tests.rs"]
mod tests;
