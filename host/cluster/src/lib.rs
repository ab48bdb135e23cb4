//! Runs attempts on all hosts of a database, so that the capacity for handlers grows with the
//! hosts.
//!
//! The active host decides everything: it has the queue, the limits and the results. Each other
//! host is a *runner*: it opens a connection to the active host and offers its sandboxes. The
//! active host's [`ClusterRuntime`] chooses for each attempt the sandbox of a host, and the runner
//! returns chunks, progress, log lines, calls of other endpoints, and the end of the attempt over
//! the connection.
//!
//! **Promise.** A runner decides nothing and stores nothing: a job whose runner is lost runs again,
//! as after the end of any host. So the number of workers of an endpoint, the order of its queue,
//! and the limits are as exact as on one host. An attempt goes on when its connection is lost: the
//! runner keeps it for some time, and offers it over the next connection.
//!
//! **Protocol.** The runner connects; then the active host is the client of HTTP/2 on this
//! connection, with one request for each attempt, so that attempts share the connection fairly and
//! each has its own flow control. A request that ends does not end its attempt: another one goes on
//! with it. The [messages] are those of protocol buffers: hosts of neighbouring versions skip
//! fields that they do not know.
//!
//! **Bounds.** [`active::runners::RUNNERS_MAX`] runners; a MiB of reports of an attempt that are
//! not taken. **Cost.** An attempt on another host takes one round trip, and a copy of its input
//! and output.

mod active;
mod convert;
mod frames;
mod messages;
mod runner;
mod transport;

pub use active::cluster_runtime::ClusterRuntime;
pub use active::runners::Runners;
pub use active::site::RunnersSettings;
pub use runner::{CannotOpen, Runner, RunnerSettings, RuntimeSource};
