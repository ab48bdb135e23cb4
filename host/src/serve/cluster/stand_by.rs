//! A host with a database before it is active: it accepts connections, and forwards their calls.
//!
//! **Its end.** After SIGTERM it accepts no more connections and calls, and forwarded calls in progress
//! end within the drain limit; a call that takes longer is cut off, and its job continues on the active
//! host.

use std::sync::Arc;

use gristmill_store::{ActiveHost, CacheDir, Candidate, NotTaken, TakenOver, Vacancy};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::forward::Standby;
use super::handshake::Membership;
use super::{Joined, connect, join, standby};
use crate::serve::listeners::{Addresses, Bounds, Fronts, Listeners, Running};
use crate::serve::ready;
use crate::serve::settings::{Database, ServeSettings};

/// A host that accepts connections and does not have the jobs.
pub(crate) struct StandingBy<'a> {
    settings: &'a ServeSettings,
    database: &'a Database,
    standby: Arc<Standby>,
    addresses: Addresses,
    pub(crate) fronts: Fronts,
    pub(crate) running: Running,
    /// Keeps the data directory to this process.
    pub(crate) cache_dir: CacheDir,
    stop: CancellationToken,
}

impl<'a> StandingBy<'a> {
    /// Connects to the database, and accepts connections.
    ///
    /// # Errors
    /// One sentence names the fault of the database, the key file or the data directory.
    pub(crate) async fn begin(
        settings: &'a ServeSettings,
        database: &'a Database,
        listeners: Listeners,
        bounds: &Bounds,
    ) -> anyhow::Result<(Self, Candidate)> {
        let cache_dir = CacheDir::lock(&settings.data_dir)?;
        let candidate = connect(database.url(), &settings.key_file()).await?;
        let standby = Arc::new(standby(&candidate));
        let fronts = Fronts::new(Some(standby.clone()));
        let addresses = listeners.addresses();
        let running = listeners.serve(&fronts, bounds.clone());
        let stop = bounds.stop.clone();
        let begun =
            Self { settings, database, standby, addresses, fronts, running, cache_dir, stop };
        Ok((begun, candidate))
    }

    /// Stands by until this host is active.
    ///
    /// # Errors
    /// When the database, or this host, needs attention.
    pub(crate) async fn until_active(
        &self,
        candidate: Candidate,
        take_over: impl Fn(Candidate, Vacancy) -> Result<TakenOver, NotTaken> + Clone + Send + 'static,
    ) -> anyhow::Result<Joined> {
        let mut is_announced = false;
        let stands_by = |active: &ActiveHost| {
            let at = active.address.map_or_else(|| "unknown".to_owned(), |at| at.to_string());
            info!("standing by: the active host is at {at}");
            if std::mem::replace(&mut is_announced, true) {
                return Ok(());
            }
            ready::announce_standby(self.addresses, self.settings, self.database)
        };
        join(candidate, &self.standby, stands_by, take_over).await
    }

    pub(crate) fn membership(&self, session: u64) -> Membership {
        self.standby.membership(session)
    }

    /// Ends it in order.
    pub(crate) async fn stop(self) {
        let drain_max = self.settings.drain_timeout.as_seconds();
        info!("stopping: forwarded calls have {} s", self.settings.drain_timeout);
        self.standby.stop();
        self.stop.cancel();
        let Ok(connections) = self.running.clients.await else { return };
        match timeout(drain_max, connections.shutdown()).await {
            Ok(()) => info!("stopped; every forwarded call had ended"),
            Err(_) => info!("stopped; some forwarded calls had not ended"),
        }
    }
}
