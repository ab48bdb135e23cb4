//! One attempt: its instance, its call, and its end.

mod answer_body;
pub(crate) mod call;
pub(crate) mod compute_line;
pub(crate) mod compute_threads;
pub(crate) mod idle;
pub(crate) mod instance;
pub(crate) mod job;
pub(crate) mod names;
pub(crate) mod outcome;
pub(crate) mod request;
pub(crate) mod stack;
pub(crate) mod work;
