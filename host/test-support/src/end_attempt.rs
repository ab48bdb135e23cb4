//! The end of an attempt, for tests that are not about its usage.

use async_trait::async_trait;
use gristmill_core::billing::usage::Metered;
use gristmill_core::id::TemplateId;
use gristmill_core::job::record::{Lease, Outcome};
use gristmill_core::store::{Fenced, JobStore, StoreError};

/// Ends attempts of any store.
#[async_trait]
pub trait EndAttempt: JobStore {
    /// Ends an attempt that used nothing but time, and waits until its result, or the change that
    /// won the race, is on disk.
    ///
    /// # Errors
    /// Those of [`JobStore::finish_deferred`] and [`JobStore::flush`].
    async fn finish(&self, lease: Lease, outcome: Outcome) -> Result<Fenced, StoreError> {
        let metered = Metered {
            template: TemplateId::new("template").expect("it is an id"),
            cpu_us: 0,
            fuel: 0,
            memory_bytes_peak: 0,
            bytes_in: 0,
            bytes_out: 0,
            chunks: 0,
            egress_bytes: 0,
        };
        let fenced = self.finish_deferred(lease, outcome, metered).await?;
        self.flush().await?;
        Ok(fenced)
    }
}

impl<S: JobStore + ?Sized> EndAttempt for S {}
