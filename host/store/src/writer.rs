//! The one thread that touches the disk.
//!
//! Group commit without a timer: while a transaction is being synced others queue up, and all of
//! them form the next one. An idle store answers after one fsync, a busy one shares each fsync
//! among many. Per round: serve reads, write a batch, commit, publish, acknowledge, and only then
//! tidy the write-ahead log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use gristmill_core::record::ChunkPage;

use crate::asks::{ChunkQuestion, Read};
use crate::backlog::Due;
use crate::batch::{Batch, BatchMax};
use crate::db::Db;
use crate::error::OpenError;
use crate::index::{Index, Phase};
use crate::payloads::{Kind, Payload};
use crate::shared::{Shared, Waited};
use crate::{catalog, chunks, delivery, payloads};

/// After this time without work the writer tidies the file up, a step at a time.
const IDLE: Duration = Duration::from_secs(1);

/// Writes what the index has decided.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    db: Db,
}

/// What the writer found to do.
enum Work {
    Round { reads: Vec<Read>, batch: Box<Batch> },
    Tidy,
    End(Phase),
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, db: Db) -> Self {
        Self { shared, db }
    }

    /// Starts the thread. It ends when the index is closed.
    pub(crate) fn start(self) -> Result<JoinHandle<()>, OpenError> {
        let builder = Builder::new().name("store-writer".to_owned());
        builder.spawn(move || self.run()).map_err(OpenError::Thread)
    }

    /// Writes everything that is queued now.
    pub(crate) fn drain(&mut self) -> rusqlite::Result<()> {
        loop {
            let batch = self.shared.index().take_batch(self.batch_max());
            if batch.is_empty() {
                return Ok(());
            }
            self.commit(batch)?;
        }
    }

    fn run(self) {
        let shared = self.shared.clone();
        let reason = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the writer thread panicked".to_owned()),
        };
        if let Some(reason) = reason {
            // A disk that failed once may have lost pages that it claims to have. Only what a new
            // process reads back is true.
            (shared.settings.on_fatal)(&reason);
        }
        // Whoever still waits is told by the loss of his channel.
        let rest = std::mem::replace(&mut *shared.index(), closed());
        shared.close_space();
        drop(rest);
    }

    fn serve(mut self) -> rusqlite::Result<()> {
        let mut is_tidy = false;
        loop {
            match self.next_work(is_tidy) {
                Work::Round { reads, batch } => {
                    is_tidy &= batch.is_empty();
                    for read in reads {
                        self.read(read)?;
                    }
                    self.commit(*batch)?;
                    self.db.checkpoint()?;
                }
                Work::Tidy => {
                    is_tidy = !self.db.tidy()?;
                }
                Work::End(Phase::Closing) => return self.db.close(),
                Work::End(Phase::Open | Phase::Closed) => return Ok(()),
            }
        }
    }

    fn batch_max(&self) -> BatchMax {
        let settings = &self.shared.settings;
        BatchMax { jobs: settings.batch_jobs_max, bytes: settings.batch_bytes_max }
    }

    /// Waits for something to do.
    fn next_work(&self, is_tidy: bool) -> Work {
        let max = self.batch_max();
        let idle_at = Instant::now() + IDLE;
        let mut index = self.shared.index();
        loop {
            if index.phase == Phase::Closed {
                return Work::End(Phase::Closed);
            }
            if index.backlog.len() < max.jobs {
                index.sweep_slice(self.shared.clock.now());
            }
            let due = index.backlog.due();
            let is_due = match due {
                Some(Due::Now) => true,
                Some(Due::By(at)) => index.phase != Phase::Open || at <= Instant::now(),
                None => false,
            };
            if is_due || !(index.reads.is_empty() && index.sweeps.is_empty()) {
                let reads = std::mem::take(&mut index.reads);
                let batch = Box::new(index.take_batch(max));
                return Work::Round { reads, batch };
            }
            if index.phase == Phase::Closing {
                return Work::End(Phase::Closing);
            }
            let until = match due {
                Some(Due::By(at)) => Some(at),
                Some(Due::Now) | None => (!is_tidy).then_some(idle_at),
            };
            let wait = until.map(|at| at.saturating_duration_since(Instant::now()));
            if self.shared.wait(&mut index, wait) == Waited::Idle && due.is_none() {
                return Work::Tidy;
            }
        }
    }

    fn commit(&mut self, batch: Batch) -> rusqlite::Result<()> {
        #[cfg(test)]
        if let Some(hold) = &batch.hold {
            let _ = hold.recv();
        }
        let reserved = batch.reserved;
        let mut added = Vec::new();
        if !batch.is_empty() {
            added = self.db.write(&batch)?;
            self.shared.count_commit(batch.operations);
        }
        let shared = &self.shared;
        let published = shared.index().publish(batch, added, &shared.payloads, &shared.chunks);
        shared.tell_changed(&published.changed);
        if published.has_deliveries {
            shared.signals.delivery_added();
        }
        for ack in published.acks {
            // A caller that went away does not want to know.
            let _ = ack.send(());
        }
        shared.free(reserved);
        Ok(())
    }

    fn read(&self, read: Read) -> rusqlite::Result<()> {
        let db = self.db.connection();
        // A reader that went away does not want to know.
        match read {
            Read::Payloads { seqs, kind, answer } => {
                let found: rusqlite::Result<_> =
                    seqs.iter().map(|&seq| self.payload(seq, kind)).collect();
                let _ = answer.send(found?);
            }
            Read::Chunks { ask, answer } => {
                let _ = answer.send(self.chunks(&ask)?);
            }
            Read::DeliveryBody { id, answer } => {
                let _ = answer.send(delivery::body(db, id)?);
            }
            Read::Catalog { answer } => {
                let _ = answer.send(catalog::read(db, &self.db.seal)?);
            }
            #[cfg(test)]
            Read::RowsWritten { answer } => {
                let _ = answer.send(db.total_changes());
            }
        }
        Ok(())
    }

    fn payload(&self, seq: u64, kind: Kind) -> rusqlite::Result<Option<Payload>> {
        // Another reader may have brought it meanwhile.
        let cache = &self.shared.payloads;
        if let Some(payload) = cache.get(seq, kind) {
            return Ok(Some(payload));
        }
        let payload = payloads::get(self.db.connection(), &self.db.seal, seq, kind)?;
        if let Some(payload) = &payload {
            cache.insert(seq, kind, payload.clone());
        }
        Ok(payload)
    }

    /// Between two batches, what is visible is what is on disk.
    fn chunks(&self, ask: &ChunkQuestion) -> rusqlite::Result<ChunkPage> {
        let found = self.shared.index().chunk_query(ask, self.shared.clock.now());
        match found {
            Some((seq, _, query)) => chunks::get(self.db.connection(), seq, &query),
            None => Ok(ChunkPage { first: ask.from, chunks: Vec::new() }),
        }
    }
}

fn closed() -> Index {
    let mut index = Index::new();
    index.phase = Phase::Closed;
    index
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
