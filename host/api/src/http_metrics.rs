//! Counts answers by route and status, and measures the time until the head of each answer.
//!
//! A route is a word of the paths that the router has, not the path of a call: callers cannot add
//! series.
//!
//! **Cost.** Two looks into maps, and three additions to atomic numbers for each call.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::StatusCode;
use gristmill_core::metrics::instruments::{Counter, DurationTotals, Durations};
use hashbrown::HashMap;

/// The paths without a documentation of their own: those of the registry, which its specification
/// describes, of the console, and of handlers of HTTP.
const UNDOCUMENTED: [(&str, &str); 7] = [
    ("/v2", "registry"),
    ("/v2/{name}/blobs", "registry"),
    ("/v2/{name}/manifests", "registry"),
    ("/v2/{name}/tags", "registry"),
    ("/v2/{name}/referrers", "registry"),
    ("/console", "console"),
    ("/http", "http"),
];

/// Stands for all paths without a route.
const OTHER: &str = "other";

/// The classes of statuses.
pub(crate) const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of all routes. Nothing is counted before the routes are known.
#[derive(Debug, Default)]
pub(crate) struct HttpMetrics(OnceLock<Routes>);

#[derive(Debug)]
struct Routes {
    /// The index of the route of each word, for each [`Api`].
    words: HashMap<Api, HashMap<String, usize>>,
    /// The last one is [`OTHER`].
    routes: Vec<Route>,
}

/// The first part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Api {
    Queue,
    Management,
    Neither,
}

#[derive(Debug)]
struct Route {
    name: String,
    statuses: [Counter; STATUSES.len()],
    durations: Durations,
}

/// The values of one route.
#[derive(Debug)]
pub(crate) struct RouteTotals {
    pub(crate) route: String,
    /// Answers by class of status, in the order of [`STATUSES`].
    pub(crate) statuses: [u64; STATUSES.len()],
    pub(crate) durations: DurationTotals,
}

impl HttpMetrics {
    /// Takes the documented paths of the router. Later calls have no effect.
    pub(crate) fn name_routes<'a>(&self, paths: impl Iterator<Item = &'a str>) {
        self.0.get_or_init(|| Routes::new(paths));
    }

    /// The number of the route of a path.
    pub(crate) fn route_of(&self, path: &str) -> usize {
        self.0.get().map_or(0, |routes| routes.of_path(path))
    }

    /// Counts an answer to a call of a route.
    pub(crate) fn record(&self, route: usize, status: StatusCode, took: Duration) {
        let Some(route) = self.0.get().and_then(|routes| routes.routes.get(route)) else { return };
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = route.statuses.get(class) {
            counter.add(1);
        }
        route.durations.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// The values of the routes that have answered a call.
    pub(crate) fn totals(&self) -> Vec<RouteTotals> {
        let routes = self.0.get().into_iter().flat_map(|routes| &routes.routes);
        let totals = routes.map(|Route { name, statuses, durations }| RouteTotals {
            route: name.clone(),
            statuses: statuses.each_ref().map(Counter::get),
            durations: durations.totals(),
        });
        totals.filter(|totals| totals.durations.count() > 0).collect()
    }
}

impl Routes {
    fn new<'a>(documented: impl Iterator<Item = &'a str>) -> Self {
        let mut routes = Self { words: HashMap::new(), routes: Vec::new() };
        for path in documented {
            // `/openapi.json` is `openapi`.
            let (_, word) = place(path);
            routes.add(path, word.split('.').next().unwrap_or(word));
        }
        UNDOCUMENTED.iter().for_each(|(path, name)| routes.add(path, name));
        routes.index_of(OTHER);
        routes
    }

    fn add(&mut self, path: &str, name: &str) {
        let ((api, word), index) = (place(path), self.index_of(name));
        self.words.entry(api).or_default().insert(word.to_owned(), index);
    }

    /// The index of a route, which is added if it is new.
    fn index_of(&mut self, name: &str) -> usize {
        let known = self.routes.iter().position(|route| route.name == name);
        known.unwrap_or_else(|| {
            let (statuses, durations) = Default::default();
            self.routes.push(Route { name: name.to_owned(), statuses, durations });
            self.routes.len() - 1
        })
    }

    fn of_path(&self, path: &str) -> usize {
        let (api, word) = place(path);
        let known = self.words.get(&api).and_then(|words| words.get(word));
        known.copied().unwrap_or(self.routes.len() - 1)
    }
}

/// The word of a path that its route is named by: the operation on an endpoint, the kind of an
/// object of the management API, or the first part. Without such a part it is empty.
fn place(path: &str) -> (Api, &str) {
    let path = path.strip_prefix("/sdk").unwrap_or(path);
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let (api, word) = match parts.next() {
        Some("v2") => (Api::Queue, parts.nth(1)),
        Some("v1") => (Api::Management, parts.next()),
        first => (Api::Neither, first),
    };
    (api, word.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> HttpMetrics {
        let paths = [
            "/openapi.json",
            "/v1/docs",
            "/v1/endpoints",
            "/v1/endpoints/{id}/logs",
            "/v1/openapi.json",
            "/v2/{endpoint}/run",
            "/v2/{endpoint}/status/{job}",
            "/sdk/v2/{endpoint}/run",
        ];
        let metrics = HttpMetrics::default();
        metrics.name_routes(paths.into_iter());
        metrics
    }

    #[test]
    fn each_path_has_a_route() {
        for (path, route) in [
            ("/v2/e/run", "run"),
            ("/sdk/v2/e/run", "run"),
            ("/v2/e/status/8a7b", "status"),
            ("/v2/e/unknown", "other"),
            ("/v2/e/endpoints", "other"),
            ("/v1/run", "other"),
            ("/run", "other"),
            ("/v2/run", "registry"),
            ("/v2", "registry"),
            ("/v2/", "registry"),
            ("/v2/name/manifests/latest", "registry"),
            ("/v1/endpoints", "endpoints"),
            ("/v1/endpoints/e/logs", "endpoints"),
            ("/v1", "other"),
            ("/console", "console"),
            ("/http", "http"),
            ("/console/assets/a.js", "console"),
            ("/openapi.json", "openapi"),
            ("/v1/openapi.json", "openapi"),
            ("/v1/docs/index.html", "docs"),
            ("/v1/console", "other"),
            ("/", "other"),
            ("/sdk", "other"),
            ("//v2//e//run", "run"),
        ] {
            let metrics = metrics();
            metrics.record(metrics.route_of(path), StatusCode::OK, Duration::ZERO);
            let totals = metrics.totals();
            assert_eq!((totals.len(), &*totals[0].route), (1, route), "{path}");
        }
    }

    #[test]
    fn answers_are_counted_by_the_class_of_their_status() {
        let metrics = metrics();
        let run = metrics.route_of("/v2/e/run");
        for status in [200, 204, 404, 429, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            metrics.record(run, status, Duration::from_micros(100));
        }
        // A status without a class is measured, and does not fail.
        metrics.record(run, StatusCode::from_u16(999).unwrap(), Duration::ZERO);
        let totals = metrics.totals();
        assert_eq!(totals.len(), 1, "{totals:?}");
        assert_eq!((&*totals[0].route, totals[0].statuses), ("run", [0, 2, 0, 2, 1]));
        assert_eq!((totals[0].durations.count(), totals[0].durations.sum_us), (6, 500));
    }
}
