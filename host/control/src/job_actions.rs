//! Actions on many jobs: cancel, retry or delete all jobs that match a filter, in the background.
//!
//! **Promises.** An action examines each job once, from the newest to the oldest, and no job that
//! was submitted after it began. It changes a job only as the call for this one job would. An
//! action survives a restart: the next process continues it at its last recorded position, so after
//! a crash the jobs of its last second may be examined twice. An action ends with its API key, and
//! leaves out an endpoint as soon as that is deleted: the next endpoint with the same id loses
//! nothing.
//!
//! **Bounds.** [`RUNNING_MAX`] running actions and [`KEPT_MAX`] actions for each owner. Running
//! actions take turns: the whole host works on one page at one time, and rests after it for as long
//! as it took, so calls have at least half of the store. A page has [`PAGE_JOBS`] jobs, and
//! [`CHANGES_MAX`] of them are changed at one time. **Cost.** A synced write for each begin, each
//! abort and each end, and one each second between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::{EndpointId, JobActionId, JobId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::action::{
    ActionCounts, JobAction, JobActionKind, JobActionState, JobActionStore,
};
use gristmill_core::job::filter::{JobFilter, JobSearch};
use gristmill_core::job::record::JobRecord;
use gristmill_core::job::state::JobStatus;
use gristmill_core::store::{RetryAnswer, StoreError};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tracing::{info, warn};

use crate::complete::complete;
use crate::deployed::Deployed;
use crate::error::ControlError;
use crate::owned::random_id;

/// Most actions of an owner that run at one time.
const RUNNING_MAX: usize = 4;

/// Most actions of an owner that are kept. The oldest that have ended are deleted.
const KEPT_MAX: usize = 50;

/// Jobs of one page.
const PAGE_JOBS: usize = 256;

/// Jobs that a page changes at one time. Their changes share a sync of the disk.
const CHANGES_MAX: usize = 64;

/// The interval at which the position of a running action is recorded.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a change that found no room is tried again.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

/// The service for actions on many jobs.
#[derive(Debug, Clone)]
pub struct JobActions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    deployed: Arc<Deployed>,
    store: Arc<dyn JobActionStore>,
    actions: Mutex<BTreeMap<JobActionId, JobAction>>,
    /// Held from the look at an action to the end of its write, so that no older state is written
    /// last.
    recording: AsyncMutex<()>,
    /// Held by the one action that works on a page.
    turn: AsyncMutex<()>,
}

/// An action to begin.
#[derive(Debug)]
pub struct NewJobAction {
    /// The operation on each job.
    pub kind: JobActionKind,
    /// The jobs.
    pub filter: JobFilter,
    /// The endpoints of the jobs, each once. The caller's key sees all of them.
    pub endpoints: Vec<EndpointId>,
    /// Whether the caller has named them.
    pub names_endpoints: bool,
}

/// The parts of a running action that are not stored.
struct Work {
    id: JobActionId,
    caller: Arc<ApiKey>,
    /// The endpoints as they were when the action began, or when the host started.
    incarnations: BTreeMap<EndpointId, EndpointIncarnation>,
}

/// How an action ends.
struct End {
    state: JobActionState,
    reason: Option<String>,
}

/// The result of a page.
enum Progress {
    NextPage,
    Ended(End),
}

/// The result of changes of some jobs.
#[derive(Default)]
struct Applied {
    changed: u64,
    skipped: u64,
    /// Jobs whose change found no room.
    left: Vec<JobRecord>,
    /// The refusal of the last of them.
    refusal: Option<String>,
}

/// The result of a change of one job.
enum Change {
    Changed,
    Skipped,
    NoRoom(Box<JobRecord>, String),
}

impl JobActions {
    pub(crate) fn new(deployed: Arc<Deployed>, store: Arc<dyn JobActionStore>) -> Self {
        let (actions, recording) = (Mutex::default(), AsyncMutex::default());
        let turn = AsyncMutex::default();
        Self(Arc::new(Inner { deployed, store, actions, recording, turn }))
    }

    /// Continues the actions of the last process. To be called once, before all other calls.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn resume(&self) -> Result<(), StoreError> {
        let view = self.0.deployed.view();
        for mut action in self.0.store.actions().await? {
            if action.state == JobActionState::Running {
                action.has_begun_again = true;
            }
            let (id, is_running) = (action.id.clone(), action.state == JobActionState::Running);
            let access = &self.0.deployed.access;
            let caller = access.key_of_all().or_else(|| view.keys.get(&action.key)).cloned();
            self.0.actions.lock().insert(id.clone(), action);
            match caller {
                _ if !is_running => {}
                Some(caller) => {
                    info!("the job action `{id}` continues");
                    self.start(&id, caller);
                }
                // On a full disk this waits.
                None => drop(tokio::spawn(self.0.clone().end(id, End::of_key()))),
            }
        }
        Ok(())
    }

    /// Begins an action. It is on stable storage when this returns, and it begins even if the
    /// caller has stopped waiting.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] while too many of the owner's actions run;
    /// [`ControlError::KeyEnded`]; those of the store.
    pub async fn begin(
        &self,
        caller: &Arc<ApiKey>,
        new: NewJobAction,
    ) -> Result<JobAction, ControlError> {
        let deployed = &self.0.deployed;
        deployed.check_key(caller, &deployed.view())?;
        let action = JobAction {
            id: random_id(),
            owner: caller.owner.clone(),
            key: caller.id.clone(),
            kind: new.kind,
            filter: new.filter,
            endpoints: new.endpoints,
            names_endpoints: new.names_endpoints,
            state: JobActionState::Running,
            counts: ActionCounts::default(),
            position: Some(deployed.store.end_position()?),
            has_begun_again: false,
            is_aborted: false,
            created_at: deployed.now(),
            ended_at: None,
            reason: None,
        };
        let (this, caller) = (self.clone(), caller.clone());
        complete(async move {
            this.0.admit(&action).await?;
            this.start(&action.id, caller);
            Ok(action)
        })
        .await?
    }

    /// The actions that the caller sees, in no particular order.
    pub fn list(&self, caller: &ApiKey) -> Vec<JobAction> {
        let actions = self.0.actions.lock();
        actions.values().filter(|action| caller.sees(&action.owner)).cloned().collect()
    }

    /// An action.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(&self, caller: &ApiKey, id: &str) -> Result<JobAction, ControlError> {
        self.0.seen(caller, id, |action| action.clone())
    }

    /// Ends a running action before its next page of jobs, or while it waits for room: also after a
    /// crash, once this has returned. An action that has ended stays as it is.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], [`ControlError::KeyEnded`], those of the store.
    pub async fn abort(&self, caller: &ApiKey, id: &str) -> Result<(), ControlError> {
        let deployed = &self.0.deployed;
        deployed.check_key(caller, &deployed.view())?;
        let running = self.0.seen(caller, id, |action| {
            let is_running = action.state == JobActionState::Running;
            action.is_aborted |= is_running;
            is_running.then(|| action.id.clone())
        })?;
        match running {
            Some(id) => Ok(self.0.record(&id).await?),
            None => Ok(()),
        }
    }

    fn start(&self, id: &JobActionId, caller: Arc<ApiKey>) {
        let view = self.0.deployed.view();
        let endpoints = self.0.change(id, |action| action.endpoints.clone()).unwrap_or_default();
        let incarnations = endpoints.into_iter().filter_map(|id| {
            let deployment = view.deployments.get(&id)?;
            let is_seen = caller.sees(&deployment.endpoint.owner);
            is_seen.then(|| (id, deployment.incarnation.clone()))
        });
        let incarnations = incarnations.collect();
        let work = Work { id: id.clone(), caller, incarnations };
        tokio::spawn(self.0.clone().run(work));
    }
}

impl End {
    fn completed() -> Self {
        Self { state: JobActionState::Completed, reason: None }
    }

    fn aborted(reason: &str) -> Self {
        Self { state: JobActionState::Aborted, reason: Some(reason.to_owned()) }
    }

    fn of_key() -> Self {
        Self::aborted("the API key that began it was revoked or has expired")
    }
}

impl Inner {
    /// Adds and stores an action, if its owner may have another one, and deletes the oldest ones
    /// for it.
    async fn admit(self: &Arc<Self>, action: &JobAction) -> Result<(), ControlError> {
        let _recording = self.recording.lock().await;
        for id in self.add(action)? {
            if let Err(error) = self.store.delete_action(id.clone()).await {
                self.actions.lock().remove(&action.id);
                return Err(error.into());
            }
            self.actions.lock().remove(&id);
        }
        match self.store.put_action(action.clone()).await {
            Ok(()) => Ok(()),
            Err(error) => {
                if error == StoreError::Unavailable {
                    // It may be stored nevertheless, and the next process would continue it.
                    let end = End::aborted("its begin could not be recorded");
                    tokio::spawn(self.clone().end(action.id.clone(), end));
                } else {
                    self.actions.lock().remove(&action.id);
                }
                Err(error.into())
            }
        }
    }

    /// Adds an action in memory. Returns the actions that are to be deleted for it.
    fn add(&self, action: &JobAction) -> Result<Vec<JobActionId>, ControlError> {
        let mut actions = self.actions.lock();
        let of_owner = actions.values().filter(|other| other.owner == action.owner);
        let (running, mut ended): (Vec<_>, Vec<_>) = of_owner
            .map(|other| (other.created_at, other.id.clone(), other.state))
            .partition(|(_, _, state)| *state == JobActionState::Running);
        if running.len() >= RUNNING_MAX {
            return Err(ControlError::conflict(format!(
                "{RUNNING_MAX} job actions of this owner are running, the most at one time; wait until one has \
                 ended, or abort one"
            )));
        }
        ended.sort_unstable_by(|(a, one, _), (b, other, _)| (a, one).cmp(&(b, other)));
        let surplus = (running.len() + ended.len() + 1).saturating_sub(KEPT_MAX);
        actions.insert(action.id.clone(), action.clone());
        Ok(ended.into_iter().take(surplus).map(|(_, id, _)| id).collect())
    }

    fn seen<T>(
        &self,
        caller: &ApiKey,
        id: &str,
        look: impl FnOnce(&mut JobAction) -> T,
    ) -> Result<T, ControlError> {
        let missing = || ControlError::NotFound { what: "job action", name: id.to_owned() };
        let id = JobActionId::new(id).map_err(|_| missing())?;
        let mut actions = self.actions.lock();
        let action = actions.get_mut(&id).filter(|action| caller.sees(&action.owner));
        action.map(look).ok_or_else(missing)
    }

    fn change<T>(&self, id: &JobActionId, change: impl FnOnce(&mut JobAction) -> T) -> Option<T> {
        self.actions.lock().get_mut(id).map(change)
    }

    /// Writes the present state of an action.
    async fn record(&self, id: &JobActionId) -> Result<(), StoreError> {
        let _recording = self.recording.lock().await;
        match self.change(id, |action| action.clone()) {
            Some(action) => self.store.put_action(action).await,
            None => Ok(()),
        }
    }

    async fn run(self: Arc<Self>, mut work: Work) {
        let mut recorded_at = Instant::now();
        let end = loop {
            match self.run_page(&mut work).await {
                Ok(Progress::NextPage) => {}
                Ok(Progress::Ended(end)) => break end,
                // The host stops, and its next start continues.
                Err(StoreError::Closed) => return,
                Err(error) => {
                    let reason = Some(error.to_string());
                    break End { state: JobActionState::Failed, reason };
                }
            }
            if recorded_at.elapsed() >= RECORD_INTERVAL {
                // A later record has the whole progress.
                let _ = self.record(&work.id).await;
                recorded_at = Instant::now();
            }
        };
        self.end(work.id, end).await;
    }

    /// Ends an action. Clients see its end once that is on stable storage: the next process would
    /// continue it otherwise.
    async fn end(self: Arc<Self>, id: JobActionId, end: End) {
        loop {
            let recording = self.recording.lock().await;
            let Some(mut action) = self.change(&id, |action| action.clone()) else { return };
            (action.state, action.reason) = (end.state, end.reason.clone());
            action.ended_at = Some(self.deployed.now());
            if !action.names_endpoints {
                action.endpoints = Vec::new();
            }
            match self.store.put_action(action.clone()).await {
                Err(StoreError::Closed) => return,
                Err(error @ (StoreError::Full(_) | StoreError::Unavailable)) => {
                    warn!("the end of the job action `{id}` is not recorded yet: {error}");
                    self.change(&id, |action| action.reason = Some(error.to_string()));
                    drop(recording);
                    tokio::time::sleep(ROOM_PAUSE).await;
                }
                stored => {
                    if let Err(error) = stored {
                        warn!("the end of the job action `{id}` is not recorded: {error}");
                    }
                    self.change(&id, |present| *present = action);
                    return;
                }
            }
        }
    }

    /// Why the action must end now, if it must.
    fn early_end(&self, work: &Work) -> Option<End> {
        if self.change(&work.id, |action| action.is_aborted).unwrap_or(true) {
            return Some(End::aborted("a client aborted it"));
        }
        let is_valid = self.deployed.check_key(&work.caller, &self.deployed.view()).is_ok();
        (!is_valid).then(End::of_key)
    }

    /// Changes the jobs of the next page.
    async fn run_page(&self, work: &mut Work) -> Result<Progress, StoreError> {
        if let Some(end) = self.early_end(work) {
            return Ok(Progress::Ended(end));
        }
        let mut turn = self.turn.lock().await;
        let mut began = Instant::now();
        work.incarnations.retain(|_, incarnation| !incarnation.has_ended());
        let endpoints = work.incarnations.keys().cloned().collect();
        let next = self.change(&work.id, |action| next_search(action, endpoints));
        let Some((kind, search)) = next else { return Ok(Progress::Ended(End::completed())) };
        let page = match self.deployed.store.search(&search).await {
            Err(StoreError::UnknownCursor) => {
                // The key of stored secrets, which hides positions, was replaced.
                self.change(&work.id, |action| {
                    (action.position, action.has_begun_again) = (None, true);
                });
                return Ok(Progress::NextPage);
            }
            Err(error @ StoreError::Unavailable) => {
                self.change(&work.id, |action| action.reason = Some(error.to_string()));
                drop(turn);
                tokio::time::sleep(ROOM_PAUSE).await;
                return Ok(Progress::NextPage);
            }
            page => page?,
        };
        // The search may have found jobs of an endpoint that was created since the check above.
        let is_wanted = |job: &JobRecord| {
            let incarnation = work.incarnations.get(&job.endpoint);
            incarnation.is_some_and(|incarnation| !incarnation.has_ended())
        };
        let mut left: Vec<_> = page.jobs.into_iter().filter(is_wanted).collect();
        let matched = left.len() as u64;
        self.change(&work.id, |action| action.counts.matched += matched);
        loop {
            let applied = self.apply(kind, left).await?;
            self.change(&work.id, |action| {
                action.counts.changed += applied.changed;
                action.counts.skipped += applied.skipped;
                action.reason.clone_from(&applied.refusal);
            });
            if applied.left.is_empty() {
                break;
            }
            // Other actions go on meanwhile.
            drop(turn);
            tokio::time::sleep(ROOM_PAUSE).await;
            if let Some(end) = self.early_end(work) {
                return Ok(Progress::Ended(end));
            }
            turn = self.turn.lock().await;
            began = Instant::now();
            left = applied.left;
        }
        self.change(&work.id, |action| action.position = page.next);
        tokio::time::sleep(began.elapsed()).await;
        drop(turn);
        Ok(match page.next {
            Some(_) => Progress::NextPage,
            None => Progress::Ended(End::completed()),
        })
    }

    async fn apply(
        &self,
        kind: JobActionKind,
        jobs: Vec<JobRecord>,
    ) -> Result<Applied, StoreError> {
        let jobs = jobs.into_iter();
        match kind {
            JobActionKind::Cancel => all(jobs.map(|job| self.cancel(job))).await,
            JobActionKind::Retry => all(jobs.map(|job| self.retry(job))).await,
            JobActionKind::Delete => self.delete(jobs).await,
        }
    }

    async fn cancel(&self, job: JobRecord) -> Result<Change, StoreError> {
        if job.status.is_final() {
            return Ok(Change::Skipped);
        }
        let status = self.deployed.store.cancel(&job.endpoint, job.id).await;
        if status == Ok(Some(JobStatus::Cancelled))
            && let Some(deployment) = self.deployed.view().deployments.get(&job.endpoint)
        {
            deployment.incarnation.metrics().cancelled(1);
        }
        done(job, status.map(|status| status == Some(JobStatus::Cancelled)))
    }

    async fn retry(&self, job: JobRecord) -> Result<Change, StoreError> {
        let view = self.deployed.view();
        let deployment = view.deployments.get(&job.endpoint);
        let can_run_again = matches!(job.status, JobStatus::Failed | JobStatus::TimedOut);
        let Some(deployment) = deployment.filter(|_| can_run_again) else {
            return Ok(Change::Skipped);
        };
        let max = deployment.endpoint.settings.max_waiting_jobs;
        let retried = self.deployed.store.retry(&job.endpoint, job.id, max).await;
        if retried == Ok(RetryAnswer::Queued) {
            deployment.incarnation.metrics().requeued();
        }
        done(job, retried.map(|answer| answer == RetryAnswer::Queued))
    }

    async fn delete(&self, jobs: impl Iterator<Item = JobRecord>) -> Result<Applied, StoreError> {
        let mut by_endpoint: BTreeMap<EndpointId, Vec<JobRecord>> = BTreeMap::new();
        for job in jobs {
            by_endpoint.entry(job.endpoint.clone()).or_default().push(job);
        }
        let mut applied = Applied::default();
        for (endpoint, jobs) in by_endpoint {
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            match self.deployed.store.delete_ended(&endpoint, &ids).await {
                Ok(deleted) => {
                    applied.changed += deleted;
                    applied.skipped += (ids.len() as u64).saturating_sub(deleted);
                }
                Err(error @ (StoreError::Full(_) | StoreError::Unavailable)) => {
                    applied.left.extend(jobs);
                    applied.refusal = Some(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(applied)
    }
}

/// The operation, and the search for the next page.
fn next_search(action: &JobAction, endpoints: Vec<EndpointId>) -> (JobActionKind, JobSearch) {
    let mut filter = action.filter.clone();
    if action.has_begun_again {
        let later = action.created_at.plus_millis(1);
        filter.until = Some(filter.until.map_or(later, |until| until.min(later)));
    }
    (action.kind, JobSearch { endpoints, filter, after: action.position, count_max: PAGE_JOBS })
}

/// Makes the changes, some of them at one time.
async fn all(
    changes: impl Iterator<Item = impl Future<Output = Result<Change, StoreError>>>,
) -> Result<Applied, StoreError> {
    let mut applied = Applied::default();
    let mut changes = stream::iter(changes).buffer_unordered(CHANGES_MAX);
    while let Some(change) = changes.next().await {
        match change? {
            Change::Changed => applied.changed += 1,
            Change::Skipped => applied.skipped += 1,
            Change::NoRoom(job, refusal) => {
                applied.left.push(*job);
                applied.refusal = Some(refusal);
            }
        }
    }
    Ok(applied)
}

/// The result of a change, as the store has answered.
fn done(job: JobRecord, answer: Result<bool, StoreError>) -> Result<Change, StoreError> {
    match answer {
        Ok(true) => Ok(Change::Changed),
        Err(
            error @ (StoreError::Full(_) | StoreError::QuotaExceeded(_) | StoreError::Unavailable),
        ) => Ok(Change::NoRoom(job.into(), error.to_string())),
        // The input of a damaged job cannot be read.
        Ok(false) | Err(StoreError::EndpointDeleted | StoreError::Damaged(_)) => {
            Ok(Change::Skipped)
        }
        Err(error @ (StoreError::Closed | StoreError::UnknownCursor)) => Err(error),
    }
}
