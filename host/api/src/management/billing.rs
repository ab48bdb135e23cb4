//! `/v1/billing/…`: usage and cost, by time and by endpoint, template or owner.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use axum::extract::RawQuery;
use gristmill_control::{BucketSize, Buckets as _, Grouping, Record, ReportQuery};
use gristmill_core::billing::price::Prices;
use gristmill_core::billing::usage::{Hour, UsageFilter, UsageSum};
use gristmill_core::deploy::template::TemplateFilter;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::BillingRecord;

use super::page::{Page, Paged};
use super::volumes::DATA_CENTER;
use crate::answer::amount::amount;
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339_shortest;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::{
    BillingPeriod, BillingQuery, PageOfList, PodBillingQuery, VolumeBillingQuery,
};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::request::query::Query;
use crate::request::time::time;

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
    params(BillingPeriod, BillingQuery, PageOfList),
    responses((status = 200, description = "By time, then by id", body = Vec<BillingRecord>), Mistaken),
)]
pub(crate) async fn endpoints(
    Caller { state, key, .. }: Caller<Manage>,
    page: Page,
    RawQuery(query): RawQuery,
) -> Result<Paged, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let mut report = report(query, state.jobs.now())?;
    // The usage of jobs is that of this host's processor.
    if !query.permits("dataCenterId", Some(DATA_CENTER)) || !query.permits("gpuTypeId", None) {
        return Ok(Paged::empty());
    }
    if let Some(image) = query.text("imageName") {
        let all = TemplateFilter { endpoint_bound: true, public: true, platform: true };
        let templates = state.control.templates.list(&key, all);
        let with_image = templates.iter().filter(|template| template.image == image);
        report.templates = Some(with_image.map(|template| template.id.clone()).collect());
    }
    let (billing, grouping) = (&state.control.billing, report.grouping);
    let records = billing.report(&key, report, page.after(), page.count_max()).await?;
    let prices = *billing.prices();
    let select = move |page: Page| {
        let document = |record| billing_record(record, grouping, &prices);
        page.of(records, |record| record.cursor_position(), document)
    };
    page.make(&state, &key, select).await
}

/// The bill for Pods: an empty list, since there are none.
#[utoipa::path(
    get, path = "/billing/pods", operation_id = "ListPodBilling", tag = tag::BILLING,
    params(BillingPeriod, PodBillingQuery, PageOfList),
    responses((status = 200, description = "Always empty", body = Vec<BillingRecord>), Mistaken),
)]
pub(crate) async fn pods(
    Caller { state, .. }: Caller<Manage>,
    _: Page,
    RawQuery(query): RawQuery,
) -> Result<Paged, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    period(query, state.jobs.now())?;
    query.one_of("grouping", Grouping::OF_PODS, Grouping::field)?;
    Ok(Paged::empty())
}

/// The bill for network volumes: an empty list, since their size has no price.
#[utoipa::path(
    get, path = "/billing/networkvolumes", operation_id = "ListNetworkVolumeBilling", tag = tag::BILLING,
    params(BillingPeriod, VolumeBillingQuery, PageOfList),
    responses((status = 200, description = "Always empty", body = Vec<BillingRecord>), Mistaken),
)]
pub(crate) async fn network_volumes(
    Caller { state, .. }: Caller<Manage>,
    _: Page,
    RawQuery(query): RawQuery,
) -> Result<Paged, ApiError> {
    period(Query(query.as_deref().unwrap_or_default()), state.jobs.now())?;
    Ok(Paged::empty())
}

fn report(query: Query<'_>, now: Timestamp) -> Result<ReportQuery, ApiError> {
    let (size, hours) = period(query, now)?;
    let grouping = query.one_of("grouping", Grouping::ALL, Grouping::field)?;
    let filter = UsageFilter {
        endpoint: id(query, "endpointId")?,
        template: id(query, "templateId")?,
        owner: id(query, "ownerId")?,
    };
    let grouping = grouping.unwrap_or(Grouping::Endpoint);
    Ok(ReportQuery { hours, size, grouping, filter, templates: None })
}

/// The size of the buckets, and the hours that count.
fn period(query: Query<'_>, now: Timestamp) -> Result<(BucketSize, Range<Hour>), ApiError> {
    let size = query.one_of("bucketSize", BucketSize::ALL, BucketSize::as_str)?;
    let size = size.unwrap_or(BucketSize::Day);
    let hours = hours(query, now)?;
    let count = size.count(size.start(hours.start), hours.end, BUCKETS_MAX);
    if count > BUCKETS_MAX {
        return Err(ApiError::bad_request(format!(
            "query `startTime` and `endTime` are more than {BUCKETS_MAX} buckets apart; take a \
             larger `bucketSize` than {}",
            size.as_str()
        )));
    }
    Ok((size, hours))
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

fn id<T: FromStr<Err: Display>>(query: Query<'_>, name: &str) -> Result<Option<T>, ApiError> {
    let Some(text) = query.text(name) else { return Ok(None) };
    let wrong = |error| ApiError::bad_request(format!("query `{name}`: {error}"));
    text.parse().map(Some).map_err(wrong)
}

/// The answer's form of a record.
fn billing_record(record: Record, grouping: Grouping, prices: &Prices) -> BillingRecord {
    let Record { bucket, id, sum } = record;
    let UsageSum { jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, memory_mib_ms, .. } = sum;
    let id_of = |its: Grouping| (its == grouping).then(|| id.clone());
    BillingRecord {
        time: rfc3339_shortest(bucket.start()),
        endpoint_id: id_of(Grouping::Endpoint),
        template_id: id_of(Grouping::Template),
        owner_id: id_of(Grouping::Owner),
        amount: amount(prices.amount(&sum)),
        time_billed_ms: wall_ms,
        jobs,
        cpu_ms: cpu_us / 1_000,
        fuel,
        memory_bytes_peak,
        memory_mib_ms,
        bytes_in: sum.bytes_in,
        bytes_out: sum.bytes_out,
        chunks: sum.chunks,
    }
}
