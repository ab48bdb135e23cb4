//! Schedules: jobs that the host submits at certain times.

use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::deploy::endpoint::{Endpoint, EndpointType};
use gristmill_core::id::{EndpointId, JobId, OwnerId, ScheduleId};
use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::job::payload::check_input;
use gristmill_core::job::policy::Strictness;
use gristmill_core::job::tags::Tags;
use gristmill_core::jobs::scheduling::{RunNowError, Scheduling};
use gristmill_core::limits::PRIORITY;
use gristmill_core::schedule::TicksDefinition;
use gristmill_core::schedule::record::{CatchUp, Overlap, Schedule};
use gristmill_core::schedule::state::ScheduleState;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::ScheduleInput;
use gristmill_wire::queue::Policy;
use gristmill_wire::settings::{check_name, number};

use crate::deployed::Deployed;
use crate::error::ControlError;
use crate::owned::{Listed, find_owned, of_owner, random_id, taken};

/// The input of jobs without one.
const EMPTY: &str = "{}";

/// How many of its next times a schedule shows.
const NEXT_SHOWN: usize = 10;

/// The service for schedules.
#[derive(Debug, Clone)]
pub struct Schedules {
    deployed: Arc<Deployed>,
    scheduler: Arc<dyn Scheduling>,
}

impl Schedules {
    pub(crate) fn new(deployed: Arc<Deployed>, scheduler: Arc<dyn Scheduling>) -> Self {
        Self { deployed, scheduler }
    }

    /// One schedule.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(&self, caller: &ApiKey, id: &ScheduleId) -> Result<Arc<Schedule>, ControlError> {
        find_owned::<Schedule>(&self.deployed.view(), caller, id).cloned()
    }

    /// The schedules that the caller sees.
    pub fn list(&self, caller: &Arc<ApiKey>) -> Listed<Schedule> {
        Listed::new(self.deployed.view(), caller)
    }

    /// What the schedule has decided.
    pub fn state(&self, schedule: &Schedule) -> Arc<ScheduleState> {
        self.scheduler.state(schedule.number)
    }

    /// The next times of a schedule that has decided this; none while it is paused.
    pub fn next(&self, schedule: &Schedule, decided: &ScheduleState) -> Vec<Timestamp> {
        let Ok(ticks) = schedule.ticks() else { return Vec::new() };
        if schedule.paused {
            return Vec::new();
        }
        let after = decided.decided_to.max(schedule.begins_at);
        let first = ticks.next_after(after.max(self.deployed.now()));
        std::iter::successors(first, |at| ticks.next_after(*at)).take(NEXT_SHOWN).collect()
    }

    /// A new schedule of the caller's owner.
    ///
    /// # Errors
    /// [`ControlError::Invalid`] for values that no schedule can have, such as an endpoint that the
    /// owner does not have, [`ControlError::Conflict`] for a used id, and those of every change.
    pub async fn create(
        &self,
        caller: &ApiKey,
        given: ScheduleInput,
    ) -> Result<Schedule, ControlError> {
        let now = self.deployed.now();
        let endpoint = given.endpoint_id.clone();
        let endpoint = endpoint.ok_or_else(|| ControlError::invalid("`endpointId` is required"))?;
        let times = times(&given, TicksDefinition::default(), now)?;
        let id: ScheduleId = given.id.clone().unwrap_or_else(random_id);
        let schedule = Schedule {
            name: id.to_string(),
            id,
            owner: caller.owner.clone(),
            endpoint,
            times,
            input: EMPTY.to_owned(),
            policy: Policy::default(),
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            paused: false,
            number: ScheduleNumber::random(),
            begins_at: now,
            created_at: now,
        };
        let create = |view: &View| {
            if view.schedules.contains_key(&schedule.id) {
                return Err(taken::<Schedule>(&schedule.id));
            }
            let schedule = changed(view, schedule, given, now)?;
            Ok((put(&schedule), schedule))
        };
        self.change(caller, create).await
    }

    /// Changes the fields that are given. Other times, and the end of a pause, count from now on.
    /// The times that were due before and have no jobs yet are missed.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub async fn update(
        &self,
        caller: &ApiKey,
        id: &ScheduleId,
        given: ScheduleInput,
    ) -> Result<Schedule, ControlError> {
        let now = self.deployed.now();
        let current = self.get(caller, id)?;
        let planned =
            changed(&self.deployed.view(), Schedule::clone(&current), given.clone(), now)?;
        // Times that wait for their jobs, such as behind a full queue, are not silently dropped.
        let reason = match (planned.paused, planned.begins_at != current.begins_at) {
            (true, _) if !current.paused => {
                Some("the schedule was paused before its job was submitted")
            }
            (_, true) => Some("the schedule was changed before its job was submitted"),
            (_, false) => None,
        };
        if let Some(reason) = reason {
            self.scheduler.settle(&current, reason).await?;
        }
        let update = |view: &View| {
            let current: &Arc<Schedule> = find_owned(view, caller, id)?;
            let schedule = changed(view, Schedule::clone(current), given, now)?;
            Ok((put(&schedule), schedule))
        };
        self.change(caller, update).await
    }

    /// Deletes a schedule. Its jobs stay.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], and those of every change.
    pub async fn delete(&self, caller: &ApiKey, id: &ScheduleId) -> Result<(), ControlError> {
        let delete = |view: &View| {
            find_owned::<Schedule>(view, caller, id)?;
            Ok((vec![CatalogChange::Delete(CatalogKey::Schedule(id.clone()))], ()))
        };
        self.change(caller, delete).await
    }

    /// Submits a job of the schedule now.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], [`ControlError::Conflict`] while an earlier job runs that
    /// `overlap` does not cancel, and those of a submission.
    pub async fn run_now(&self, caller: &ApiKey, id: &ScheduleId) -> Result<JobId, ControlError> {
        let schedule = self.get(caller, id)?;
        self.scheduler.run_now(&schedule).await.map_err(|error| match error {
            RunNowError::Open(_) | RunNowError::Deleted(_) | RunNowError::NoEndpoint(_) => {
                ControlError::conflict(error.to_string())
            }
            RunNowError::Refused(error) => ControlError::Submission(error),
        })
    }

    async fn change<T>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), ControlError>,
    ) -> Result<T, ControlError> {
        let changed = self.deployed.change(caller, decide).await?;
        self.scheduler.changed();
        Ok(changed)
    }
}

fn put(schedule: &Schedule) -> Vec<CatalogChange> {
    vec![CatalogChange::Put(CatalogEntry::Schedule(schedule.clone()))]
}

/// The times of a schedule with the fields that are given, in place of or besides those it has.
///
/// # Errors
/// For times that no schedule can have.
fn times(
    given: &ScheduleInput,
    now: TicksDefinition,
    begins_at: Timestamp,
) -> Result<TicksDefinition, ControlError> {
    let (cron, every_ms) = (given.cron.clone(), given.every_ms);
    let time_zone = given.time_zone.clone();
    let times = match (&cron, every_ms, &time_zone) {
        (None, None, None) => now,
        (None, None, Some(_)) => TicksDefinition { time_zone, ..now },
        (Some(_), None, None) => TicksDefinition { cron, every_ms, time_zone: now.time_zone },
        (_, _, _) => TicksDefinition { cron, every_ms, time_zone },
    };
    let ticks = times.resolve(begins_at);
    Ok(ticks.map_err(|error| ControlError::invalid(error.to_string()))?.definition())
}

/// The schedule with the fields that are given.
fn changed(
    view: &View,
    mut schedule: Schedule,
    given: ScheduleInput,
    now: Timestamp,
) -> Result<Schedule, ControlError> {
    let times = times(&given, schedule.times.clone(), now)?;
    if times != schedule.times {
        schedule.times = times;
        schedule.begins_at = now;
    }
    if let Some(name) = given.name {
        check_name("name", &name)?;
        schedule.name = name;
    }
    if let Some(input) = given.input {
        check_input(input.get())
            .map_err(|error| ControlError::invalid(format!("`input` {error}")))?;
        schedule.input = input.get().to_owned();
    }
    if let Some(policy) = given.policy {
        if policy.run_at.is_some() {
            let sentence = "`policy.runAt` has no effect in a schedule; `policy.delay` has";
            return Err(ControlError::invalid(sentence));
        }
        if policy.debounce_ms.is_some() || policy.debounce_max_ms.is_some() {
            let sentence = "`policy.debounceMs` has no effect in a schedule; leave it out";
            return Err(ControlError::invalid(sentence));
        }
        if let Some(priority) = policy.priority {
            number::<u64>("policy.priority", priority, PRIORITY)?;
        }
        schedule.policy = policy;
    }
    if let Some(catch_up) = given.catch_up {
        schedule.catch_up = schedule.catch_up.changed(catch_up)?;
    }
    schedule.overlap = given.overlap.unwrap_or(schedule.overlap);
    if let Some(paused) = given.paused {
        if schedule.paused && !paused {
            schedule.begins_at = now;
        }
        schedule.paused = paused;
    }
    if let Some(endpoint) = given.endpoint_id {
        schedule.endpoint = endpoint;
    }
    let endpoint = endpoint_of(view, &schedule.owner, &schedule.endpoint)?;
    let rule = endpoint.settings.retry;
    let refused = |error: &dyn std::fmt::Display| ControlError::invalid(error.to_string());
    let policy = schedule.policy();
    policy.resolve(Strictness::Refuse, rule, now).map_err(|error| refused(&error))?;
    Tags::with_turn(None, &schedule.turn()).map_err(|error| refused(&error))?;
    policy.resolve_retention(Strictness::Refuse).map_err(|error| refused(&error))?;
    Ok(schedule)
}

/// The endpoint of a schedule of this owner.
fn endpoint_of<'v>(
    view: &'v View,
    owner: &OwnerId,
    id: &EndpointId,
) -> Result<&'v Arc<Endpoint>, ControlError> {
    let endpoint = of_owner::<Endpoint>(view, owner, id)
        .map_err(|error| ControlError::invalid(format!("`endpointId`: {error}")))?;
    match endpoint.kind {
        EndpointType::Queue => Ok(endpoint),
        EndpointType::LoadBalancer => Err(ControlError::invalid(format!(
            "endpoint `{id}` answers HTTP requests and has no jobs; name an endpoint of the type `QUEUE`"
        ))),
    }
}
