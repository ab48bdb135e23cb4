//! `/v1/billing/…`: usage and cost, by time and by endpoint, template or owner.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use axum::extract::RawQuery;
use gristmill_control::{BucketSize, Buckets as _, Grouping, Report};
use gristmill_core::billing::usage::{Hour, UsageFilter};
use gristmill_core::limits::TIME_CHARS_MAX;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::BillingRecord;

use super::dto;
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{BillingQuery, PageOfList};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::request::query::Query;

/// Most buckets of one report: enough for all stored hours.
pub(crate) const BUCKETS_MAX: u32 = 10_000;

/// Default length of a report, in days before its end.
const DAYS_DEFAULT: u64 = 30;

const MS_PER_DAY: u64 = 86_400_000;

/// Usage and cost, by bucket of time and by endpoint, template or owner.
///
/// A key with the scope `admin` sees all owners, another key only its own. Hours count as a whole:
/// from the hour of `startTime` to the last hour that begins before `endTime`.
#[utoipa::path(
    get, path = "/billing/endpoints", operation_id = "ListEndpointBilling", tag = tag::BILLING,
    params(BillingQuery, PageOfList),
    responses((status = 200, description = "By time, then by id", body = Vec<BillingRecord>), Mistaken),
)]
pub(crate) async fn endpoints(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
    RawQuery(query): RawQuery,
) -> Result<Paged, ApiError> {
    let report = report(Query(query.as_deref().unwrap_or_default()), state.jobs.now())?;
    let (billing, grouping) = (&state.control.billing, report.grouping);
    let records = billing.report(&key, report, page.after(), page.count_max()).await?;
    let prices = *billing.prices();
    let select = move |page: Page| {
        let document = |record| dto::billing_record(record, grouping, &prices);
        page.of(records, |record| record.cursor_position(), document)
    };
    page.make(&state, &key, select).await
}

fn report(query: Query<'_>, now: Timestamp) -> Result<Report, ApiError> {
    let size = one_of(query, "bucketSize", BucketSize::ALL, BucketSize::Day, BucketSize::as_str)?;
    let grouping = one_of(query, "grouping", Grouping::ALL, Grouping::Endpoint, Grouping::field)?;
    let filter = UsageFilter {
        endpoint: id(query, "endpointId")?,
        template: id(query, "templateId")?,
        owner: id(query, "ownerId")?,
    };
    let hours = hours(query, now)?;
    let count = size.count(size.start(hours.start), hours.end, BUCKETS_MAX);
    if count > BUCKETS_MAX {
        return Err(ApiError::bad_request(format!(
            "query `startTime` and `endTime` are more than {BUCKETS_MAX} buckets apart; take a \
             larger `bucketSize` than {}",
            size.as_str()
        )));
    }
    Ok(Report { hours, size, grouping, filter })
}

/// The hours from the hour of `startTime` to the last one before `endTime`.
fn hours(query: Query<'_>, now: Timestamp) -> Result<Range<Hour>, ApiError> {
    let end = time(query, "endTime")?.unwrap_or(now);
    let start = time(query, "startTime")?.unwrap_or_else(|| {
        Timestamp::from_millis(end.as_millis().saturating_sub(DAYS_DEFAULT * MS_PER_DAY))
    });
    if start >= end {
        return Err(ApiError::bad_request(
            "query `startTime` must be before `endTime`, which is now when it is left out",
        ));
    }
    let last = Hour::of(Timestamp::from_millis(end.as_millis().saturating_sub(1)));
    Ok(Hour::of(start)..Hour(last.0.saturating_add(1)))
}

pub(crate) fn time(query: Query<'_>, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let text = query.text(name);
    text.map(|text| parse_time(&format!("query `{name}`"), &text)).transpose()
}

/// The time that a field has in RFC 3339.
pub(crate) fn parse_time(field: &str, text: &str) -> Result<Timestamp, ApiError> {
    let at = Some(text).filter(|text| text.len() <= TIME_CHARS_MAX);
    let at = at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let ms = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    ms.map(Timestamp::from_millis).ok_or_else(|| {
        ApiError::bad_request(format!(
            "{field} must be a time from 1970 on as RFC 3339 writes it, such as \
             `2026-01-31T00:00:00Z`, not `{text:.99}`"
        ))
    })
}

fn id<T: FromStr<Err: Display>>(query: Query<'_>, name: &str) -> Result<Option<T>, ApiError> {
    let Some(text) = query.text(name) else { return Ok(None) };
    let wrong = |error| ApiError::bad_request(format!("query `{name}`: {error}"));
    text.parse().map(Some).map_err(wrong)
}

/// The value with this text, or the default.
fn one_of<T: Copy, const N: usize>(
    query: Query<'_>,
    name: &str,
    values: [T; N],
    default: T,
    text_of: impl Fn(T) -> &'static str,
) -> Result<T, ApiError> {
    let Some(text) = query.text(name) else { return Ok(default) };
    values.into_iter().find(|value| text_of(*value) == text).ok_or_else(|| {
        let all = values.map(text_of).join(", ");
        ApiError::bad_request(format!("query `{name}` must be one of {all}, not `{text}`"))
    })
}
