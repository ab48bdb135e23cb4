//! What a deliverer works with.

use std::sync::Arc;

use gristmill_core::catalog::Catalog;
use gristmill_core::signals::Signals;
use gristmill_core::time::Clock;
use gristmill_core::trace::Tracer;
use gristmill_core::webhook::delivery::DeliveryStore;

use super::sender::WebhookSender;

/// The parts of a deliverer.
#[derive(Debug)]
pub struct DeliveryParts {
    /// The store of deliveries.
    pub store: Arc<dyn DeliveryStore>,
    /// Has the secrets of the endpoints.
    pub catalog: Arc<Catalog>,
    /// The store's signals.
    pub signals: Arc<Signals>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// Makes the calls.
    pub sender: Arc<dyn WebhookSender>,
    /// Makes their spans.
    pub tracer: Tracer,
}
