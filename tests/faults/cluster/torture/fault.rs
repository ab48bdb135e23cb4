//! The faults, which a seed chooses.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rustix::process::Signal;
use tokio::task::block_in_place;

use super::members::Member;
use crate::postgres::{Database, Server};
use crate::proxy::Link;

/// A fault, and for how long it lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Kill,
    Drain,
    Pause(Duration),
    /// The link of a host to the database.
    ToDatabase(Link, Duration),
    /// The link of the other hosts to this one.
    ToHost(Link, Duration),
    /// The wall clock of a host jumps by so many seconds.
    Clock(i64),
    /// The database is stopped as by a loss of power, and starts again.
    StopServer,
    /// The database ends all connections.
    EndConnections,
}

impl Fault {
    pub(crate) fn choose(random: &mut StdRng) -> Self {
        // Some are shorter than the time after which a host is replaced, and some longer.
        let duration = Duration::from_millis(random.random_range(200..14_000));
        let link = *Link::FAULTS.choose(random).unwrap();
        match random.random_range(0..10) {
            0 | 1 => Self::Kill,
            2 => Self::Drain,
            3 => Self::Pause(duration),
            4 | 5 => Self::ToDatabase(link, duration),
            6 => Self::ToHost(link, duration),
            7 => Self::Clock(random.random_range(-90..=90)),
            8 => Self::StopServer,
            _ => Self::EndConnections,
        }
    }

    /// Inflicts it on a host or on the database, and returns at its end.
    pub(crate) async fn inflict(self, member: &Member, server: &mut Server, database: &Database) {
        match self {
            Self::Kill => block_in_place(|| member.signal(Signal::KILL)),
            Self::Drain => block_in_place(|| member.signal(Signal::TERM)),
            Self::Pause(duration) => {
                block_in_place(|| member.signal(Signal::STOP));
                tokio::time::sleep(duration).await;
                block_in_place(|| member.signal(Signal::CONT));
            }
            Self::ToDatabase(link, duration) => {
                member.to_database.set(link);
                tokio::time::sleep(duration).await;
                member.to_database.set(Link::Open);
            }
            Self::ToHost(link, duration) => {
                member.to_host.set(link);
                tokio::time::sleep(duration).await;
                member.to_host.set(Link::Open);
            }
            Self::Clock(lead) => member.set_clock(lead),
            Self::StopServer => block_in_place(|| {
                server.kill();
                server.start_again();
            }),
            Self::EndConnections => block_in_place(|| database.cut_connections()),
        }
    }
}
