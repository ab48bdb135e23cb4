//! The calls of a [`ModelStore`] about actions on many jobs.

use async_trait::async_trait;
use gristmill_core::id::JobActionId;
use gristmill_core::job::action::{JobAction, JobActionStore};
use gristmill_core::store::StoreError;

use super::ModelStore;

#[async_trait]
impl JobActionStore for ModelStore {
    async fn put_action(&self, action: JobAction) -> Result<(), StoreError> {
        self.change(|state, _, _| drop(state.actions.insert(action.id.clone(), action)))
    }

    async fn delete_action(&self, id: JobActionId) -> Result<(), StoreError> {
        self.change(|state, _, _| drop(state.actions.remove(&id)))
    }

    async fn actions(&self) -> Result<Vec<JobAction>, StoreError> {
        self.read(|state, _| state.actions.values().cloned().collect())
    }
}
