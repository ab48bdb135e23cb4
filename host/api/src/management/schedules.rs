//! `/v1/schedules`: jobs that the host submits at certain times.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_core::job::state::JobStatus;
use gristmill_core::schedule::record::Schedule;
use gristmill_core::schedule::state::DecidedTick;
use gristmill_wire::management::{self as wire, NewSchedule, ScheduleInput};
use gristmill_wire::queue::Accepted;
use serde_json::value::RawValue;

use super::input::{self, Named};
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken, QueueRefused};
use crate::openapi::tag;
use crate::state::ApiState;

/// One schedule.
#[utoipa::path(
    get, path = "/schedules/{id}", operation_id = "GetSchedule", tag = tag::SCHEDULES,
    responses((status = 200, description = "The schedule", body = wire::Schedule), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<Json<wire::Schedule>, ApiError> {
    let schedule = state.control.schedules.get(&key, &named.id()?)?;
    Ok(Json(document(&state, &schedule)))
}

/// All schedules of the key's owner, by id; with an admin key those of all owners.
#[utoipa::path(
    get, path = "/schedules", operation_id = "ListSchedules", tag = tag::SCHEDULES,
    params(PageOfList),
    responses((status = 200, description = "By id", body = Vec<wire::Schedule>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
) -> Result<Paged, ApiError> {
    let own = state.control.schedules.list(&key);
    let of = state.clone();
    let select = move |page: Page| {
        page.of(own.iter(), |schedule| schedule.id.to_string(), |it| document(&of, it))
    };
    page.make(&state, &key, select).await
}

/// A new schedule. Its first time is the first one after its creation.
#[utoipa::path(
    post, path = "/schedules", operation_id = "CreateSchedule", tag = tag::SCHEDULES,
    request_body = NewSchedule,
    responses((status = 200, description = "The new schedule", body = wire::Schedule), BodyRefused, Missing),
)]
pub(crate) async fn create(
    Caller { state, key, .. }: Caller<Manage>,
    request: Request,
) -> Result<Json<wire::Schedule>, ApiError> {
    let input: ScheduleInput = input::json(&state, &key, request).await?;
    let schedule = state.control.schedules.create(&key, input).await?;
    Ok(Json(document(&state, &schedule)))
}

/// Changes the given fields. Other times, and the end of a pause, count from now on.
#[utoipa::path(
    patch, path = "/schedules/{id}", operation_id = "UpdateSchedule", tag = tag::SCHEDULES,
    request_body = ScheduleInput,
    responses((status = 200, description = "The changed schedule", body = wire::Schedule), BodyRefused, Missing),
)]
pub(crate) async fn update(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    request: Request,
) -> Result<Json<wire::Schedule>, ApiError> {
    let input: ScheduleInput = input::json(&state, &key, request).await?;
    named.check_kept(input.id.as_ref().map(|id| id.as_str()))?;
    let schedule = state.control.schedules.update(&key, &named.id()?, input).await?;
    Ok(Json(document(&state, &schedule)))
}

/// Deletes a schedule. Its jobs stay.
#[utoipa::path(
    delete, path = "/schedules/{id}", operation_id = "DeleteSchedule", tag = tag::SCHEDULES,
    responses((status = 204, description = "Deleted"), Mistaken, Missing),
)]
pub(crate) async fn delete(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<StatusCode, ApiError> {
    state.control.schedules.delete(&key, &named.id()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Submits a job of the schedule now, besides its times. While an earlier job of the schedule has
/// not ended, the call is refused (`conflict`), unless `overlap` is `cancel`.
#[utoipa::path(
    post, path = "/schedules/{id}/run", operation_id = "RunSchedule", tag = tag::SCHEDULES,
    responses((status = 200, description = "The job is on stable storage", body = Accepted), QueueRefused, Missing),
)]
pub(crate) async fn run(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<Json<Accepted>, ApiError> {
    let job = state.control.schedules.run_now(&key, &named.id()?).await?;
    Ok(Json(Accepted { id: job.to_string(), status: JobStatus::InQueue }))
}

/// The answer's form of a schedule.
fn document(state: &ApiState, schedule: &Schedule) -> wire::Schedule {
    let decided = state.control.schedules.state(schedule);
    let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap_or_default();
    wire::Schedule {
        id: schedule.id.clone(),
        user_id: schedule.owner.clone(),
        name: schedule.name.clone(),
        endpoint_id: schedule.endpoint.clone(),
        cron: schedule.times.cron.clone(),
        every_ms: schedule.times.every_ms,
        time_zone: schedule.times.time_zone.clone(),
        input: raw(&schedule.input),
        policy: schedule.policy.clone(),
        overlap: schedule.overlap,
        catch_up: schedule.catch_up,
        paused: schedule.paused,
        created_at: rfc3339(schedule.created_at),
        next: state.control.schedules.next(schedule, &decided).into_iter().map(rfc3339).collect(),
        jobs: decided.jobs,
        skipped: decided.skipped,
        missed: decided.missed,
        ticks: decided.last.iter().rev().map(tick).collect(),
    }
}

fn tick(DecidedTick { at, outcome, job, reason }: &DecidedTick) -> wire::Tick {
    wire::Tick {
        at: rfc3339(*at),
        outcome: *outcome,
        endpoint_id: job.as_ref().map(|job| job.endpoint.clone()),
        job_id: job.as_ref().map(|job| job.id.to_string()),
        reason: reason.clone(),
    }
}
