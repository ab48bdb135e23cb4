//! Opening a store without a disk, for tests.

use std::sync::Arc;

use gristmill_core::id::ShardId;
use gristmill_core::job::record::StoreEpoch;
use gristmill_core::signals::Signals;
use gristmill_core::time::Clock;

use super::memory::{Memory, MemoryLog, MemoryReader};
use crate::error::OpenError;
use crate::medium::Medium;
use crate::seal::Seal;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state::index::Index;
use crate::state::owners::Owners;
use crate::store::Store;

impl Store {
    /// A store without a disk, for tests: the same engine, whose batches become rows in memory.
    ///
    /// # Errors
    /// [`OpenError::Thread`] when the system has no further thread.
    pub fn in_memory(
        shard: ShardId,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let memory = Arc::new(Memory::default());
        let mut index = Index::new(Owners::new(settings.disk_space.clone(), settings.owners_max()));
        index.begin_epoch(StoreEpoch(1));
        let medium = (memory.clone() as Arc<dyn Medium>, Arc::new(Seal::in_memory()));
        let shared = Arc::new(Shared::new(shard, clock, signals, settings, index, medium));
        let reader = MemoryReader::new(shared.clone(), memory.clone());
        Self::start(shared, MemoryLog(memory), || reader.start())
    }
}
