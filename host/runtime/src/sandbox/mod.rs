//! What the store of one attempt holds: the state that host functions see, its limits and deadline,
//! and where its log lines and its output streams go.

pub(crate) mod backstop;
pub(crate) mod charge;
pub(crate) mod deadline;
pub(crate) mod growths;
pub(crate) mod limiter;
pub(crate) mod log;
pub(crate) mod reserves;
pub(crate) mod state;
pub(crate) mod stdio;
