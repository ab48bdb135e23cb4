//! The calls about the catalog, schedules, usage, webhooks, the key of stored secrets, and backups.

use std::ops::Range;

use async_trait::async_trait;
use gristmill_core::access::secrets::{RotateError, Rotated, SecretsStore};
use gristmill_core::backup::{BackupError, BackupFile, BackupSource};
use gristmill_core::billing::usage::{Hour, UsageQuery, UsageRow, UsageStore, UsageSum};
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogStore};
use gristmill_core::id::{EndpointId, JobId, OwnerId, TemplateId};
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber, ScheduleStore};
use gristmill_core::job::payload::Json;
use gristmill_core::store::{JobStore as _, StoreError};
use gristmill_core::webhook::delivery::{
    AfterAttempt, Delivery, DeliveryId, DeliveryOutcome, DeliveryStore, DueDeliveries, OwnerOf,
};
use tokio::sync::oneshot;

use super::Store;
use crate::shared::{answer, damaged};
use crate::state::outbox::Moment;
use crate::state::requests::DbRequest;
use crate::tables::catalog;

#[async_trait]
impl CatalogStore for Store {
    async fn load_catalog(&self) -> Result<Vec<CatalogEntry>, StoreError> {
        let bodies = self.shared.ask(|answer| DbRequest::Catalog { answer }).await?;
        let parse = |body: &String| catalog::parse(body);
        Ok(bodies
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .expect("the catalog was checked when the store was opened"))
    }

    async fn write_catalog(&self, changes: Vec<CatalogChange>) -> Result<(), StoreError> {
        let rows: Vec<_> = changes.into_iter().map(catalog::row).collect();
        // Changes that were decided earlier must be on disk earlier.
        self.flush().await?;
        self.shared.ask(|answer| DbRequest::WriteCatalog(rows, answer)).await?
    }

    fn forget_endpoints(&self, deleted: &[EndpointId]) {
        if deleted.is_empty() {
            return;
        }
        // When the store is closed, the next start deletes the jobs of endpoints that the catalog
        // does not have.
        let forgotten = self
            .shared
            .change(|index, _| deleted.iter().map(|id| index.forget(id)).collect::<Vec<_>>());
        // It deletes the archived jobs.
        self.shared.wake_medium();
        drop(forgotten);
    }
}

#[async_trait]
impl ScheduleStore for Store {
    fn schedule_notes(&self) -> Result<Vec<ScheduleNote>, StoreError> {
        self.shared.read(|index, _| index.schedule_notes())
    }

    async fn note_schedule(&self, note: ScheduleNote) -> Result<(), StoreError> {
        self.change_notes(vec![(note.schedule, Some(note.text))]).await
    }

    async fn forget_schedules(&self, schedules: Vec<ScheduleNumber>) -> Result<(), StoreError> {
        self.change_notes(schedules.into_iter().map(|schedule| (schedule, None)).collect()).await
    }
}

impl Store {
    async fn change_notes(
        &self,
        notes: Vec<(ScheduleNumber, Option<String>)>,
    ) -> Result<(), StoreError> {
        let (ack, on_disk) = oneshot::channel();
        self.shared.change(|index, _| index.note_schedules(notes, ack))?;
        answer(on_disk).await
    }
}

#[async_trait]
impl UsageStore for Store {
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        let (query, found) = (query.clone(), Vec::new());
        self.shared.ask(|answer| DbRequest::Usage { query, found, answer }).await?
    }

    fn newest_of_template(
        &self,
        template: &TemplateId,
        hours: &Range<Hour>,
    ) -> Vec<(OwnerId, UsageSum)> {
        let found = self.shared.read(|index, _| index.meters().newest.of(template, hours));
        found.unwrap_or_default()
    }
}

#[async_trait]
impl DeliveryStore for Store {
    async fn begin_attempts(
        &self,
        ended: &[DeliveryId],
        owner_of: OwnerOf<'_>,
    ) -> Result<DueDeliveries, StoreError> {
        let now = Moment::of(&*self.shared.clock);
        self.shared.change_live(|index, _| index.outbox_mut().begin(ended, owner_of, now))
    }

    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Json>, StoreError> {
        let found = self.shared.read(|index, _| index.outbox().body(id))?;
        let Some(location) = found else { return Ok(None) };
        if let Some(location) = location
            && let Some(bytes) = self.shared.read_at(location).await?
        {
            return Ok(Some(Json::from_stored(bytes)));
        }
        self.shared.ask(|answer| DbRequest::DeliveryBody { id, answer }).await?.map_err(damaged)
    }

    async fn record_attempt(
        &self,
        id: DeliveryId,
        report: DeliveryOutcome,
        next: AfterAttempt,
    ) -> Result<(), StoreError> {
        let mut reserved =
            self.shared.reserve(report.error.as_ref().map_or(0, String::len)).await?;
        let (ack, on_disk) = oneshot::channel();
        self.shared.change(|index, now| {
            let after = |delivery: &Delivery| delivery.after(report, next, now);
            if index.record_attempt(id, after, reserved.take_room(), ack) {
                reserved.hand_over();
            }
        })?;
        answer(on_disk).await
    }

    async fn deliveries(
        &self,
        endpoint: &EndpointId,
        count_max: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.shared.read(|index, _| {
            let key = index.endpoint(endpoint).map(|(key, _)| key);
            key.map(|key| index.outbox().list(&key, count_max)).unwrap_or_default()
        })
    }

    async fn deliveries_of(
        &self,
        endpoint: &EndpointId,
        job: JobId,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.shared.read(|index, _| {
            let key = index.endpoint(endpoint).map(|(key, _)| key);
            key.map(|key| index.outbox().of_job(&key, job)).unwrap_or_default()
        })
    }
}

#[async_trait]
impl SecretsStore for Store {
    async fn rotate_secrets_key(&self) -> Result<Rotated, RotateError> {
        let rotated = self.shared.ask(|answer| DbRequest::Rotate { answer }).await;
        rotated.map_err(|_| RotateError::Closed)?
    }
}

#[async_trait]
impl BackupSource for Store {
    async fn backup(&self, with_secrets_key: bool) -> Result<Vec<BackupFile>, BackupError> {
        let files = self.shared.ask(|answer| DbRequest::Backup { with_secrets_key, answer }).await;
        files.map_err(|_| BackupError::Closed)?
    }
}
