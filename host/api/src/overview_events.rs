//! The events of the topic `overview`, each made once for all streams that need the same one.
//!
//! **Promise.** A stream whose last event was of version *v* gets what has changed since *v*; the
//! first event of a stream has all endpoints. **Bounds.** Only events from the newest version are
//! kept: one for each owner and each version that a stream has seen last, which is the one before
//! for all streams that keep up. A stream that is further behind than deletions are
//! [known](DELETED_VERSIONS) ends, and begins anew when its reader returns. **Cost.** A look at
//! each endpoint of the owner, and the text of those that have changed, once in a second: some 10
//! ms for a first event of 10,000 endpoints. It is made on [the threads for pages](Pages), where
//! owners take turns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use gristmill_control::{DELETED_VERSIONS, LiveValues, OwnerValues};
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_wire::management::{LiveEndpoint, OverviewEvent};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::event_stream::write_event;
use crate::limits::checks::Pages;

/// The events of the newest version.
#[derive(Debug, Default)]
pub(crate) struct OverviewEvents(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    version: u64,
    events: HashMap<Wanted, Arc<OnceCell<Bytes>>>,
}

/// What determines an event, beside the newest values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    /// `None`: the endpoints of all owners.
    owner: Option<OwnerId>,
    /// The version of the last event; 0: this is the first one.
    since: u64,
}

impl OverviewEvents {
    /// The event, as text, for a stream of `key` whose last event was of version `since`, or 0 if
    /// this is its first; empty if nothing has changed. `None`: the stream ends, since it is too
    /// far behind, or the event could not be made.
    pub(crate) async fn event(
        &self,
        pages: &Pages,
        key: &ApiKey,
        values: &Arc<LiveValues>,
        since: u64,
    ) -> Option<Bytes> {
        if since > 0 && values.version.saturating_sub(since) >= DELETED_VERSIONS {
            return None;
        }
        let owner = (!key.is_admin()).then(|| key.owner.clone());
        let wanted = Wanted { owner, since };
        let cell = self.cell(values.version, wanted.clone());
        let make = || {
            let values = values.clone();
            pages.write(key, move || Ok(text(&values, &wanted)))
        };
        cell.get_or_try_init(make).await.ok().cloned()
    }

    /// The place of an event. A stream that is behind its values by some milliseconds makes its
    /// own.
    fn cell(&self, version: u64, wanted: Wanted) -> Arc<OnceCell<Bytes>> {
        let mut made = self.0.lock();
        if version > made.version {
            *made = Made { version, events: HashMap::new() };
        }
        if version < made.version {
            return Arc::default();
        }
        made.events.entry(wanted).or_default().clone()
    }
}

/// The event as text; empty if nothing has changed.
fn text(values: &LiveValues, wanted: &Wanted) -> Bytes {
    let event = difference(values, wanted);
    let mut text = vec![];
    if wanted.since == 0 || !event.endpoints.is_empty() {
        write_event(&mut text, "overview", &event);
    }
    text.into()
}

fn difference(values: &LiveValues, Wanted { owner, since }: &Wanted) -> OverviewEvent {
    let mut endpoints: BTreeMap<EndpointId, Option<LiveEndpoint>> = BTreeMap::new();
    let mut add = |of: &OwnerValues| {
        let deleted = of.deleted.iter().filter(|(_, version)| *since > 0 && *version > since);
        for (id, _) in deleted {
            // Another owner may have an endpoint with this id by now.
            endpoints.entry(id.clone()).or_default();
        }
        let changed = of.endpoints.iter().filter(|(_, value)| value.changed > *since);
        endpoints.extend(changed.map(|(id, value)| (id.clone(), Some(value.values))));
    };
    match owner {
        Some(owner) => values.owners.get(owner).into_iter().for_each(add),
        None => values.owners.values().for_each(&mut add),
    }
    OverviewEvent { at: values.at.as_millis(), endpoints }
}

#[cfg(test)]
#[path = "overview_events_tests.rs"]
mod tests;
