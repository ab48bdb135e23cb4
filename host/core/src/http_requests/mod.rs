//! HTTP requests as operators see them. There is no job and no record on the disk: a request is
//! [observed] while it is answered, and the [newest] ones of each endpoint stay in memory. Only a
//! [deferred] one is a job.

pub mod deferred;
mod newest;
mod observed;

pub use newest::{ALL_BYTES_MAX, EndedRequest, NewestRequests, REQUESTS_MAX};
pub use observed::ObservedRequest;
