//! The calls about actions on many jobs. They are in the tables only; a running action is written
//! once in a second.

use async_trait::async_trait;
use gristmill_core::id::JobActionId;
use gristmill_core::job::action::{JobAction, JobActionStore};
use gristmill_core::store::StoreError;

use super::Store;
use crate::state::requests::DbRequest;

#[async_trait]
impl JobActionStore for Store {
    async fn put_action(&self, action: JobAction) -> Result<(), StoreError> {
        let action = Box::new(action);
        self.shared.ask(|answer| DbRequest::PutAction { action, answer }).await?
    }

    async fn delete_action(&self, id: JobActionId) -> Result<(), StoreError> {
        self.shared.ask(|answer| DbRequest::DeleteAction { id, answer }).await?
    }

    async fn actions(&self) -> Result<Vec<JobAction>, StoreError> {
        self.shared.ask(|answer| DbRequest::Actions { answer }).await
    }
}
