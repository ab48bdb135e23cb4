//! Actions on many jobs, as they are stored: the jobs, the operation, the progress and the end.

use async_trait::async_trait;
pub use gristmill_wire::management::{JobActionKind, JobActionState};
use serde::{Deserialize, Serialize};

use crate::id::{EndpointId, JobActionId, KeyId, OwnerId};
use crate::job::filter::JobFilter;
use crate::job::listing::Cursor;
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// An action on many jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAction {
    /// Its id.
    pub id: JobActionId,
    /// The owner of its key.
    pub owner: OwnerId,
    /// The key that began it. It ends when this key does.
    pub key: KeyId,
    /// The operation on each job.
    pub kind: JobActionKind,
    /// The jobs.
    pub filter: JobFilter,
    /// The endpoints of the jobs, each once. When the action has ended, only endpoints that the
    /// request named.
    pub endpoints: Vec<EndpointId>,
    /// Whether the request named the endpoints. Else they are all endpoints that the key saw.
    pub names_endpoints: bool,
    /// Its state.
    pub state: JobActionState,
    /// Its progress.
    pub counts: ActionCounts,
    /// The jobs before this position were examined; `None`: none.
    pub position: Option<Cursor>,
    /// Whether its position may lead to jobs that were submitted after it began: the position was
    /// lost, or another process has opened the store since. It then leaves out jobs with a time
    /// after `created_at`.
    pub has_begun_again: bool,
    /// Whether a client has aborted it. It ends soon.
    pub is_aborted: bool,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it waits, was aborted or failed.
    pub reason: Option<String>,
}

/// Numbers of jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCounts {
    /// Jobs that matched: `changed`, `skipped`, and those whose change waits for room.
    pub matched: u64,
    /// Jobs that were cancelled, queued again or deleted.
    pub changed: u64,
    /// Jobs whose status does not permit the operation.
    pub skipped: u64,
}

/// Keeps actions on many jobs.
#[async_trait]
pub trait JobActionStore: Send + Sync + std::fmt::Debug {
    /// Adds an action, or replaces the one with its id. It is on stable storage when this resolves
    /// to `Ok`.
    async fn put_action(&self, action: JobAction) -> Result<(), StoreError>;

    /// Deletes the action with this id, if there is one.
    async fn delete_action(&self, id: JobActionId) -> Result<(), StoreError>;

    /// All actions, in no particular order.
    async fn actions(&self) -> Result<Vec<JobAction>, StoreError>;
}
