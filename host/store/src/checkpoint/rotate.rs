//! Carries out a [rotation](crate::checkpoint::rotation) of the key of stored secrets, on the
//! database's thread.

use std::io;

use gristmill_core::access::secrets::{RotateError, Rotated};
use gristmill_core::runtime::is_no_space;
use tracing::{info, warn};

use crate::checkpoint::database::Database;
use crate::checkpoint::rotation::{Rotation, RotationAnswer, Step};
use crate::error::Failure;
use crate::seal::Word;
use crate::tables::db::{Db, Sync};
use crate::tables::renew;

impl Database {
    /// Begins a rotation. A refusal changes nothing.
    pub(crate) fn begin_rotation(&mut self, answer: RotationAnswer) -> Result<(), Failure> {
        if self.rotation.is_some() {
            let _ = answer.send(Err(RotateError::Busy));
            return Ok(());
        }
        // A rotation moves the journal to the tables, and inputs with settings twice.
        if !self.shared.settings.disk_space.admits_work() {
            let _ = answer.send(Err(RotateError::DiskFull));
            return Ok(());
        }
        match self.make_key() {
            Ok(()) => {
                info!("the key of stored secrets is being replaced");
                // A segment that was begun before has frames with the old key.
                self.shared.index().discard_new_segment();
                self.rotation = Some(Rotation {
                    step: Step::Begin,
                    changes_file: true,
                    done: Rotated::default(),
                    answer: Some(answer),
                });
                return Ok(());
            }
            Err(Refused::KeyFile(error)) => {
                let file = self.db.seal.file().display();
                warn!("the key of stored secrets cannot be replaced: `{file}`: {error}");
                drop(answer.send(Err(RotateError::KeyFile(format!("`{file}`: {error}")))));
            }
            Err(Refused::NoSpace) => drop(answer.send(Err(RotateError::DiskFull))),
            Err(Refused::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    /// Records the rotation, and writes the key file with a new key.
    fn make_key(&self) -> Result<(), Refused> {
        let Db { seal, .. } = &self.db;
        seal.check_file().map_err(Refused::of)?;
        self.db.write_word(Word { is_current: true, changes_file: true })?;
        let begun = seal.begin_rotation();
        // A file that was replaced before the error stays: the next start completes the rotation.
        if begun.is_err() && seal.check_file().is_ok() {
            self.db.write_word(Word::SETTLED)?;
        }
        begun.map_err(Refused::of)
    }

    /// Carries out the next step of the rotation, or a slice of it. After an error for lack of
    /// space, the same step is to be repeated.
    pub(crate) fn rotate(&mut self) -> Result<(), Failure> {
        let Some(Rotation { step, changes_file, .. }) = &self.rotation else { return Ok(()) };
        let (step, changes_file) = (step.clone(), *changes_file);
        #[cfg(test)]
        if let Some((steps, go)) = &self.watch {
            let _ = steps.send(format!("{step:?}"));
            let _ = go.recv();
        }
        let mut done = Rotated::default();
        let next = match step {
            Step::Begin => {
                self.db.write_word(Word { is_current: false, changes_file })?;
                Step::NewSegment
            }
            Step::NewSegment => Step::NewSegment,
            Step::Checkpoint(last) => match self.journal.uncheckpointed_up_to(last) {
                Some(segment) => {
                    self.checkpoint(&segment)?;
                    Step::Checkpoint(last)
                }
                None => Step::Move(last, 0),
            },
            Step::Move(last, from) => match self.move_inputs_with_settings(last, from)? {
                Some(next) => Step::Move(last, next),
                None => Step::Catalog(Default::default()),
            },
            Step::Catalog(row) => {
                let write = |db: &_| renew::catalog(db, &self.db.seal, &row);
                let slice = self.db.transaction(Sync::Later, write)?;
                done.records = slice.count;
                slice.next.map_or(Step::Inputs(0), Step::Catalog)
            }
            Step::Inputs(row) => {
                let write = |db: &_| renew::inputs(db, &self.db.seal, row);
                let slice = self.db.transaction(Sync::Later, write)?;
                done.jobs = slice.count;
                slice.next.map_or(Step::Encrypted, Step::Inputs)
            }
            Step::Encrypted => {
                self.db.write_word(Word { is_current: true, changes_file })?;
                Step::KeyFile
            }
            Step::KeyFile => return self.end_rotation(changes_file),
        };
        if let Some(rotation) = &mut self.rotation {
            rotation.step = next;
            rotation.done.records += done.records;
            rotation.done.jobs += done.jobs;
        }
        Ok(())
    }

    fn end_rotation(&mut self, changes_file: bool) -> Result<(), Failure> {
        let seal = &self.db.seal;
        let ended = if changes_file { seal.end_rotation() } else { Ok(()) };
        let ended = match ended {
            Err(error) if is_no_space(&error) => return Err(Failure::KeyFile(error)),
            Err(error) => Err(format!("`{}`: {error}", seal.file().display())),
            Ok(()) => Ok(self.db.write_word(Word::SETTLED)?),
        };
        let Some(Rotation { done, answer, .. }) = self.rotation.take() else { return Ok(()) };
        match &ended {
            Ok(()) => info!(
                "the key of stored secrets was replaced: {} records and the s3Config of {} jobs were \
                 encrypted again",
                done.records, done.jobs
            ),
            Err(error) => warn!("{}", RotateError::OldKeyStays(error.clone())),
        }
        let further_keys = self.db.seal.keys_in_file() - 1;
        if further_keys > 0 && !changes_file {
            let file = self.db.seal.file().display();
            info!("`{file}` has {further_keys} keys behind the first one that can be removed");
        }
        if let Some(answer) = answer {
            let _ = answer.send(ended.map(|()| done).map_err(RotateError::OldKeyStays));
        }
        Ok(())
    }

    /// Whether texts may be encrypted with several keys.
    pub(crate) fn needs_several_keys(&self) -> bool {
        let is_encrypted = |rotation: &Rotation| matches!(rotation.step, Step::KeyFile);
        self.rotation.as_ref().is_some_and(|rotation| !is_encrypted(rotation))
    }
}

/// Why no rotation has begun.
enum Refused {
    KeyFile(io::Error),
    NoSpace,
    Failed(Failure),
}

impl Refused {
    fn of(error: io::Error) -> Self {
        if is_no_space(&error) { Self::NoSpace } else { Self::KeyFile(error) }
    }
}

impl From<Failure> for Refused {
    fn from(error: Failure) -> Self {
        if error.is_no_space() { Self::NoSpace } else { Self::Failed(error) }
    }
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Failure::from(error).into()
    }
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
