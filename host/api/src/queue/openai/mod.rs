//! Calls of OpenAI's clients, under `/openai/*`. A call becomes a job with the route and the body
//! as its input; the handler implements OpenAI's format, and its output alone is the answer.
//!
//! The call owns its job: the job of a client that disconnects before the end is cancelled.

pub(crate) mod answer;
mod error;
mod event_writer;
pub(crate) mod events;
pub(crate) mod input;
pub(crate) mod job;

pub(crate) use error::{OpenAiError, reshape_refusal};

#[cfg(test)]
mod tests;
