//! Counts answers by route and status, and measures the time until the head of each answer.
//!
//! A route is a word of the path, not the path: callers cannot add series.
//!
//! **Cost.** A look at the path, and three additions to atomic numbers for each call.

use std::array;
use std::time::Duration;

use axum::http::StatusCode;
use gristmill_core::metrics::instruments::{Counter, DurationTotals, Durations};

/// The operations of the queue API.
const QUEUE: &[&str] = &[
    "run",
    "runsync",
    "status",
    "status-sync",
    "stream",
    "cancel",
    "retry",
    "purge-queue",
    "requests",
    "timeline",
    "health",
    "openai",
];

/// The resources of the management API: the first words of its paths.
const MANAGEMENT: &[&str] = &[
    "templates",
    "jobs",
    "job-actions",
    "endpoints",
    "handlers",
    "keys",
    "networkvolumes",
    "pods",
    "containerregistryauth",
    "billing",
    "backup",
    "secrets",
    "events",
    "series",
    "system",
    "cluster",
];

/// The other routes. The last one stands for all paths without a name of their own.
const REST: &[&str] =
    &["registry", "metrics", "livez", "readyz", "openapi", "docs", "console", "other"];

const COUNT: usize = QUEUE.len() + MANAGEMENT.len() + REST.len();

const OTHER: usize = COUNT - 1;

/// The names of all routes. The position of a name is the route's number.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    [QUEUE, MANAGEMENT, REST].into_iter().flatten().copied()
}

/// The classes of statuses.
pub(crate) const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of all routes.
#[derive(Debug)]
pub(crate) struct HttpMetrics([Route; COUNT]);

#[derive(Debug, Default)]
struct Route {
    statuses: [Counter; STATUSES.len()],
    durations: Durations,
}

/// The values of one route.
#[derive(Debug)]
pub(crate) struct RouteTotals {
    pub(crate) route: &'static str,
    /// Answers by class of status, in the order of [`STATUSES`].
    pub(crate) statuses: [u64; STATUSES.len()],
    pub(crate) durations: DurationTotals,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self(array::from_fn(|_| Route::default()))
    }
}

impl HttpMetrics {
    /// Counts an answer to a call of a path.
    pub(crate) fn record(&self, route: usize, status: StatusCode, took: Duration) {
        let Some(route) = self.0.get(route) else { return };
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = route.statuses.get(class) {
            counter.add(1);
        }
        route.durations.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// The values of the routes that have answered a call.
    pub(crate) fn totals(&self) -> Vec<RouteTotals> {
        let routes = self.0.iter().zip(names()).map(|(counters, route)| RouteTotals {
            route,
            statuses: counters.statuses.each_ref().map(Counter::get),
            durations: counters.durations.totals(),
        });
        routes.filter(|totals| totals.durations.count() > 0).collect()
    }
}

/// The number of a path's route.
pub(crate) fn route_of(path: &str) -> usize {
    let path = path.strip_prefix("/sdk").unwrap_or(path).as_bytes();
    // As bytes: a search for a character in a text of a few letters takes longer than a look at each of them.
    let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let is_registry =
        |part: &[u8]| matches!(part, b"blobs" | b"manifests" | b"tags" | b"referrers");
    let of_management = |name| Some(QUEUE.len() + position(MANAGEMENT, name)?);
    let of_rest = |name| Some(QUEUE.len() + MANAGEMENT.len() + position(REST, name)?);
    let of_description = |name: &[u8]| match name {
        b"openapi.json" => of_rest(b"openapi"),
        b"docs" => of_rest(b"docs"),
        _ => None,
    };
    let found = match parts.next() {
        Some(b"v2") => match (parts.next(), parts.next()) {
            (None, _) => of_rest(b"registry"),
            (Some(_), None) => None,
            (_, Some(part)) => position(QUEUE, part).or_else(|| {
                let is_registry = is_registry(part) || parts.any(is_registry);
                of_rest(b"registry").filter(|_| is_registry)
            }),
        },
        Some(b"v1") => {
            let part = parts.next().unwrap_or_default();
            of_management(part).or_else(|| of_description(part))
        }
        Some(part) => of_description(part).or_else(|| of_rest(part)),
        None => None,
    };
    found.unwrap_or(OTHER)
}

fn position(names: &[&str], name: &[u8]) -> Option<usize> {
    names.iter().position(|it| it.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_a_route() {
        for (path, route) in [
            ("/v2/e/run", "run"),
            ("/sdk/v2/e/runsync", "runsync"),
            ("/v2/e/status/8a7b", "status"),
            ("/v2/e/openai/v1/chat/completions", "openai"),
            ("/v2/e/unknown", "other"),
            ("/v2/e/templates", "other"),
            ("/v1/run", "other"),
            ("/v1/job-actions/a", "job-actions"),
            ("/run", "other"),
            ("/v2/e", "other"),
            ("/v2", "registry"),
            ("/v2/", "registry"),
            ("/v2/name/manifests/latest", "registry"),
            ("/v2/a/b/c/blobs/uploads", "registry"),
            ("/v1/endpoints", "endpoints"),
            ("/v1/endpoints/e/logs", "endpoints"),
            ("/v1/keys/k", "keys"),
            ("/v1/events", "events"),
            ("/v1/system", "system"),
            ("/v1/cluster", "cluster"),
            ("/v1/series", "series"),
            ("/v1", "other"),
            ("/console", "console"),
            ("/console/assets/a.js", "console"),
            ("/metrics", "metrics"),
            ("/openapi.json", "openapi"),
            ("/v1/openapi.json", "openapi"),
            ("/v1/docs", "docs"),
            ("/v1/docs/index.html", "docs"),
            ("/v1/console", "other"),
            ("/", "other"),
            ("/other", "other"),
            ("/sdk", "other"),
            ("//v2//e//run", "run"),
        ] {
            assert_eq!(names().nth(route_of(path)), Some(route), "{path}");
        }
    }

    #[test]
    fn answers_are_counted_by_the_class_of_their_status() {
        let metrics = HttpMetrics::default();
        let run = route_of("/v2/e/run");
        for status in [200, 204, 404, 429, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            metrics.record(run, status, Duration::from_micros(100));
        }
        // A status without a class is measured, and does not fail.
        metrics.record(run, StatusCode::from_u16(999).unwrap(), Duration::ZERO);
        let totals = metrics.totals();
        assert_eq!(totals.len(), 1, "{totals:?}");
        assert_eq!((totals[0].route, totals[0].statuses), ("run", [0, 2, 0, 2, 1]));
        assert_eq!((totals[0].durations.count(), totals[0].durations.sum_us), (6, 500));
    }
}
