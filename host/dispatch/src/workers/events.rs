//! Events of an endpoint: the thread that brings an event decides about it, and carries out the
//! actions. The timer of the endpoint brings the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gristmill_core::deploy::endpoint::{Deployment, Scaler};
use gristmill_core::time::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use super::state::{Event, Name, Next, Step, Timer, Times, View};
use super::{EndpointWorkers, Left, Starter, task};
use crate::shared::Shared;

impl EndpointWorkers {
    /// Decides about an event and carries out the actions. `now` is the present deployment.
    pub(crate) fn apply(
        self: &Arc<Self>,
        starter: &Starter,
        now: &Deployment,
        event: Event,
    ) -> Next {
        let view = view(&starter.shared, now);
        let actions = self.state.lock().decide(event, &view, || new_name(&starter.shared));
        for worker in actions.start {
            let task = task::run(starter.clone(), self.clone(), worker);
            starter.tasks.spawn_on(task, &starter.guests);
        }
        if actions.wakes {
            self.changed.notify_waiters();
        }
        match actions.timer {
            Timer::Unchanged => {}
            Timer::Start => drop(starter.guests.spawn(time(starter.clone(), self.clone()))),
            Timer::Wake => self.earlier.notify_one(),
        }
        if actions.is_news {
            let (endpoint, reason) = (&self.endpoint, self.fault().unwrap_or_default());
            warn!(endpoint.id = %endpoint, "endpoint `{endpoint}` cannot run its component: {reason}");
        }
        actions.next
    }

    /// A worker goes on with a job that was claimed before this host was active.
    pub(crate) fn go_on(self: &Arc<Self>, starter: &Starter, left: Left) {
        let view = view(&starter.shared, &left.deployment);
        let worker = self.state.lock().go_on(new_name(&starter.shared), &view);
        let task = task::go_on(starter.clone(), self.clone(), worker, left);
        starter.tasks.spawn_on(task, &starter.guests);
    }

    /// A task has ended without a decision, perhaps with its runtime: then it must start no other
    /// one.
    pub(super) fn lose(self: &Arc<Self>, starter: &Starter, number: u64) {
        if let Some(now) = starter.shared.catalog.deployment(&self.endpoint) {
            self.apply(starter, &now, Event::Worker(number, Step::IsLost));
        }
    }
}

/// Brings ticks until there is nothing to wait for. There is one such task for an endpoint at a
/// time, and none without idle workers, faults and jobs that wait for their scaler.
async fn time(starter: Starter, workers: Arc<EndpointWorkers>) {
    let shared = &starter.shared;
    loop {
        let Some(now) = workers.deployment(shared) else { return };
        let armed = workers.state.lock().arm(&view(shared, &now));
        let Some(Times { at, look_at }) = armed else { return };
        let pause = async {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let look = async {
            match look_at {
                Some(look_at) => shared.clock.sleep_until_elapsed(look_at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pause => {}
            () = look => {}
            () = workers.earlier.notified() => continue,
        }
        let Some(now) = workers.deployment(shared) else { return };
        workers.apply(&starter, &now, Event::Tick);
    }
}

fn view(shared: &Shared, deployment: &Deployment) -> View {
    let scaling = deployment.endpoint.scaling().in_effect();
    let (wall, elapsed) = match scaling.scaler {
        Scaler::QueueDelay(_) => (shared.clock.now(), shared.clock.elapsed()),
        Scaler::RequestCount(_) => (Timestamp::from_millis(0), Duration::ZERO),
    };
    let version = deployment.endpoint.version;
    View { now: Instant::now(), wall, elapsed, scaling, version }
}

/// A number that is unique in this process, and one that makes the name unique among processes,
/// almost surely.
fn new_name(shared: &Shared) -> Name {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    Name { number, random: rand::random(), started_at: shared.clock.now() }
}
