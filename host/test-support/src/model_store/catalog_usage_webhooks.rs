//! The catalog, the schedules, the usage and the pending webhooks of a [`ModelStore`].

use std::ops::Range;

use async_trait::async_trait;
use gristmill_core::billing::usage::{Hour, UsageQuery, UsageRow, UsageStore, UsageSum};
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogStore};
use gristmill_core::id::{EndpointId, JobId, OwnerId, TemplateId};
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber, ScheduleStore};
use gristmill_core::job::payload::Json;
use gristmill_core::store::StoreError;
use gristmill_core::webhook::delivery::{
    AfterAttempt, Delivery, DeliveryId, DeliveryOutcome, DeliveryStore, DueDeliveries, OwnerOf,
};

use super::ModelStore;

#[async_trait]
impl CatalogStore for ModelStore {
    async fn load_catalog(&self) -> Result<Vec<CatalogEntry>, StoreError> {
        self.read(|state, _| state.catalog.values().cloned().collect())
    }

    async fn write_catalog(&self, changes: Vec<CatalogChange>) -> Result<(), StoreError> {
        self.change(|state, _, _| {
            for change in changes {
                match change {
                    CatalogChange::Put(entry) => {
                        let key = entry.key();
                        state.catalog.insert((key.kind(), key.name()), entry);
                    }
                    CatalogChange::Delete(key) => {
                        state.catalog.remove(&(key.kind(), key.name()));
                    }
                }
            }
        })
    }

    fn forget_endpoints(&self, deleted: &[EndpointId]) {
        // A closed store has no further callers.
        let _ = self.change(|state, now, notifications| {
            deleted.iter().for_each(|id| state.forget_endpoint(id, now, notifications));
        });
    }
}

#[async_trait]
impl ScheduleStore for ModelStore {
    fn schedule_notes(&self) -> Result<Vec<ScheduleNote>, StoreError> {
        self.read(|state, _| {
            let notes = state.schedules.iter();
            notes
                .map(|(schedule, text)| ScheduleNote { schedule: *schedule, text: text.clone() })
                .collect()
        })
    }

    async fn note_schedule(&self, note: ScheduleNote) -> Result<(), StoreError> {
        self.change(|state, _, _| drop(state.schedules.insert(note.schedule, note.text)))
    }

    async fn forget_schedules(&self, schedules: Vec<ScheduleNumber>) -> Result<(), StoreError> {
        self.change(|state, _, _| state.schedules.retain(|it, _| !schedules.contains(it)))
    }
}

#[async_trait]
impl UsageStore for ModelStore {
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.read(|state, now| {
            let first_kept = Hour::of(now).first_kept();
            let kept = state.usage.iter().filter(|(key, _)| key.hour >= first_kept);
            let wanted = kept.filter(|(key, _)| query.matches(key)).take(query.rows_max);
            wanted.map(|(key, sum)| UsageRow { key: key.clone(), sum: *sum }).collect()
        })
    }

    fn newest_of_template(
        &self,
        template: &TemplateId,
        hours: &Range<Hour>,
    ) -> Vec<(OwnerId, UsageSum)> {
        let found = self.read(|state, _| {
            let of_it = state.usage.iter().filter(|(key, _)| key.template == *template);
            let wanted = of_it.filter(|(key, _)| hours.contains(&key.hour));
            wanted.map(|(key, sum)| (key.owner.clone(), *sum)).collect()
        });
        found.unwrap_or_default()
    }
}

#[async_trait]
impl DeliveryStore for ModelStore {
    async fn begin_attempts(
        &self,
        ended: &[DeliveryId],
        owner_of: OwnerOf<'_>,
    ) -> Result<DueDeliveries, StoreError> {
        self.change(|state, _, _| state.outbox.begin(ended, owner_of, &*self.clock))
    }

    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Json>, StoreError> {
        self.read(|state, _| state.outbox.body(id))
    }

    async fn record_attempt(
        &self,
        id: DeliveryId,
        report: DeliveryOutcome,
        next: AfterAttempt,
    ) -> Result<(), StoreError> {
        self.change(|state, now, _| {
            let Some(delivery) = state.outbox.get(id) else { return };
            let after = delivery.after(report, next, now);
            state.outbox.replace(after);
        })
    }

    async fn deliveries(
        &self,
        endpoint: &EndpointId,
        count_max: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state, _| state.outbox.list(endpoint, count_max))
    }

    async fn deliveries_of(
        &self,
        endpoint: &EndpointId,
        job: JobId,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state, _| state.outbox.of_job(endpoint, job))
    }
}
