//! Submits the jobs of schedules at their times.
//!
//! **Promises.** Each time of a schedule ends as exactly one of: a job, or left out for a reason,
//! also over crashes and other active hosts. The note about a time is in the commit of its job, so
//! that there is never one without the other. A submission that is refused for lack of room is
//! tried again each second, as long as `catchUp.windowMs` permits.
//!
//! **Bounds.** The schedules are those of the catalog. Each that has something to do runs in a task
//! of its own, so that none waits for another, and submits its jobs one after the other.
//! **Cost.** A task and a commit for each time; schedules with the same time share the commit.

use std::collections::HashSet;
use std::panic;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::catalog::Catalog;
use gristmill_core::id::{JobId, SubmissionKind};
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber, ScheduleStore};
use gristmill_core::job::payload::Json;
use gristmill_core::job::tags::Tags;
use gristmill_core::jobs::operations::{Jobs, SubmitError, SubmitMode, SubmitRequest};
use gristmill_core::jobs::scheduling::{RunNowError, Scheduling};
use gristmill_core::schedule::record::{Overlap, Schedule};
use gristmill_core::schedule::state::{ScheduleState, ScheduledJob};
use gristmill_core::store::{JobStore, StoreError, StoreFull};
use gristmill_core::time::{Clock, Timestamp};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

use crate::agenda::Agenda;
use crate::wake;

/// The pause before a refused submission is tried again, and before a look for the end of a job.
const PAUSE_MS: u64 = 1_000;

/// The tag by which clients find the jobs of a schedule.
const TAG: &str = "schedule";

/// The parts of a scheduler.
#[derive(Debug)]
pub struct SchedulerParts {
    /// Submits jobs.
    pub jobs: Arc<Jobs>,
    /// The store, for jobs.
    pub store: Arc<dyn JobStore>,
    /// The store, for notes.
    pub notes: Arc<dyn ScheduleStore>,
    /// The schedules and their endpoints.
    pub catalog: Arc<Catalog>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
}

/// Submits the jobs of schedules.
#[derive(Debug)]
pub struct Scheduler {
    parts: SchedulerParts,
    /// Held while a schedule decides, so that a client's submission comes before or after it.
    entries: Mutex<HashMap<ScheduleNumber, Arc<tokio::sync::Mutex<Entry>>>>,
    /// What is on stable storage, and what clients see.
    stored: Mutex<HashMap<ScheduleNumber, Arc<ScheduleState>>>,
    has_changed: Notify,
}

/// What the scheduler knows of a schedule.
#[derive(Debug, Default)]
struct Entry {
    state: Arc<ScheduleState>,
    /// Why the times that are due have no jobs yet.
    blocked: Option<String>,
}

impl Entry {
    fn state(&mut self) -> &mut ScheduleState {
        Arc::make_mut(&mut self.state)
    }
}

impl Scheduler {
    /// Begins to submit. Ends when the store is closed, or the host drains.
    pub fn start(parts: SchedulerParts) -> Arc<Self> {
        let read = parts.notes.schedule_notes().unwrap_or_else(|error| {
            warn!(%error, "the notes of schedules cannot be read: {error}");
            Vec::new()
        });
        let (mut entries, mut stored) = (HashMap::new(), HashMap::new());
        for ScheduleNote { schedule, text } in read {
            let state = ScheduleState::of_text(&text).unwrap_or_else(|error| {
                warn!(%error, "the note of a schedule cannot be read, and it begins anew: {error}");
                let mut state = ScheduleState::default();
                state.miss(parts.clock.now(), "the times up to this one cannot be read");
                state
            });
            let state = Arc::new(state);
            stored.insert(schedule, state.clone());
            let entry = Entry { state, blocked: None };
            entries.insert(schedule, Arc::new(tokio::sync::Mutex::new(entry)));
        }
        let (entries, stored) = (Mutex::new(entries), Mutex::new(stored));
        let scheduler = Arc::new(Self { parts, entries, stored, has_changed: Notify::new() });
        tokio::spawn(scheduler.clone().run());
        scheduler
    }

    async fn run(self: Arc<Self>) {
        let clock = &self.parts.clock;
        let (mut agenda, mut deciding) = (Agenda::default(), JoinSet::new());
        // The first look finds all schedules.
        self.has_changed.notify_one();
        loop {
            let now = clock.now();
            while let Some(schedule) = agenda.take_due(now) {
                deciding.spawn(self.clone().decide_due(schedule));
            }
            tokio::select! {
                Some(decided) = deciding.join_next() => match decided {
                    Ok((_, Err(StoreError::Closed))) => break,
                    Ok((schedule, Ok(next))) => agenda.decided(&schedule, next),
                    Ok((schedule, Err(_))) => {
                        agenda.decided(&schedule, clock.now().plus_millis(PAUSE_MS));
                    }
                    Err(panicked) => panic::resume_unwind(panicked.into_panic()),
                },
                () = wake::at(&**clock, agenda.next()) => {}
                () = self.has_changed.notified() => match self.follow(&mut agenda).await {
                    Ok(()) => {}
                    Err(StoreError::Closed) => break,
                    Err(error) => warn!(%error, "the notes of deleted schedules stay for now: {error}"),
                },
            }
        }
        // A submission whose task is dropped may still be carried out, which does no harm: its note
        // says so, and the store accepts no further one.
    }

    /// Has the schedules that the catalog has now.
    async fn follow(&self, agenda: &mut Agenda) -> Result<(), StoreError> {
        // A schedule that is created after this line is not among the known ones.
        let known: Vec<_> = self.entries.lock().keys().copied().collect();
        let schedules: Vec<_> = self.parts.catalog.view().schedules.values().cloned().collect();
        agenda.follow(&schedules);
        self.forget_deleted(known, &schedules.iter().map(|it| it.number).collect()).await
    }

    async fn forget_deleted(
        &self,
        known: Vec<ScheduleNumber>,
        existing: &HashSet<ScheduleNumber>,
    ) -> Result<(), StoreError> {
        let deleted: Vec<_> = known.into_iter().filter(|it| !existing.contains(it)).collect();
        if deleted.is_empty() {
            return Ok(());
        }
        self.parts.notes.forget_schedules(deleted.clone()).await?;
        for number in deleted {
            self.entries.lock().remove(&number);
            self.stored.lock().remove(&number);
        }
        Ok(())
    }

    fn entry(&self, schedule: &Schedule) -> Arc<tokio::sync::Mutex<Entry>> {
        self.entries.lock().entry(schedule.number).or_default().clone()
    }

    /// Decides the times of a schedule that have come. Returns when it has something to do next.
    async fn decide_due(
        self: Arc<Self>,
        schedule: Arc<Schedule>,
    ) -> (Arc<Schedule>, Result<Timestamp, StoreError>) {
        let entry = self.entry(&schedule);
        let mut entry = entry.lock().await;
        if schedule.paused || !self.is_current(&schedule) {
            return (schedule, Ok(Timestamp::NEVER));
        }
        let next = self.decide(&schedule, &mut entry).await;
        let noted = self.note(&schedule, &entry.state).await;
        (schedule, noted.and(next))
    }

    /// Whether the schedule was neither changed nor deleted meanwhile.
    fn is_current(&self, schedule: &Arc<Schedule>) -> bool {
        let view = self.parts.catalog.view();
        view.schedules.get(&schedule.id).is_some_and(|present| Arc::ptr_eq(present, schedule))
    }

    /// Submits the jobs that are due. Decisions without a job are noted by the caller.
    async fn decide(
        &self,
        schedule: &Arc<Schedule>,
        entry: &mut Entry,
    ) -> Result<Timestamp, StoreError> {
        let now = self.parts.clock.now();
        let Ok(ticks) = schedule.ticks() else { return Ok(Timestamp::NEVER) };
        if schedule.overlap == Overlap::Cancel {
            self.cancel_before_last(entry).await?;
        }
        let Schedule { begins_at, catch_up, .. } = **schedule;
        let blocked = entry.blocked.clone();
        let plan = entry.state().plan(&ticks, begins_at, catch_up, blocked.as_deref(), now);
        if plan.run.is_empty() {
            // All times that were blocked are decided.
            entry.blocked = None;
        }
        for at in plan.run {
            // A pause, a change or a deletion also ends a catch-up of many times.
            if !self.is_current(schedule) {
                return Ok(now);
            }
            match (schedule.overlap, self.open_job(entry).await?) {
                (Overlap::Skip, Some(open)) => {
                    entry.state().skip(at, open);
                    continue;
                }
                (Overlap::Queue, Some(open)) => {
                    entry.blocked = Some(ScheduleState::not_ended(open));
                    return Ok(now.plus_millis(PAUSE_MS));
                }
                (Overlap::Cancel, _) | (_, None) => {}
            }
            let job = self.new_job(schedule);
            let mut after = ScheduleState::clone(&entry.state);
            after.ran(at, job.clone());
            match self.submit(schedule, job.id, after, entry).await {
                Ok(()) => entry.blocked = None,
                Err(RunNowError::Refused(SubmitError::Store(StoreError::Closed))) => {
                    return Err(StoreError::Closed);
                }
                Err(RunNowError::Refused(SubmitError::Store(error)))
                    if error != StoreError::EndpointDeleted =>
                {
                    entry.blocked = Some(error.to_string());
                    return Ok(now.plus_millis(PAUSE_MS));
                }
                Err(refused) => entry.state().miss(at, &refused.to_string()),
            }
        }
        Ok(plan.next.unwrap_or(Timestamp::NEVER))
    }

    /// The newest job of the schedule that has not ended. Forgets those that have.
    async fn open_job(&self, entry: &mut Entry) -> Result<Option<JobId>, StoreError> {
        let mut open = Vec::new();
        for job in &entry.state.open {
            let record = self.parts.store.job(&job.endpoint, job.id).await?;
            if record.is_some_and(|record| !record.status.is_final()) {
                open.push(job.clone());
            }
        }
        let newest = open.last().map(|job| job.id);
        if open.len() < entry.state.open.len() {
            entry.state().open = open;
        }
        Ok(newest)
    }

    /// Cancels all open jobs but the newest one. A crash between a submission and its cancellations
    /// leaves them to the next decision.
    async fn cancel_before_last(&self, entry: &mut Entry) -> Result<(), StoreError> {
        let last = entry.state.open.len().saturating_sub(1);
        self.cancel_open(entry, last).await
    }

    /// Cancels the oldest open jobs.
    async fn cancel_open(&self, entry: &mut Entry, count: usize) -> Result<(), StoreError> {
        for job in entry.state.open.iter().take(count) {
            self.parts.store.cancel(&job.endpoint, job.id).await?;
        }
        if count > 0 {
            entry.state().open.drain(..count);
        }
        Ok(())
    }

    fn new_job(&self, schedule: &Schedule) -> ScheduledJob {
        let id = JobId::generate(SubmissionKind::Async, self.parts.store.shard());
        ScheduledJob { endpoint: schedule.endpoint.clone(), id }
    }

    /// Submits a job, with the note of the state that its schedule has afterwards. With
    /// `overlap: cancel` the job cancels earlier ones once it is accepted. If they fill the queue
    /// of their endpoint, they are cancelled first, so that the next submission has room.
    async fn submit(
        &self,
        schedule: &Schedule,
        id: JobId,
        after: ScheduleState,
        entry: &mut Entry,
    ) -> Result<(), RunNowError> {
        let SchedulerParts { jobs, catalog, .. } = &self.parts;
        let Some(deployment) = catalog.deployment(&schedule.endpoint) else {
            return Err(RunNowError::NoEndpoint(schedule.endpoint.clone()));
        };
        let request = SubmitRequest {
            owner: schedule.owner.clone(),
            input: Json::from_stored(Bytes::from(schedule.input.clone())),
            policy: schedule.policy(),
            webhook: None,
            s3_config: None,
            mode: SubmitMode::Schedule(id),
            idempotency: None,
            tags: tags(schedule),
            trace: None,
            note: Some(note(schedule, &after)),
        };
        let submitted = jobs.submit(&deployment, request).await;
        let is_cancelling = schedule.overlap == Overlap::Cancel;
        match submitted {
            Ok(_) => {
                let after = Arc::new(after);
                self.stored.lock().insert(schedule.number, after.clone());
                entry.state = after;
                if is_cancelling {
                    // The job is accepted. What could not be cancelled is so by the next decision.
                    let _ = self.cancel_before_last(entry).await;
                }
                Ok(())
            }
            Err(error) => {
                let is_full =
                    matches!(error, SubmitError::Store(StoreError::Full(StoreFull::Queue { .. })));
                if is_cancelling && is_full {
                    let all = entry.state.open.len();
                    self.cancel_open(entry, all).await.map_err(SubmitError::from)?;
                }
                Err(error.into())
            }
        }
    }

    /// Notes the state on stable storage, unless it is there.
    async fn note(
        &self,
        schedule: &Schedule,
        state: &Arc<ScheduleState>,
    ) -> Result<(), StoreError> {
        if self.stored.lock().get(&schedule.number).is_some_and(|stored| stored == state) {
            return Ok(());
        }
        self.parts.notes.note_schedule(note(schedule, state)).await?;
        self.stored.lock().insert(schedule.number, state.clone());
        Ok(())
    }
}

/// The tags of its jobs. They were checked when the schedule was created or changed.
fn tags(schedule: &Schedule) -> Option<Tags> {
    let own = Tags::new([(TAG, schedule.id.as_str())]).unwrap_or_default();
    Tags::with_turn(own.clone(), &schedule.turn()).unwrap_or(own)
}

fn note(schedule: &Schedule, state: &ScheduleState) -> ScheduleNote {
    ScheduleNote { schedule: schedule.number, text: state.text() }
}

#[async_trait]
impl Scheduling for Scheduler {
    fn state(&self, schedule: ScheduleNumber) -> Arc<ScheduleState> {
        self.stored.lock().get(&schedule).cloned().unwrap_or_default()
    }

    async fn run_now(&self, schedule: &Schedule) -> Result<JobId, RunNowError> {
        let of_store = |error: StoreError| RunNowError::Refused(error.into());
        let entry = self.entry(schedule);
        let mut entry = entry.lock().await;
        let view = self.parts.catalog.view();
        let present = view.schedules.get(&schedule.id);
        if present.is_none_or(|present| present.number != schedule.number) {
            return Err(RunNowError::Deleted(schedule.id.clone()));
        }
        let open = self.open_job(&mut entry).await.map_err(of_store)?;
        if let Some(open) = open.filter(|_| schedule.overlap != Overlap::Cancel) {
            return Err(RunNowError::Open(open));
        }
        let job = self.new_job(schedule);
        let mut after = ScheduleState::clone(&entry.state);
        after.opened(job.clone());
        self.submit(schedule, job.id, after, &mut entry).await?;
        Ok(job.id)
    }

    async fn settle(&self, schedule: &Schedule, reason: &str) -> Result<(), StoreError> {
        let Ok(ticks) = schedule.ticks() else { return Ok(()) };
        let entry = self.entry(schedule);
        let mut entry = entry.lock().await;
        loop {
            let now = self.parts.clock.now();
            let is_done = if schedule.paused {
                entry.state().decided_to = now;
                true
            } else {
                entry.state().settle(&ticks, schedule.begins_at, reason, now)
            };
            self.note(schedule, &entry.state).await?;
            if is_done {
                return Ok(());
            }
        }
    }

    fn changed(&self) {
        self.has_changed.notify_one();
    }
}
