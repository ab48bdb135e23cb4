//! Replaces the key of stored secrets while the store works.
//!
//! The steps, each of them durable before the next one begins:
//! 1. The word in the tables ([`Word`]) records that a rotation begins.
//! 2. The key file gets the new key in front of the old one. Everything is encrypted with the new
//!    key from now on.
//! 3. The word shows that both keys are needed.
//! 4. The writer begins a new segment of the journal; the segments before it are checkpointed, and
//!    large inputs with encrypted settings move from them to the tables.
//! 5. The tables are encrypted again ([`renew`](crate::tables::renew)).
//! 6. The word shows that the new key alone is needed.
//! 7. The key file gets the new key alone, and the word records the end.
//!
//! A start continues with step 3, or with step 7 if nothing is encrypted with the old key any more.
//! If an operator has put a key in front of the others, a start carries out the steps 3 to 6, and
//! does not change the file.
//!
//! **Bounds.** One rotation at a time, on the database's thread, in slices between which requests
//! are answered. No job waits for it. Cost: a checkpoint of the journal, and reading all inputs'
//! rows; a text is written again once or twice.

use gristmill_core::access::secrets::{RotateError, Rotated};
use tokio::sync::oneshot;
use tracing::info;

use crate::medium::SegmentId;
use crate::seal::Word;
use crate::state::index::Index;

pub(super) type RotationAnswer = oneshot::Sender<Result<Rotated, RotateError>>;

/// A rotation that has begun.
#[derive(Debug)]
pub(crate) struct Rotation {
    pub(super) step: Step,
    /// Whether the key file changes at the end.
    pub(super) changes_file: bool,
    pub(super) done: Rotated,
    /// `None`: a start continues the rotation.
    pub(super) answer: Option<RotationAnswer>,
}

/// The next step.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Record that several keys are needed.
    Begin,
    /// Wait for a new segment of the journal.
    NewSegment,
    /// Checkpoint the segments up to this one.
    Checkpoint(SegmentId),
    /// Move inputs from the segments up to this one, beginning with the job of this index.
    Move(SegmentId, usize),
    /// Encrypt the catalog behind this row again.
    Catalog((String, String)),
    /// Encrypt the inputs behind this row again.
    Inputs(u64),
    /// Record that one key is needed.
    Encrypted,
    /// Remove the old key from the file.
    KeyFile,
}

impl Rotation {
    /// The rotation that a start has to complete, if there is one.
    pub(crate) fn to_complete(word: Word) -> Option<Self> {
        let step = match word {
            Word::SETTLED => return None,
            Word { is_current: true, .. } => Step::KeyFile,
            Word { is_current: false, .. } => Step::Begin,
        };
        info!("the rotation of the key of stored secrets is being completed");
        let changes_file = word.changes_file;
        Some(Self { step, changes_file, done: Rotated::default(), answer: None })
    }

    /// Whether the next step can be carried out now.
    pub(crate) fn is_ready(&mut self, index: &mut Index) -> bool {
        if !matches!(self.step, Step::NewSegment) {
            return true;
        }
        let Some(begun) = index.take_new_segment() else { return false };
        self.step = Step::Checkpoint(SegmentId(begun.0.saturating_sub(1)));
        true
    }
}
