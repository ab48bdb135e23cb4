//! A medium without a disk: batches become rows in maps, as they would in a database, and end with
//! the process.
//!
//! With it the engine runs alone: the same contract and the same model test it as with the journal.
//! No payload has a location, and no job leaves the engine's memory.
//!
//! **Bounds.** Those of the engine: payloads of jobs that the engine has, and a thousand deliveries
//! for each endpoint.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gristmill_core::access::secrets::RotateError;
use gristmill_core::backup::BackupError;
use gristmill_core::billing::usage::{Hour, UsageKey, UsageQuery, UsageRow, UsageSum};
use gristmill_core::id::JobActionId;
use gristmill_core::job::action::JobAction;
use gristmill_core::job::payload::Json;
use gristmill_core::webhook::delivery::DeliveryId;

use crate::commit::log::{BatchLog, WriteError, Written};
use crate::error::OpenError;
use crate::format::CatalogRow;
use crate::format::pages::{Answer, Page, Query};
use crate::format::payload::{Kind, Payload};
use crate::medium::{Medium, SegmentId};
use crate::shared::Shared;
use crate::state::batch::{Batch, JobWrite, RowWrite};
use crate::state::index::Phase;
use crate::state::meters::{MeterKey, Period};
use crate::state::requests::DbRequest;
use crate::sync::Mutex;
use crate::sync::thread::{Builder, JoinHandle};

/// The rows of all batches.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Rows>);

#[derive(Debug, Default)]
struct Rows {
    payloads: HashMap<(u64, Kind), Payload>,
    /// By the number of the job, and the index of the first chunk.
    chunks: HashMap<u64, BTreeMap<u64, Page>>,
    bodies: HashMap<DeliveryId, Json>,
    usage: BTreeMap<(Period, MeterKey), UsageSum>,
    catalog: BTreeMap<(&'static str, String), String>,
    actions: BTreeMap<JobActionId, JobAction>,
}

impl Medium for Memory {}

/// Writes the batches to the rows.
#[derive(Debug)]
pub(crate) struct MemoryLog(pub(crate) Arc<Memory>);

impl BatchLog for MemoryLog {
    fn wait_for_room(&self) {}

    fn write(&mut self, batch: &Batch) -> Result<Written, WriteError> {
        let mut rows = self.0.0.lock();
        for job in &batch.jobs {
            rows.write_job(job);
        }
        for row in &batch.usage {
            rows.usage.insert((row.period, row.key.clone()), row.sum);
        }
        for id in &batch.dropped_deliveries {
            rows.bodies.remove(id);
        }
        Ok(Written::nothing(batch.jobs.len()))
    }

    fn begin_segment(&mut self) -> Result<SegmentId, WriteError> {
        Ok(SegmentId(0))
    }
}

impl Rows {
    fn write_job(&mut self, job: &JobWrite) {
        let seq = job.fixed.seq;
        match &job.kind {
            RowWrite::Insert(new) => {
                self.payloads.insert((seq, Kind::Input), new.input.clone());
            }
            RowWrite::Update => {}
            RowWrite::Delete(_) | RowWrite::NeverStored => self.clear_result(seq),
        }
        if !job.row.needs_input() {
            self.payloads.remove(&(seq, Kind::Input));
        }
        if job.clear_result {
            self.clear_result(seq);
        }
        if let Some(body) = job.output.clone() {
            self.payloads.insert((seq, Kind::Output), Payload { body, s3_config: None });
        }
        if !job.pages.is_empty() {
            let pages = job.pages.iter().map(|page| (page.first, page.clone()));
            self.chunks.entry(seq).or_default().extend(pages);
        }
        if let Some(new) = &job.delivery
            && let Some(body) = &new.body
        {
            self.bodies.insert(new.delivery.id, Json::from_stored(body.clone()));
        }
    }

    fn clear_result(&mut self, seq: u64) {
        self.payloads.remove(&(seq, Kind::Output));
        self.chunks.remove(&seq);
    }

    fn chunks(&self, seq: u64, query: &Query) -> gristmill_core::job::record::ChunkPage {
        let mut answer = Answer::new(query);
        let pages = self.chunks.get(&seq).into_iter().flat_map(BTreeMap::values);
        let mut pages = pages.skip_while(|page| page.next() <= query.from);
        while answer.next_needed().is_some()
            && let Some(page) = pages.next()
        {
            answer.take(page);
        }
        answer.page
    }

    fn write_catalog(&mut self, changes: Vec<CatalogRow>) {
        for CatalogRow { kind, name, body } in changes {
            match body {
                Some(body) => drop(self.catalog.insert((kind, name), body)),
                None => drop(self.catalog.remove(&(kind, name))),
            }
        }
    }

    /// The rows of a query: an hour may have several periods, and its usage is the sum of theirs.
    fn usage(&self, query: &UsageQuery, first_kept: Hour) -> Vec<UsageRow> {
        let mut sums: BTreeMap<UsageKey, UsageSum> = BTreeMap::new();
        for ((period, MeterKey { endpoint, template, owner }), sum) in &self.usage {
            let key = UsageKey {
                hour: period.hour,
                endpoint: endpoint.clone(),
                template: template.clone(),
                owner: owner.clone(),
            };
            if period.hour >= first_kept && query.matches(&key) {
                sums.entry(key).or_default().add(sum);
            }
        }
        let rows = sums.into_iter().take(query.rows_max);
        rows.map(|(key, sum)| UsageRow { key, sum }).collect()
    }
}

/// Answers requests for rows.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    shared: Arc<Shared>,
    memory: Arc<Memory>,
}

impl MemoryReader {
    pub(crate) fn new(shared: Arc<Shared>, memory: Arc<Memory>) -> Self {
        Self { shared, memory }
    }

    /// Starts the thread. It ends when the index is closed, or drained.
    pub(crate) fn start(self) -> Result<JoinHandle<()>, OpenError> {
        let builder = Builder::new().name("store-memory".to_owned());
        builder.spawn(move || self.run()).map_err(OpenError::Thread)
    }

    fn run(self) {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve()));
        self.shared.end(served.err().map(|_| "the thread of the memory panicked".to_owned()));
    }

    fn serve(&self) {
        loop {
            let mut index = self.shared.index();
            let requests = index.take_requests();
            if requests.is_empty() {
                if matches!(index.phase(), Phase::Closed | Phase::Drained) {
                    return;
                }
                self.shared.wait_medium(&mut index, None);
                continue;
            }
            drop(index);
            requests.into_iter().for_each(|request| self.answer(request));
        }
    }

    fn answer(&self, request: DbRequest) {
        let rows = &mut *self.memory.0.lock();
        // A dropped receiver means that the caller does not need the answer any more.
        match request {
            DbRequest::Payloads { seqs, kind, answer } => {
                let found = seqs.iter().map(|seq| Ok(rows.payloads.get(&(*seq, kind)).cloned()));
                let _ = answer.send(found.collect());
            }
            DbRequest::Chunks { seq, query, answer } => {
                let _ = answer.send(Ok(rows.chunks(seq, &query)));
            }
            DbRequest::DeliveryBody { id, answer } => {
                let _ = answer.send(Ok(rows.bodies.get(&id).cloned()));
            }
            DbRequest::Catalog { answer } => {
                let _ = answer.send(rows.catalog.values().cloned().collect());
            }
            DbRequest::WriteCatalog(changes, answer) => {
                rows.write_catalog(changes);
                let _ = answer.send(Ok(()));
            }
            DbRequest::Usage { query, answer, .. } => {
                let first_kept = Hour::of(self.shared.clock.now()).first_kept();
                let _ = answer.send(Ok(rows.usage(&query, first_kept)));
            }
            // The batches have written all rows.
            DbRequest::StoreUsage => {
                let mut index = self.shared.index();
                let stored = index.meters_mut().unstored();
                index.meters_mut().stored(stored);
            }
            DbRequest::PutAction { action, answer } => {
                rows.actions.insert(action.id.clone(), *action);
                let _ = answer.send(Ok(()));
            }
            DbRequest::DeleteAction { id, answer } => {
                rows.actions.remove(&id);
                let _ = answer.send(Ok(()));
            }
            DbRequest::Actions { answer } => {
                let _ = answer.send(rows.actions.values().cloned().collect());
            }
            DbRequest::Backup { answer, .. } => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "the store has no files");
                let _ = answer.send(Err(BackupError::Io(error)));
            }
            DbRequest::Rotate { answer } => {
                let _ = answer.send(Err(RotateError::KeyFile("the store has no file".to_owned())));
            }
            // Only a medium that archives jobs gets these requests.
            DbRequest::Locate { .. }
            | DbRequest::Load { .. }
            | DbRequest::Search { .. }
            | DbRequest::ExpireArchived { .. }
            | DbRequest::TrimArchived { .. }
            | DbRequest::DeleteArchived { .. } => {
                debug_assert!(false, "no job is archived");
            }
            #[cfg(test)]
            DbRequest::WatchRotation { .. } | DbRequest::JobRows { .. } => {}
        }
    }
}
