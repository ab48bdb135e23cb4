//! The shared state of a dispatcher's tasks: the store, the sandbox, and the signals of a drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_core::catalog::Catalog;
use gristmill_core::jobs::handler_calls::HandlerCalls;
use gristmill_core::logs::Logs;
use gristmill_core::runtime::Runtime;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::Clock;
use gristmill_core::trace::Tracer;
use tokio_util::sync::CancellationToken;

use crate::request_bills::RequestBills;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) handler_calls: HandlerCalls,
    pub(crate) signals: Arc<Signals>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) tracer: Tracer,
    /// The usage of HTTP requests.
    pub(crate) request_bills: Arc<RequestBills>,
    /// Fires when the time of a drain is over.
    pub(crate) stop_attempts: CancellationToken,
    is_draining: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        store: Arc<dyn JobStore>,
        catalog: Arc<Catalog>,
        runtime: Arc<dyn Runtime>,
        signals: Arc<Signals>,
        clock: Arc<dyn Clock>,
        logs: Arc<Logs>,
        tracer: Tracer,
    ) -> Self {
        let handler_calls = HandlerCalls::new(store.clone(), catalog.clone(), signals.clone());
        Self {
            store,
            catalog,
            runtime,
            handler_calls,
            signals,
            clock,
            logs,
            tracer,
            request_bills: Arc::default(),
            stop_attempts: CancellationToken::new(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// From now on no worker takes another job.
    pub(crate) fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }
}
