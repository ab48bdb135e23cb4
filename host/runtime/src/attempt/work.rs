//! The work of an attempt: what its handler is called with, and the meaning of what it returns.

use std::time::Instant;

use gristmill_core::runtime::AttemptEnd;
use wasmtime::Result;

use crate::attempt::instance::Instance;
use crate::sandbox::state::State;

/// The input of an attempt.
pub(crate) trait Work: Send + 'static {
    /// What the handler returns.
    type Returned: Send;

    /// The output of an attempt whose handler has returned one.
    type Output: Send + 'static;

    /// Calls the handler; sets `ready` once the handler can begin.
    ///
    /// # Errors
    /// A trap, a limit or an exit.
    fn call(
        self,
        instance: &mut Instance,
        ready: &mut Option<Instant>,
    ) -> impl Future<Output = Result<Self::Returned>> + Send;

    /// The end of an attempt whose handler has returned.
    fn end(returned: Self::Returned, state: &State) -> AttemptEnd<Self::Output>;
}
