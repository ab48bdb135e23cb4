//! `/v1/series` and `/v1/endpoints/{id}/series`: what endpoints did in a past window, for charts.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::RawQuery;
use axum::response::{IntoResponse as _, Response};
use gristmill_control::{Chart, MostWorkers, Point, Quantiles, Window};
use gristmill_core::id::EndpointId;
use gristmill_wire::management::{
    EndpointSeries, SeriesList, SeriesPoint, SeriesQuantiles, SeriesWorkers, ShortSeries,
};

use super::input::Named;
use crate::answer::error::ApiError;
use crate::identity::caller::{Caller, Read};
use crate::openapi::parameters::SeriesWindow;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query::Query;

/// The values of an endpoint in the last 15 minutes, 6 hours or 7 days.
///
/// The steps have 10 seconds, 5 minutes or 2 hours; in the two longer windows the last point is the
/// step that has begun. At most 1,000 endpoints have points: beyond that, a busy endpoint takes the
/// place of one that had no job for 15 minutes. The points survive a restart; a crash loses those
/// of the last 5 minutes.
#[utoipa::path(
    get, path = "/endpoints/{id}/series", operation_id = "GetSeries", tag = tag::ENDPOINTS,
    params(SeriesWindow),
    responses((status = 200, description = "By steps of time", body = EndpointSeries), Mistaken, Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Read>,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Json<EndpointSeries>, ApiError> {
    let (id, window) = (named.id::<EndpointId>()?, window(query.as_deref())?);
    let (charts, caller) = (state.control.charts.clone(), key.clone());
    // The list of all charts holds their lock for milliseconds.
    let write = move || {
        let Chart { from_ms, points, .. } = charts.of(&caller, &id, window)?;
        let at = (0..).map(|step: u64| from_ms.saturating_add(step * window.step_ms()));
        let points = at.zip(&points).map(|(at, point)| shown(at, point)).collect();
        let (name, step_ms) = (window.as_str().to_owned(), window.step_ms());
        Ok(Json(EndpointSeries { id, window: name, step_ms, from: from_ms, points }))
    };
    state.pages.write(&key, write).await
}

/// Submitted and failed jobs of all endpoints that the key sees, in the same windows, and how long
/// attempts ran.
#[utoipa::path(
    get, path = "/series", operation_id = "ListSeries", tag = tag::ENDPOINTS,
    params(SeriesWindow),
    responses((status = 200, description = "By endpoint", body = SeriesList), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Read>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let window = window(query.as_deref())?;
    let (charts, now_ms) = (state.control.charts.clone(), state.jobs.now().as_millis());
    let caller = key.clone();
    // A thousand endpoints have 270,000 numbers.
    let write = move || {
        let charts = charts.all(&caller, window);
        Ok(Json(short(window, now_ms, charts)).into_response())
    };
    state.pages.write(&key, write).await
}

fn window(query: Option<&str>) -> Result<Window, ApiError> {
    let Some(text) = Query(query.unwrap_or_default()).text("window") else {
        return Ok(Window::Minutes15);
    };
    let found = Window::ALL.into_iter().find(|window| window.as_str() == text);
    let text: String = text.chars().take(100).collect();
    found.ok_or_else(|| {
        ApiError::bad_request(format!("query `window` must be 15m, 6h or 7d, not `{text}`"))
    })
}

fn shown(at: u64, point: &Point) -> SeriesPoint {
    let Point { submitted, completed, failed, cancelled, timed_out, .. } = *point;
    let Point { waiting, running, workers, delay, run, .. } = *point;
    SeriesPoint {
        at,
        submitted,
        completed,
        failed,
        cancelled,
        timed_out,
        waiting,
        running,
        workers: shown_workers(workers),
        delay_ms: quantiles(delay),
        run_ms: quantiles(run),
    }
}

fn shown_workers(most: MostWorkers) -> SeriesWorkers {
    let MostWorkers { idle, initializing, running, throttled, unhealthy } = most;
    SeriesWorkers { idle, initializing, running, throttled, unhealthy }
}

/// `None` without any duration.
fn quantiles(of: Quantiles) -> Option<SeriesQuantiles> {
    let ms = |us: u64| us as f64 / 1_000.0;
    let Quantiles { p50, p95, p99 } = of;
    (p99 > 0).then(|| SeriesQuantiles { p50: ms(p50), p95: ms(p95), p99: ms(p99) })
}

/// Lists that begin at the same time: steps before a chart begins, and after it ends, are zero.
fn short(window: Window, now_ms: u64, charts: Vec<(EndpointId, Chart)>) -> SeriesList {
    let step_ms = window.step_ms();
    let from = charts.iter().map(|(_, chart)| chart.from_ms).min().unwrap_or(now_ms);
    let lists = charts.into_iter().map(|(id, Chart { from_ms, points, run })| {
        let before = usize::try_from((from_ms - from) / step_ms).unwrap_or(0);
        let numbers = |of: fn(&Point) -> u32| {
            std::iter::repeat_n(0, before).chain(points.iter().map(of)).collect::<Vec<_>>()
        };
        let submitted = numbers(|point| point.submitted);
        let failed = numbers(|point| point.failed.saturating_add(point.timed_out));
        let ended = numbers(|point| {
            [point.completed, point.failed, point.timed_out]
                .into_iter()
                .fold(0, u32::saturating_add)
        });
        let Point { waiting, running, .. } = points.last().copied().unwrap_or_default();
        (id, ShortSeries { submitted, failed, ended, waiting, running, run_ms: quantiles(run) })
    });
    let mut endpoints: BTreeMap<_, _> = lists.collect();
    let steps = endpoints.values().map(|list| list.submitted.len()).max().unwrap_or(0);
    for ShortSeries { submitted, failed, ended, .. } in endpoints.values_mut() {
        [submitted, failed, ended].into_iter().for_each(|list| list.resize(steps, 0));
    }
    SeriesList { window: window.as_str().to_owned(), step_ms, from, endpoints }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_charts_begin_and_end_at_the_same_time() {
        let chart = |from_ms, submitted: &[u32]| {
            let point = |number: &u32| Point {
                submitted: *number,
                completed: 2 * *number,
                timed_out: 1,
                ..Point::default()
            };
            let points = submitted.iter().map(point).collect();
            Chart { from_ms, points, run: Quantiles::default() }
        };
        let [a, b] = ["a", "b"].map(|id| id.parse::<EndpointId>().unwrap());
        let charts = vec![(a.clone(), chart(20_000, &[1, 2])), (b.clone(), chart(40_000, &[3]))];
        let list = short(Window::Minutes15, 99, charts);
        assert_eq!((list.from, list.step_ms), (20_000, 10_000));
        assert_eq!(list.endpoints[&a].submitted, [1, 2, 0]);
        assert_eq!(list.endpoints[&b].submitted, [0, 0, 3]);
        assert_eq!(list.endpoints[&b].failed, [0, 0, 1]);
        assert_eq!(list.endpoints[&a].ended, [3, 5, 0], "with those that returned");
        assert_eq!(short(Window::Days7, 99, vec![]).from, 99);
    }

    #[test]
    fn a_list_has_the_times_of_the_whole_window_and_the_jobs_of_the_last_step() {
        let id = "a".parse::<EndpointId>().unwrap();
        let shown = |p50| {
            let run = Quantiles { p50, p95: 2 * p50, p99: 3 * p50 };
            let newest = Quantiles { p50: 7, p95: 7, p99: 7 };
            let points = vec![Point { waiting: 4, run: newest, ..Point::default() }];
            let list =
                short(Window::Minutes15, 99, vec![(id.clone(), Chart { from_ms: 0, points, run })]);
            (list.endpoints[&id].waiting, list.endpoints[&id].run_ms.map(|run| run.p99))
        };
        assert_eq!(shown(4_000), (4, Some(12.0)));
        assert_eq!(shown(0), (4, None));
    }

    #[test]
    fn a_window_has_one_of_three_names() {
        for (query, expected) in [
            (None, Some(Window::Minutes15)),
            (Some("window=15m"), Some(Window::Minutes15)),
            (Some("window=6h"), Some(Window::Hours6)),
            (Some("window=7d"), Some(Window::Days7)),
            (Some("window="), None),
            (Some("window=1h"), None),
        ] {
            assert_eq!(window(query).ok(), expected, "{query:?}");
        }
    }
}
