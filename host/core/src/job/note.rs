//! What the store keeps of schedules: for each one a text that only the scheduler understands.
//!
//! The text changes in the same commit as the job of a tick, so that after a crash either both are
//! there or neither is.

use async_trait::async_trait;

use crate::store_error::StoreError;

/// Names the notes of a schedule: a random number of its creation, so that a later schedule with
/// the same id has none.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct ScheduleNumber(pub u64);

impl ScheduleNumber {
    /// A new one.
    pub fn random() -> Self {
        // Databases have signed numbers.
        Self(rand::random::<u64>() >> 1)
    }
}

/// The newest text of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleNote {
    /// The schedule.
    pub schedule: ScheduleNumber,
    /// Some KiB at most.
    pub text: String,
}

/// Keeps the notes.
#[async_trait]
pub trait ScheduleStore: Send + Sync + std::fmt::Debug {
    /// All notes, as they are on stable storage.
    ///
    /// # Errors
    /// When the store is closed.
    fn schedule_notes(&self) -> Result<Vec<ScheduleNote>, StoreError>;

    /// Replaces the note of a schedule. It is on stable storage when the future resolves.
    async fn note_schedule(&self, note: ScheduleNote) -> Result<(), StoreError>;

    /// Removes the notes of schedules that were deleted.
    async fn forget_schedules(&self, schedules: Vec<ScheduleNumber>) -> Result<(), StoreError>;
}
