//! Limits of starts, as the store is given them and as it reports them.

pub use gristmill_wire::management::{KeyLimits, KeyWeight, StartRate};

use crate::time::Timestamp;

/// How many jobs of an endpoint may start and run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartLimits {
    /// Of all keys together.
    pub throttle: StartRate,
    /// Of each key.
    pub keys: KeyLimits,
}

/// The limit that keeps a waiting job from being claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// So many jobs of its key run, as many as may.
    Running(u32),
    /// Its key may start one then.
    KeyUntil(Timestamp),
    /// The endpoint may start one then.
    EndpointUntil(Timestamp),
}

impl Blocked {
    /// Why the job waits, in one sentence; `key` is its own.
    pub fn reason(self, key: &str, now: Timestamp) -> String {
        match self {
            Self::Running(count) => format!(
                "as many jobs of the key `{key}` run as `keys.concurrency` of the endpoint permits: {count}"
            ),
            Self::KeyUntil(at) => format!(
                "the key `{key}` may start a job in {} ms, by `keys.rate` of the endpoint",
                at.millis_since(now)
            ),
            Self::EndpointUntil(at) => format!(
                "the endpoint may start a job in {} ms, by its `throttle`",
                at.millis_since(now)
            ),
        }
    }
}
