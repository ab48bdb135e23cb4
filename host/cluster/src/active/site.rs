//! The parts of the active host that its runners use.

use std::sync::Arc;
use std::time::Duration;

use gristmill_core::catalog::Catalog;
use gristmill_core::time::Clock;
use tokio::sync::watch;

/// What the runners need from the active host.
#[derive(Debug)]
pub struct RunnersSettings {
    /// The components, and whether there are several owners.
    pub catalog: Arc<Catalog>,
    /// For the times at which runners have connected.
    pub clock: Arc<dyn Clock>,
    /// How long the attempts of a runner are kept when its connection is lost.
    pub adopt_within: Duration,
}

/// The active host, for its links.
#[derive(Debug)]
pub(crate) struct Site {
    pub(super) settings: RunnersSettings,
    /// Changes when a sandbox of a runner may have become usable.
    changes: watch::Sender<()>,
}

impl Site {
    pub(super) fn new(settings: RunnersSettings) -> Arc<Self> {
        let (changes, _) = watch::channel(());
        Arc::new(Self { settings, changes })
    }

    /// Makes workers that wait for a sandbox look at the runners again.
    pub(super) fn changed(&self) {
        self.changes.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}
