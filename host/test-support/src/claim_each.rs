//! Claims of several jobs, for tests that need them at once.

use async_trait::async_trait;
use gristmill_core::id::{EndpointId, WorkerId};
use gristmill_core::job::record::ClaimedJob;
use gristmill_core::store::{JobStore, StoreError};

/// Claims jobs of any store.
#[async_trait]
pub trait ClaimEach: JobStore {
    /// Claims a job for each of `workers`, while jobs wait.
    ///
    /// # Errors
    /// Those of [`JobStore::claim`]; the jobs that were claimed before stay claimed.
    async fn claim_each(
        &self,
        endpoint: &EndpointId,
        workers: &[WorkerId],
    ) -> Result<Vec<ClaimedJob>, StoreError> {
        let mut claimed = Vec::new();
        for worker in workers {
            match self.claim(endpoint, worker).await? {
                Some(job) => claimed.push(job),
                None => break,
            }
        }
        Ok(claimed)
    }
}

impl<S: JobStore + ?Sized> ClaimEach for S {}
