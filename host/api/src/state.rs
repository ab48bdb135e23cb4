//! What the routes work on: handles to the parts that the host has put together.

use std::ops::Deref;
use std::sync::Arc;

use gristmill_core::catalog::Catalog;
use gristmill_core::delivery::DeliveryStore;
use gristmill_core::jobs::Jobs;
use gristmill_core::runtime::{Components, Runtime};
use gristmill_core::store::JobStore;
use gristmill_core::workers::Workers;

use crate::body::BodyReader;
use crate::rate_limit::{RateLimiter, RateLimits};
use crate::strangers::Strangers;

/// What the routes work on. A clone, of which each call makes several, costs one counter.
#[derive(Debug, Clone)]
pub struct ApiState(Arc<Parts>);

/// The parts.
#[derive(Debug)]
pub struct Parts {
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) workers: Arc<dyn Workers>,
    pub(crate) components: Arc<dyn Components>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) deliveries: Arc<dyn DeliveryStore>,
    pub(crate) bodies: BodyReader,
    pub(crate) limiter: RateLimiter,
    pub(crate) strangers: Strangers,
    pub(crate) brand: Box<str>,
}

impl ApiState {
    /// Puts the parts together. `brand` completes the name of the template field and query flag
    /// that say whether a template is the operator's own: `is<Brand>`, `include<Brand>Templates`.
    pub fn new(
        jobs: Arc<Jobs>,
        catalog: Arc<Catalog>,
        workers: Arc<dyn Workers>,
        sandbox: Arc<impl Components + Runtime + 'static>,
        store: Arc<impl JobStore + DeliveryStore + 'static>,
        limits: RateLimits,
        brand: &str,
    ) -> Self {
        Self(Arc::new(Parts {
            jobs,
            catalog,
            workers,
            components: sandbox.clone(),
            runtime: sandbox,
            store: store.clone(),
            deliveries: store,
            bodies: BodyReader::new(),
            strangers: Strangers::new(limits.unauthenticated),
            limiter: RateLimiter::new(limits),
            brand: brand.into(),
        }))
    }
}

impl Deref for ApiState {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
