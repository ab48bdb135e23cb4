//! A runtime that runs no handler.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_call::HttpCall;
use gristmill_core::id::EndpointId;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun, Reservation, Runtime, RuntimeLoad,
};
use gristmill_core::sharing::shares::Level;

/// A host without sandboxes: a worker that waits for one waits for ever.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRuntime;

#[async_trait]
impl Runtime for NoRuntime {
    async fn prepare(&self, _: &Deployment) -> Result<(), CannotRun> {
        Ok(())
    }

    fn try_reserve(&self, _: &Arc<Deployment>, _: Level) -> Option<Reservation> {
        None
    }

    async fn reserve(&self, _: &Arc<Deployment>, _: Level) -> Reservation {
        std::future::pending().await
    }

    fn retire(&self, _: &EndpointId, _: Option<&Arc<Deployment>>) {}

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad::default()
    }

    /// Never called, since there are no reservations.
    async fn perform(&self, _: Reservation, _: Attempt, _: Arc<dyn AttemptSink>) -> AttemptReport {
        AttemptEnd::Stopped.into()
    }

    /// Never called either.
    async fn serve(
        &self,
        _: Reservation,
        _: Attempt<HttpCall>,
        _: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()> {
        AttemptEnd::Stopped.into()
    }
}
