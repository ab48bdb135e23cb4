//! The calls about actions on many jobs. They are in the tables only; a running action is written
//! once in a second.

use async_trait::async_trait;
use gristmill_core::id::JobActionId;
use gristmill_core::job::action::{JobAction, JobActionStore};
use gristmill_core::store::StoreError;
use tokio::sync::oneshot;

use super::Store;
use crate::shared::answer;
use crate::state::requests::DbRequest;

#[async_trait]
impl JobActionStore for Store {
    async fn put_action(&self, action: JobAction) -> Result<(), StoreError> {
        let (sender, receiver) = oneshot::channel();
        let action = Box::new(action);
        self.shared.request(DbRequest::PutAction { action, answer: sender })?;
        answer(receiver).await?
    }

    async fn delete_action(&self, id: JobActionId) -> Result<(), StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.shared.request(DbRequest::DeleteAction { id, answer: sender })?;
        answer(receiver).await?
    }

    async fn actions(&self) -> Result<Vec<JobAction>, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.shared.request(DbRequest::Actions { answer: sender })?;
        answer(receiver).await
    }
}
