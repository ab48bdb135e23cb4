//! The submissions by which duplicates are recognised, in one ordered map. It knows no bound on
//! their number: the tests that compare it stay below that of the engine.

use std::collections::BTreeMap;

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::idempotency::{Idempotency, KEY_LIFETIME_MS};
use gristmill_core::store::SubmitAnswer;
use gristmill_core::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Submissions(BTreeMap<(EndpointId, [u8; 16]), First>);

/// The first submission with a key.
#[derive(Debug)]
struct First {
    job: JobId,
    content: [u8; 16],
    at: Timestamp,
}

impl Submissions {
    /// The answer to a submission that came before; `None` when it is new.
    pub(super) fn find(
        &self,
        endpoint: &EndpointId,
        Idempotency { key, content }: Idempotency,
    ) -> Option<SubmitAnswer> {
        let first = self.0.get(&(endpoint.clone(), key))?;
        Some(match first.content == content {
            true => SubmitAnswer::Repeated(first.job),
            false => SubmitAnswer::KeyReused,
        })
    }

    pub(super) fn insert(
        &mut self,
        endpoint: EndpointId,
        Idempotency { key, content }: Idempotency,
        job: JobId,
        at: Timestamp,
    ) {
        self.0.insert((endpoint, key), First { job, content, at });
    }

    /// Forgets those whose time is over. Those that were made while the clock was ahead count as
    /// made now.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.0.values_mut().for_each(|first| first.at = first.at.min(now));
        self.0.retain(|_, first| first.at.plus_millis(KEY_LIFETIME_MS) > now);
    }

    /// The time of the next end; [`Timestamp::NEVER`] without any.
    pub(super) fn next(&self) -> Timestamp {
        let ends = self.0.values().map(|first| first.at.plus_millis(KEY_LIFETIME_MS));
        ends.min().unwrap_or(Timestamp::NEVER)
    }

    pub(super) fn forget_endpoint(&mut self, endpoint: &EndpointId) {
        self.0.retain(|(of, _), _| of != endpoint);
    }
}
