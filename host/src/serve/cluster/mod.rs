//! Hosts that share a database. One of them is *active*, and has the jobs; the others are
//! *standbys*: they [forward] the calls of their clients to it, [run](crate::serve::runner)
//! attempts for it, and one of them becomes active when it has ended.
//!
//! The database decides which one is active ([`gristmill_store::Candidate`]); nothing here does. A
//! host that was replaced ends: everything above the store has memory that must not be believed any
//! more, and a new process stands by within a second. Until then the [gate] keeps it from
//! answering.

mod callers;
mod calls;
pub(crate) mod forward;
pub(crate) mod gate;
pub(crate) mod handshake;
pub(crate) mod host_runtime;
pub(crate) mod link;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use gristmill_postgres::DatabaseUrl;
use gristmill_store::{
    ActiveHost, Candidate, NotTaken, OpenError, Outage, Seen, TakenOver, Vacancy, read_keys,
};
use tracing::{info, warn};

use self::forward::Standby;
use crate::serve::clock::wait_for_synchronisation;

/// The purpose of the key that the hosts of a database share.
const KEY_PURPOSE: &str = "gristmill hosts";

const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Connects to the database.
///
/// # Errors
/// One sentence names the fault of the database or the key file.
pub(crate) async fn connect(url: &DatabaseUrl, key_file: &Path) -> anyhow::Result<Candidate> {
    let (database, key_file) = (url.clone(), key_file.to_owned());
    let connected = blocking(move || Candidate::connect(&database, &key_file)).await?;
    connected.map_err(|error| {
        let remedy = match &error {
            OpenError::DatabaseUnavailable(_) => {
                "; check that PostgreSQL runs at this address, and the user, the password and the name of \
                 the database in --database"
            }
            OpenError::UnknownDatabaseVersion { .. } => {
                "; start a version of gristmill that knows this one"
            }
            _ => "",
        };
        anyhow!("cannot use the database {url}: {error}{remedy}")
    })
}

/// A host that knows no active host yet.
///
/// The keys of its connections are those of `key_file`, or come from the key of the database's
/// secrets.
///
/// # Errors
/// When the file cannot be read, or has no keys.
pub(crate) fn standby(candidate: &Candidate, key_file: Option<&Path>) -> anyhow::Result<Standby> {
    let keys = match key_file {
        None => candidate.derived_keys(KEY_PURPOSE),
        Some(file) => read_keys(file)
            .with_context(|| format!("cannot use the file of --cluster-key {}", file.display()))?,
    };
    Ok(Standby::new(keys))
}

/// A host that has become active.
pub(crate) struct Joined {
    pub(crate) taken: TakenOver,
    /// When it began to take over, if another host was active before.
    pub(crate) began: Option<Instant>,
}

/// Stands by until this host is active. Calls `stands_by` when another host is.
///
/// # Errors
/// When the database, or this host, needs attention.
pub(crate) async fn join(
    mut candidate: Candidate,
    standby: &Standby,
    mut stands_by: impl FnMut(&ActiveHost) -> anyhow::Result<()>,
    take_over: impl Fn(Candidate, Vacancy) -> Result<TakenOver, NotTaken> + Clone + Send + 'static,
) -> anyhow::Result<Joined> {
    let (mut known, mut stood_by, mut outage) = (None, false, Outage::default());
    loop {
        let look = move || {
            let seen = candidate.look();
            (candidate, seen)
        };
        let (looked, seen) = blocking(look).await?;
        candidate = looked;
        let hindrance = match seen {
            Ok(Seen::Free(vacancy)) => {
                standby.set_active(None);
                if known.take().is_some() {
                    info!("the active host has ended; this one becomes active");
                }
                let (take_over, began) = (take_over.clone(), Instant::now());
                match blocking(move || take_over(candidate, vacancy)).await? {
                    Ok(taken) => return Ok(Joined { taken, began: stood_by.then_some(began) }),
                    Err(NotTaken::LookAgain(again, hindrance)) => {
                        candidate = *again;
                        hindrance
                    }
                    Err(NotTaken::ClockJumped(again, jumped)) => {
                        wait_for_synchronisation(&jumped).await?;
                        candidate = *again;
                        None
                    }
                    Err(NotTaken::Failed(error)) => return Err(error.into()),
                }
            }
            Ok(Seen::Taken(active)) => {
                stood_by = true;
                standby.set_active(Some(active));
                if known.replace(active) != Some(active) {
                    stands_by(&active)?;
                }
                None
            }
            Err(OpenError::DatabaseUnavailable(reason)) => Some(reason),
            Err(error) => return Err(error.into()),
        };
        match hindrance {
            Some(reason) if outage.is_news(&reason) => {
                warn!("the database cannot be used: {reason}");
            }
            Some(_) => {}
            None if outage.end() => info!("the database can be used again"),
            None => {}
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("the thread of the database has panicked")
}
