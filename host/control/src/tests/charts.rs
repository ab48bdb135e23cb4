//! Charts: they have the jobs of the endpoint that exists, survive a restart, and are bounded.

use gristmill_core::metrics::endpoint::{AttemptValues, FinishedAs, SubmittedBy};

use super::*;
use crate::{Chart, ChartsDamaged, Window};

const STEP_MS: u64 = 10_000;

async fn with_endpoint(bench: &Bench) -> Arc<ApiKey> {
    let key = bench.key("a", Scope::Manage).await;
    bench.template("a", "t", "i", false).await;
    bench.endpoint(&key, "e", "t").await.unwrap();
    key
}

impl Bench {
    /// Takes a sample at the end of a step in which so many jobs were completed.
    async fn sample_after(&self, jobs: u64) {
        let incarnation = self.view().deployments[&endpoint_id("e")].incarnation.clone();
        for _ in 0..jobs {
            incarnation.metrics().submitted(SubmittedBy::Run);
            incarnation.metrics().started(900);
            incarnation
                .metrics()
                .ended(AttemptValues { run_us: 90_000, ..AttemptValues::default() });
            incarnation.metrics().finished(FinishedAs::Completed);
        }
        self.control.charts.sample().await.unwrap();
        self.clock.advance(STEP_MS);
    }

    fn chart(&self, key: &ApiKey, window: Window) -> Chart {
        self.control.charts.of(key, &endpoint_id("e"), window).unwrap()
    }

    fn submitted(&self, key: &ApiKey) -> Vec<u32> {
        let chart = self.chart(key, Window::Minutes15);
        chart.points.iter().map(|point| point.submitted).collect()
    }
}

#[tokio::test]
async fn a_chart_has_the_jobs_of_each_step() {
    let bench = Bench::new().await;
    let key = with_endpoint(&bench).await;
    bench.sample_after(0).await;
    assert!(bench.submitted(&key).is_empty(), "an endpoint without jobs has no chart");
    let begun = bench.clock_ms();
    for jobs in [3, 0, 5, 0] {
        bench.sample_after(jobs).await;
    }
    bench.sample_after(0).await;
    assert_eq!(bench.submitted(&key), [3, 0, 5, 0]);
    let chart = bench.chart(&key, Window::Minutes15);
    assert_eq!(chart.from_ms, begun);
    let point = chart.points[0];
    assert_eq!((point.completed, point.failed), (3, 0));
    assert!((846..=900).contains(&point.delay.p50), "{point:?}");
    assert!((84_600..=90_000).contains(&point.run.p99), "{point:?}");
    assert_eq!(chart.run, point.run, "the later steps have the same times");
    assert_eq!(chart.points[1].run.p99, 0);
    for window in [Window::Hours6, Window::Days7] {
        let points = bench.chart(&key, window).points;
        let all: u32 = points.iter().map(|point| point.submitted).sum();
        assert_eq!(all, 8, "with the step that has begun: {points:?}");
    }
    let other = bench.key("b", Scope::Manage).await;
    let refused = bench.control.charts.of(&other, &endpoint_id("e"), Window::Days7);
    assert!(matches!(refused, Err(ControlError::NotFound { .. })), "{refused:?}");
    assert_eq!(bench.control.charts.all(&other, Window::Days7), []);
    assert_eq!(bench.control.charts.all(&key, Window::Days7).len(), 1);
}

#[tokio::test]
async fn charts_survive_a_restart_and_belong_to_the_endpoint_that_exists() {
    let bench = Bench::new().await;
    let key = with_endpoint(&bench).await;
    bench.sample_after(3).await;
    bench.sample_after(0).await;
    let bytes = bench.control.charts.to_bytes();
    let bench = bench.restarted().await;
    bench.control.charts.restore(&bytes).unwrap();
    bench.sample_after(4).await;
    bench.sample_after(0).await;
    assert_eq!(bench.submitted(&key), [3, 0, 4]);
    bench.control.endpoints.delete(&key, endpoint_id("e")).await.unwrap();
    bench.endpoint(&key, "e", "t").await.unwrap();
    assert!(bench.submitted(&key).is_empty(), "the next endpoint with this id has no jobs yet");
    bench.control.charts.sample().await.unwrap();
    assert!(bench.control.charts.to_bytes().len() < 100, "nothing of the deleted one is kept");
}

#[tokio::test]
async fn damaged_bytes_are_refused_and_change_nothing() {
    let bench = Bench::new().await;
    let key = with_endpoint(&bench).await;
    bench.sample_after(3).await;
    bench.sample_after(0).await;
    let charts = &bench.control.charts;
    let bytes = charts.to_bytes();
    for length in 0..bytes.len() {
        assert!(charts.restore(&bytes[..length]).is_err(), "{length} bytes");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(charts.restore(&changed).is_err(), "byte {at}");
    }
    assert_eq!(charts.restore(b""), Err(ChartsDamaged::Unknown));
    assert_eq!(charts.restore(&[&bytes[..], b"x"].concat()), Err(ChartsDamaged::Changed));
    assert_eq!(bench.submitted(&key), [3]);
    charts.restore(&bytes).unwrap();
    assert_eq!(bench.submitted(&key), [3]);
}

#[tokio::test]
async fn a_clock_that_jumps_leaves_the_bounds() {
    let bench = Bench::new().await;
    let key = with_endpoint(&bench).await;
    for jump_ms in [365 * 86_400_000, 3_600_000, -7_200_000, 86_400_000, -364 * 86_400_000] {
        bench.clock.jump(jump_ms);
        bench.sample_after(1).await;
        bench.sample_after(1).await;
        for window in Window::ALL {
            let points = bench.chart(&key, window).points;
            assert!(!points.is_empty() && points.len() <= window.steps() + 1, "{window:?}");
        }
    }
}
