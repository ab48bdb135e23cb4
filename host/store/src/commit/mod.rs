//! From the state to the journal, on the one thread that writes it ([`writer`]): the webhooks of a
//! batch are composed ([`compose`]), and the batch becomes a record ([`encode`]).

pub(crate) mod compose;
pub(crate) mod encode;
pub(crate) mod journal_log;
pub(crate) mod log;
pub(crate) mod writer;
