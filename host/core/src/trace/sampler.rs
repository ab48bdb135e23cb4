//! The decision whether a trace is recorded.

use super::context::{TraceContext, TraceId};

/// Decides whether a trace is recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Whether the decision of the caller counts, if it sent one.
    pub follows_parent: bool,
    /// The share of the other traces that are recorded, from 0 to 1. The number of a trace decides,
    /// so that hosts with the same share decide alike.
    pub ratio: f64,
}

impl Sampler {
    pub(super) fn decides(self, caller: Option<&TraceContext>, trace: TraceId) -> bool {
        match caller {
            Some(caller) if self.follows_parent => caller.is_sampled,
            _ => {
                // The same bits as other implementations use: the last 63 of the number.
                let low = u64::try_from(trace.number() & u128::from(u64::MAX >> 1)).unwrap_or(0);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_precision_loss,
                    clippy::cast_sign_loss,
                    reason = "a ratio from 0 to 1 gives a number from 0 to 2^63"
                )]
                let bound = (self.ratio * (1_u64 << 63) as f64) as u64;
                low < bound
            }
        }
    }
}
