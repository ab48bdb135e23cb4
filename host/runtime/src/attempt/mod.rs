//! One attempt of a job: its instance and store, its limits and deadline, its output, and its end.

pub(crate) mod call;
pub(crate) mod cpu_priority;
pub(crate) mod deadline;
pub(crate) mod fair_yield;
pub(crate) mod idle;
pub(crate) mod instance;
pub(crate) mod limiter;
pub(crate) mod log;
pub(crate) mod outcome;
pub(crate) mod split;
pub(crate) mod stack;
pub(crate) mod state;
pub(crate) mod stdio;
