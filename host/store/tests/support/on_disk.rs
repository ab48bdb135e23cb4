//! A store on a disk, which can be opened again.

use std::sync::Arc;

use gristmill_core::id::JobId;
use gristmill_core::job::record::Lease;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore as _;
use gristmill_core::time::ManualClock;
use gristmill_store::{Settings, Store};
use gristmill_test_support::ClaimEach as _;
use tempfile::TempDir;

use super::{START, endpoint, open_with, worker};

/// A store in a directory, which can end without being closed.
pub(crate) struct OnDisk {
    pub(crate) settings: Settings,
    pub(crate) store: Option<Store>,
    pub(crate) clock: Arc<ManualClock>,
    /// Dropped last: the store may still write to it.
    pub(crate) dir: TempDir,
}

impl OnDisk {
    pub(crate) fn new(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let mut new = Self { dir: tempfile::tempdir().unwrap(), settings, store: None, clock };
        new.restart();
        new
    }

    pub(crate) fn restart(&mut self) {
        self.store = None;
        let signals = Arc::new(Signals::default());
        let opened = open_with(self.settings.clone(), self.dir.path(), &self.clock, &signals);
        self.store = Some(opened.0);
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    pub(crate) async fn claim(&self) -> Lease {
        let claimed = self.store().claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
        let lease = claimed[0].lease;
        self.store().flush().await.unwrap();
        lease
    }

    pub(crate) async fn error(&self, id: JobId) -> Option<String> {
        self.store().job(&endpoint("a"), id).await.unwrap().unwrap().error
    }
}
