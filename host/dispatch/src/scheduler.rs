//! Submits the jobs of schedules at their times.
//!
//! **Promises.** Each time of a schedule ends as exactly one of: a job, or left out for a reason,
//! also over crashes and other active hosts. The note about a time is in the commit of its job, so
//! that there is never one without the other. A submission that is refused for lack of room is
//! tried again each second, as long as `catchUp.windowMs` permits.
//!
//! **Bounds.** The schedules are those of the catalog. [`AT_ONCE`] of them submit at one time, and
//! each submits its jobs one after the other. **Cost.** A look at each schedule four times a
//! second, and a commit for each time, which schedules with the same time share.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use gristmill_core::catalog::Catalog;
use gristmill_core::id::{JobId, SubmissionKind};
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber, ScheduleStore};
use gristmill_core::job::payload::Json;
use gristmill_core::job::tags::Tags;
use gristmill_core::jobs::operations::{Jobs, SubmitError, SubmitMode, SubmitRequest};
use gristmill_core::jobs::scheduling::{RunNowError, Scheduling};
use gristmill_core::schedule::record::{Overlap, Schedule};
use gristmill_core::schedule::state::ScheduleState;
use gristmill_core::store::{JobStore, StoreError};
use gristmill_core::time::{Clock, Timestamp};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::warn;

use crate::wake;

/// Schedules that submit at one time.
const AT_ONCE: usize = 64;

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
    /// The states that clients see.
    shown: Mutex<HashMap<ScheduleNumber, ScheduleState>>,
    has_changed: Notify,
}

/// What the scheduler knows of a schedule.
#[derive(Debug, Default)]
struct Entry {
    /// The settings by which `next` was computed.
    settings: Option<Arc<Schedule>>,
    /// When it has something to do.
    next: Timestamp,
    state: ScheduleState,
    /// Why its last submission was refused.
    refused: Option<String>,
}

impl Scheduler {
    /// Begins to submit. Ends when the store is closed, or the host drains.
    pub fn start(parts: SchedulerParts) -> Arc<Self> {
        let read = parts.notes.schedule_notes().unwrap_or_else(|error| {
            warn!(%error, "the notes of schedules cannot be read: {error}");
            Vec::new()
        });
        let (mut entries, mut shown) = (HashMap::new(), HashMap::new());
        for ScheduleNote { schedule, text } in read {
            let state = ScheduleState::of_text(&text).unwrap_or_else(|error| {
                warn!(%error, "the note of a schedule cannot be read, and it begins anew: {error}");
                ScheduleState { decided_to: parts.clock.now(), ..ScheduleState::default() }
            });
            shown.insert(schedule, state.clone());
            let entry = Entry { state, ..Entry::default() };
            entries.insert(schedule, Arc::new(tokio::sync::Mutex::new(entry)));
        }
        let (entries, shown) = (Mutex::new(entries), Mutex::new(shown));
        let scheduler = Arc::new(Self { parts, entries, shown, has_changed: Notify::new() });
        tokio::spawn(scheduler.clone().run());
        scheduler
    }

    async fn run(self: Arc<Self>) {
        let clock = &self.parts.clock;
        loop {
            let next = match self.look().await {
                Ok(next) => next,
                Err(StoreError::Closed) => return,
                Err(_) => clock.now().plus_millis(PAUSE_MS),
            };
            tokio::select! {
                () = wake::at(&**clock, next) => {}
                () = self.has_changed.notified() => {}
            }
        }
    }

    /// Decides what is due. Returns when something is due next.
    async fn look(&self) -> Result<Timestamp, StoreError> {
        // A schedule that is created after this line is not among the known ones.
        let known: Vec<_> = self.entries.lock().keys().copied().collect();
        let view = self.parts.catalog.view();
        self.forget_deleted(known, &view.schedules.values().map(|it| it.number).collect()).await?;
        let all = view.schedules.values();
        let active: Vec<_> = all.filter(|schedule| !schedule.paused).cloned().collect();
        let decided = active.into_iter().map(|schedule| self.decide_if_due(schedule));
        let mut decided = futures::stream::iter(decided).buffer_unordered(AT_ONCE);
        // The others are awaited after a failure too: a submission whose caller is dropped may
        // still be carried out, and its time would be decided again.
        let (mut soonest, mut failure) = (Timestamp::NEVER, None);
        while let Some(next) = decided.next().await {
            match next {
                Ok(next) => soonest = soonest.min(next),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(soonest), Err)
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
            self.shown.lock().remove(&number);
        }
        Ok(())
    }

    fn entry(&self, schedule: &Schedule) -> Arc<tokio::sync::Mutex<Entry>> {
        self.entries.lock().entry(schedule.number).or_default().clone()
    }

    /// Decides the times of a schedule that have come, and returns the next one.
    async fn decide_if_due(&self, schedule: Arc<Schedule>) -> Result<Timestamp, StoreError> {
        let entry = self.entry(&schedule);
        let mut entry = entry.lock().await;
        if !self.is_current(&schedule) {
            return Ok(self.parts.clock.now());
        }
        let is_known = entry.settings.as_ref().is_some_and(|known| Arc::ptr_eq(known, &schedule));
        if is_known && self.parts.clock.now() < entry.next {
            return Ok(entry.next);
        }
        let before = entry.state.clone();
        let next = self.decide(&schedule, &mut entry).await;
        if entry.state != before {
            self.note(&schedule, &entry.state).await?;
        }
        entry.settings = Some(schedule);
        entry.next = next?;
        Ok(entry.next)
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
        let refused = entry.refused.as_deref();
        let plan = entry.state.plan(&ticks, schedule.begins_at, schedule.catch_up, refused, now);
        if plan.run.is_empty() {
            // All times that were refused are decided.
            entry.refused = None;
        }
        for at in plan.run {
            // A pause, a change or a deletion also ends a catch-up of many times.
            if !self.is_current(schedule) {
                return Ok(now);
            }
            if let Some(open) = self.open_job(schedule, entry).await? {
                match schedule.overlap {
                    Overlap::Skip => {
                        entry.state.skip(at, open);
                        continue;
                    }
                    Overlap::Queue => return Ok(now.plus_millis(PAUSE_MS)),
                    Overlap::Cancel => self.cancel_open(schedule, entry).await?,
                }
            }
            let id = self.new_id();
            let mut after = entry.state.clone();
            after.ran(at, id);
            match self.submit(schedule, id, after, entry).await {
                Ok(()) => entry.refused = None,
                Err(RunNowError::Refused(SubmitError::Store(StoreError::Closed))) => {
                    return Err(StoreError::Closed);
                }
                Err(RunNowError::Refused(SubmitError::Store(error)))
                    if error != StoreError::EndpointDeleted =>
                {
                    entry.refused = Some(error.to_string());
                    return Ok(now.plus_millis(PAUSE_MS));
                }
                Err(refused) => entry.state.miss(at, &refused.to_string()),
            }
        }
        Ok(plan.next.unwrap_or(Timestamp::NEVER))
    }

    /// The newest job of the schedule that has not ended. Forgets those that have.
    async fn open_job(
        &self,
        schedule: &Schedule,
        entry: &mut Entry,
    ) -> Result<Option<JobId>, StoreError> {
        let mut open = Vec::new();
        for id in std::mem::take(&mut entry.state.open) {
            let job = self.parts.store.job(&schedule.endpoint, id).await?;
            if job.is_some_and(|job| !job.status.is_final()) {
                open.push(id);
            }
        }
        entry.state.open = open;
        Ok(entry.state.open.last().copied())
    }

    async fn cancel_open(&self, schedule: &Schedule, entry: &mut Entry) -> Result<(), StoreError> {
        for id in &entry.state.open {
            self.parts.store.cancel(&schedule.endpoint, *id).await?;
        }
        entry.state.open.clear();
        Ok(())
    }

    fn new_id(&self) -> JobId {
        JobId::generate(SubmissionKind::Async, self.parts.store.shard())
    }

    /// Submits a job, with the note of the state that its schedule has afterwards.
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
        jobs.submit(&deployment, request).await?;
        self.shown.lock().insert(schedule.number, after.clone());
        entry.state = after;
        Ok(())
    }

    async fn note(&self, schedule: &Schedule, state: &ScheduleState) -> Result<(), StoreError> {
        if self.shown.lock().get(&schedule.number) == Some(state) {
            return Ok(());
        }
        self.parts.notes.note_schedule(note(schedule, state)).await?;
        self.shown.lock().insert(schedule.number, state.clone());
        Ok(())
    }
}

/// The tags of its jobs. They were checked when the schedule was created or changed.
fn tags(schedule: &Schedule) -> Option<Tags> {
    let own = Tags::new([(TAG, schedule.id.as_str())]).unwrap_or_default();
    Tags::with_job_key(own.clone(), schedule.policy.key.as_deref()).unwrap_or(own)
}

fn note(schedule: &Schedule, state: &ScheduleState) -> ScheduleNote {
    ScheduleNote { schedule: schedule.number, text: state.text() }
}

#[async_trait]
impl Scheduling for Scheduler {
    fn state(&self, schedule: ScheduleNumber) -> ScheduleState {
        self.shown.lock().get(&schedule).cloned().unwrap_or_default()
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
        if let Some(open) = self.open_job(schedule, &mut entry).await.map_err(of_store)? {
            match schedule.overlap {
                Overlap::Skip | Overlap::Queue => return Err(RunNowError::Open(open)),
                Overlap::Cancel => {
                    self.cancel_open(schedule, &mut entry).await.map_err(of_store)?;
                }
            }
        }
        let id = self.new_id();
        let mut after = entry.state.clone();
        after.opened(id);
        self.submit(schedule, id, after, &mut entry).await?;
        Ok(id)
    }

    fn changed(&self) {
        self.has_changed.notify_one();
    }
}
