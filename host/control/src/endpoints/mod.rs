//! Endpoints: handlers with their workers, limits and permissions, their releases, webhooks and
//! logs.

mod patch;
mod rollback;

use std::sync::Arc;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogKey, View};
use gristmill_core::deploy::endpoint::{Deployment, Endpoint, EndpointType};
use gristmill_core::deploy::release::Release;
use gristmill_core::http_requests::{EndedRequest, NewestRequests, ObservedRequest};
use gristmill_core::id::EndpointId;
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::record::JobRecord;
use gristmill_core::jobs::timeline::Timeline;
use gristmill_core::logs::{Follower, LogAnswer, LogQuery, Logs};
use gristmill_core::webhook::delivery::{DELIVERY_LOG_MAX, Delivery, DeliveryStore};
use gristmill_core::workers::Worker;
use gristmill_wire::management::{EndpointInput, Rollback};

use crate::complete::complete;
use crate::deployed::{Deployed, Extent};
use crate::error::ControlError;
use crate::owned::{Listed, find_owned, missing, random_id, taken};

/// The service for endpoints.
#[derive(Debug, Clone)]
pub struct Endpoints {
    deployed: Arc<Deployed>,
    deliveries: Arc<dyn DeliveryStore>,
    logs: Arc<Logs>,
    requests: Arc<NewestRequests>,
}

impl Endpoints {
    pub(crate) fn new(
        deployed: Arc<Deployed>,
        deliveries: Arc<dyn DeliveryStore>,
        logs: Arc<Logs>,
    ) -> Self {
        Self { deployed, deliveries, logs, requests: Arc::default() }
    }

    /// One endpoint.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get(&self, caller: &ApiKey, id: &EndpointId) -> Result<Arc<Endpoint>, ControlError> {
        find_owned::<Endpoint>(&self.deployed.view(), caller, id).cloned()
    }

    /// One endpoint with everything that is needed to run a job.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn get_deployment(
        &self,
        caller: &ApiKey,
        id: &EndpointId,
    ) -> Result<Arc<Deployment>, ControlError> {
        self.deployment(caller, id).ok_or_else(|| missing::<Endpoint>(id))
    }

    /// The endpoints that the caller sees.
    pub fn list(&self, caller: &Arc<ApiKey>) -> Listed<Endpoint> {
        Listed::new(self.deployed.view(), caller)
    }

    /// The endpoints that the caller sees, with everything that is needed to run their jobs.
    pub fn deployments(&self, caller: &ApiKey) -> Vec<Arc<Deployment>> {
        let view = self.deployed.view();
        let seen = view.deployments.values().filter(|it| caller.sees(&it.endpoint.owner));
        seen.cloned().collect()
    }

    /// An endpoint with everything that is needed to run a job, if the caller sees it.
    pub fn deployment(&self, caller: &ApiKey, id: &EndpointId) -> Option<Arc<Deployment>> {
        let deployment = self.deployed.catalog.deployment(id);
        deployment.filter(|found| caller.sees(&found.endpoint.owner))
    }

    /// An endpoint of HTTP whose settings concern callers without a key: it is public, or pages of
    /// other origins may ask for it.
    pub fn open_deployment(&self, id: &EndpointId) -> Option<Arc<Deployment>> {
        let deployment = self.deployed.catalog.deployment(id);
        deployment.filter(|found| {
            let http = &found.endpoint.settings.http;
            found.endpoint.kind == EndpointType::LoadBalancer
                && (http.public || !http.cors.origins.is_empty())
        })
    }

    /// The endpoint with this host name of its own, in lower case.
    pub fn of_host(&self, host: &str) -> Option<EndpointId> {
        self.deployed.view().hosts.get(host).cloned()
    }

    /// The number of the endpoint's workers that run a job.
    pub fn running_workers(&self, id: &EndpointId) -> u64 {
        self.deployed.workers.counts(id).running
    }

    /// The endpoint's workers.
    pub fn workers(&self, id: &EndpointId) -> Vec<Worker> {
        self.deployed.workers.list(id)
    }

    /// A new endpoint of the caller's owner, with a random id by default; it takes jobs at once.
    /// Returns it also if it is only checked.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] when the id is taken; [`ControlError::Invalid`] for a template
    /// that the owner may not use and for values out of bounds; and those of every change.
    pub async fn create(
        &self,
        caller: &Arc<ApiKey>,
        mut new: EndpointInput,
        extent: Extent,
    ) -> Result<Arc<Endpoint>, ControlError> {
        let template = new.template_id.clone().ok_or_else(|| {
            ControlError::invalid("`templateId` is required; it names the template to run")
        })?;
        let id = new.id.take().unwrap_or_else(random_id);
        let now = self.deployed.now();
        let blank = Endpoint::new(id.clone(), caller.owner.clone(), template, now);
        self.change_one(caller, id.clone(), extent, move |view, _| {
            if view.deployments.contains_key(&id) {
                return Err(taken::<Endpoint>(&id));
            }
            id.check_new().map_err(|error| ControlError::invalid(error.to_string()))?;
            let endpoint = patch::changed(view, blank, new)?;
            // A deploy checks the settings before it uploads the handler.
            if extent == Extent::Whole {
                patch::check_handler(view, &endpoint)?;
            }
            Ok(endpoint)
        })
        .await
    }

    /// Changes the given fields. Running jobs continue with the old ones; waiting jobs start with
    /// the new ones. Returns the changed endpoint also if the change is only checked.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], and those of [`create`](Self::create).
    pub async fn update(
        &self,
        caller: &Arc<ApiKey>,
        id: EndpointId,
        given: EndpointInput,
        extent: Extent,
    ) -> Result<Arc<Endpoint>, ControlError> {
        self.change_one(caller, id.clone(), extent, move |view, caller| {
            let current: &Arc<Endpoint> = find_owned(view, caller, &id)?;
            let endpoint = patch::changed(view, Endpoint::clone(current), given)?;
            if extent == Extent::Whole && endpoint.template != current.template {
                patch::check_handler(view, &endpoint)?;
            }
            Ok(endpoint)
        })
        .await
    }

    /// Creates a new secret for webhooks; for a day they are signed with the previous ones as well.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], and those of every change.
    pub async fn rotate_webhook_secret(
        &self,
        caller: &Arc<ApiKey>,
        id: EndpointId,
    ) -> Result<Arc<Endpoint>, ControlError> {
        let now = self.deployed.now();
        self.change_one(caller, id.clone(), Extent::Whole, move |view, caller| {
            let current: &Arc<Endpoint> = find_owned(view, caller, &id)?;
            let mut endpoint = Endpoint::clone(current);
            endpoint.webhook_secrets = endpoint.webhook_secrets.rotated(now);
            Ok(endpoint)
        })
        .await
    }

    /// Writes the endpoint that `decide` returns, and notifies its workers.
    async fn change_one(
        &self,
        caller: &Arc<ApiKey>,
        id: EndpointId,
        extent: Extent,
        decide: impl FnOnce(&View, &ApiKey) -> Result<Endpoint, ControlError> + Send + 'static,
    ) -> Result<Arc<Endpoint>, ControlError> {
        let (deployed, caller) = (self.deployed.clone(), caller.clone());
        complete(async move {
            let put = |view: &View| {
                let endpoint = decide(view, &caller)?;
                patch::check_hosts(view, &caller, &endpoint)?;
                Ok((vec![CatalogChange::Put(CatalogEntry::Endpoint(endpoint.clone()))], endpoint))
            };
            if extent == Extent::CheckOnly {
                return deployed.check(&caller, put).map(Arc::new);
            }
            deployed.change(&caller, put).await?;
            let view = deployed.view();
            let endpoint = find_owned::<Endpoint>(&view, &caller, &id)?;
            deployed.refresh(&id);
            Ok(endpoint.clone())
        })
        .await?
    }

    /// Deletes the endpoint with all its jobs, and returns when they are deleted. Waiting jobs are
    /// removed, and running jobs are stopped.
    ///
    /// Neither a caller that stops waiting nor a crash can split the deletion. The record of the
    /// catalog decides: once it is deleted, no job is accepted or found under the endpoint's id,
    /// and the store deletes the rest, if need be after the next start.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], [`ControlError::Conflict`] when it has a schedule, and those of
    /// every change.
    pub async fn delete(&self, caller: &Arc<ApiKey>, id: EndpointId) -> Result<(), ControlError> {
        let (this, caller) = (self.clone(), caller.clone());
        complete(async move { this.delete_whole(&caller, &id).await }).await?
    }

    async fn delete_whole(&self, caller: &ApiKey, id: &EndpointId) -> Result<(), ControlError> {
        let Self { deployed, logs, requests, .. } = self;
        let delete = |view: &View| {
            let incarnation = incarnation(view, caller, id)?;
            if let Some(schedule) = view.schedule_of(id) {
                return Err(ControlError::conflict(format!(
                    "endpoint `{id}` has the schedule `{}`; delete it first (`gristmill schedules delete`)",
                    schedule.id
                )));
            }
            Ok((vec![CatalogChange::Delete(CatalogKey::Endpoint(id.clone()))], incarnation))
        };
        let incarnation = deployed.change(caller, delete).await?;
        deployed.refresh(id);
        logs.forget(&incarnation);
        requests.forget(&incarnation);
        deployed.store.await_deletion(id).await?;
        // The components of its releases may be unused now.
        deployed.remove_unused_components().await;
        Ok(())
    }

    /// The handlers that the endpoint has run, the newest last.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn releases(&self, caller: &ApiKey, id: &EndpointId) -> Result<Vec<Release>, ControlError> {
        Ok(self.get(caller, id)?.releases.to_vec())
    }

    /// Returns to an earlier handler of the endpoint: from now on the endpoint's template names
    /// that component. Returns the release that runs now.
    ///
    /// # Errors
    /// [`ControlError::Conflict`] when there is nothing to return to, when the change would reach
    /// other endpoints, or when the endpoint has another version than `from`;
    /// [`ControlError::Invalid`] for another version than that of a release; and those of every
    /// change.
    pub async fn roll_back(
        &self,
        caller: &Arc<ApiKey>,
        id: EndpointId,
        to: Rollback,
    ) -> Result<Release, ControlError> {
        let (deployed, caller) = (self.deployed.clone(), caller.clone());
        complete(async move {
            let roll_back = |view: &View| {
                let endpoint = find_owned::<Endpoint>(view, &caller, &id)?;
                let template = rollback::rolled_back(view, endpoint, to)?;
                let id = template.id.clone();
                Ok((vec![CatalogChange::Put(CatalogEntry::Template(template))], id))
            };
            let template = deployed.change(&caller, roll_back).await?;
            deployed.refresh_bound(&template);
            let view = deployed.view();
            let endpoint: &Arc<Endpoint> = find_owned(&view, &caller, &id)?;
            let current = endpoint.releases.last().cloned();
            current.ok_or_else(|| rollback::nowhere(endpoint))
        })
        .await?
    }

    /// The newest deliveries of webhooks, newest first.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], and those of the store.
    pub async fn deliveries(
        &self,
        caller: &ApiKey,
        id: &EndpointId,
    ) -> Result<Vec<Delivery>, ControlError> {
        let endpoint = self.get(caller, id)?;
        Ok(self.deliveries.deliveries(&endpoint.id, DELIVERY_LOG_MAX).await?)
    }

    /// What happened to a job, which the caller may read.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn timeline(&self, job: &JobRecord) -> Result<Timeline, ControlError> {
        let deliveries = self.deliveries.deliveries_of(&job.endpoint, job.id).await?;
        Ok(Timeline::of(job, &deliveries))
    }

    /// The log lines of the endpoint's handlers.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn logs(&self, caller: &ApiKey, id: &EndpointId) -> Result<EndpointLogs, ControlError> {
        let incarnation = incarnation(&self.deployed.view(), caller, id)?;
        Ok(EndpointLogs { logs: self.logs.clone(), incarnation })
    }

    /// Observes an HTTP request that has arrived for an endpoint.
    pub fn begin_request(&self, to: &Deployment, method: &str, path: &str) -> Arc<ObservedRequest> {
        let at = self.deployed.now();
        ObservedRequest::begin(self.requests.clone(), to.incarnation.clone(), at, method, path)
    }

    /// The newest HTTP requests of the endpoint that have ended and are wanted, the newest first.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn requests(
        &self,
        caller: &ApiKey,
        id: &EndpointId,
        count_max: usize,
        is_wanted: impl Fn(&EndedRequest) -> bool,
    ) -> Result<Vec<Arc<EndedRequest>>, ControlError> {
        let incarnation = incarnation(&self.deployed.view(), caller, id)?;
        Ok(self.requests.read(&incarnation, count_max, is_wanted))
    }
}

/// The log lines of one endpoint's handlers, until the endpoint is deleted.
#[derive(Debug)]
pub struct EndpointLogs {
    logs: Arc<Logs>,
    incarnation: EndpointIncarnation,
}

impl EndpointLogs {
    /// The lines that match a query, the oldest first.
    pub fn read(&self, query: LogQuery) -> LogAnswer {
        self.logs.read(&self.incarnation, query)
    }

    /// Follows the lines.
    pub fn follow(&self) -> Follower {
        self.logs.follow(&self.incarnation)
    }
}

/// The incarnation of the caller's endpoint.
fn incarnation(
    view: &View,
    caller: &ApiKey,
    id: &EndpointId,
) -> Result<EndpointIncarnation, ControlError> {
    find_owned::<Endpoint>(view, caller, id)?;
    let deployment = view.deployments.get(id);
    Ok(deployment.map(|deployment| deployment.incarnation.clone()).unwrap_or_default())
}
