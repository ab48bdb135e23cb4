//! HTTP requests, which go to the workers of their endpoint without a queue on the disk.
//!
//! A request waits in the [line](mod@line) of its endpoint, whose length is the demand by which
//! workers are started, as the jobs that wait are for other endpoints. A worker with a sandbox
//! takes the next request, and the [attempt] answers it. The [call](crate::http_calls) of the
//! client waits meanwhile. The [usage](crate::request_bills) is summed.
//!
//! A request that is answered later is a job, and its [attempt](deferred) that of a job. The same
//! workers run them, and requests and jobs take turns.
//!
//! **Promises.** A request is answered once at most, and is never repeated. A client that leaves
//! ends its request. **Bounds.** Those of the line; the workers of an endpoint, each with one
//! request.

pub(crate) mod attempt;
pub(crate) mod deferred;
pub(crate) mod line;

/// Why there is no answer, if the handler has not failed.
pub(crate) const RETURNED: &str = "the handler returned without an answer";
