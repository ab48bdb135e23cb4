//! The earlier attempts of a job that was queued again, in the encoding of the disk.
//!
//! **Bounds.** The newest [`PAST_ATTEMPTS_MAX`] attempts, some 20 bytes for each. **Cost.** A job
//! without an earlier attempt has 8 bytes more in memory, and none on disk. Another attempt copies
//! the list.

use std::sync::Arc;

use gristmill_core::limits::PAST_ATTEMPTS_MAX;
use gristmill_core::record::{PastAttempt, RequeueCause};
use gristmill_core::time::Timestamp;
use minicbor::{Decode, Encode};

/// The earlier attempts, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PastAttempts(Option<Arc<Vec<u8>>>);

#[derive(Encode, Decode)]
struct PastImage {
    #[n(0)]
    queued_at: u64,
    #[n(1)]
    waited_ms: u64,
    #[n(2)]
    ran_ms: u64,
    #[n(3)]
    end: u8,
}

impl PastAttempts {
    /// The list of these bytes.
    ///
    /// # Errors
    /// When the bytes are no such list.
    pub(crate) fn of(bytes: Option<&[u8]>) -> Result<Self, String> {
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        decode(bytes).ok_or("the earlier attempts of a job are invalid")?;
        Ok(Self(Some(Arc::new(bytes.to_vec()))))
    }

    /// The bytes on disk; `None` without any attempt.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|bytes| bytes.as_slice())
    }

    /// The attempts, oldest first.
    pub(crate) fn to_vec(&self) -> Vec<PastAttempt> {
        // The bytes were checked when the list was made.
        self.bytes().and_then(decode).unwrap_or_default()
    }

    /// The list with a further attempt.
    #[must_use]
    pub(crate) fn with(&self, ended: PastAttempt) -> Self {
        let mut attempts = self.to_vec();
        attempts.push(ended);
        let dropped = attempts.len().saturating_sub(PAST_ATTEMPTS_MAX);
        let images: Vec<_> = attempts.iter().skip(dropped).map(PastImage::of).collect();
        let bytes = minicbor::to_vec(images).expect("a vector takes all bytes");
        Self(Some(Arc::new(bytes)))
    }
}

fn decode(bytes: &[u8]) -> Option<Vec<PastAttempt>> {
    let images: Vec<PastImage> = minicbor::decode(bytes).ok()?;
    images.iter().map(PastImage::attempt).collect()
}

impl PastImage {
    fn of(attempt: &PastAttempt) -> Self {
        let PastAttempt { queued_at, started_at, ended_at, end } = *attempt;
        Self {
            queued_at: queued_at.as_millis(),
            waited_ms: started_at.millis_since(queued_at),
            ran_ms: ended_at.millis_since(started_at),
            end: end_code(end),
        }
    }

    fn attempt(&self) -> Option<PastAttempt> {
        let queued_at = Timestamp::from_millis(self.queued_at);
        let started_at = queued_at.plus_millis(self.waited_ms);
        let end = end_of(self.end)?;
        Some(PastAttempt {
            queued_at,
            started_at,
            ended_at: started_at.plus_millis(self.ran_ms),
            end,
        })
    }
}

/// The codes are on disk and must not change.
fn end_code(end: RequeueCause) -> u8 {
    match end {
        RequeueCause::Failed => 0,
        RequeueCause::TimedOut => 1,
        RequeueCause::Released => 2,
        RequeueCause::HostLost => 3,
    }
}

fn end_of(code: u8) -> Option<RequeueCause> {
    let all = [
        RequeueCause::Failed,
        RequeueCause::TimedOut,
        RequeueCause::Released,
        RequeueCause::HostLost,
    ];
    all.into_iter().find(|end| end_code(*end) == code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_attempt() -> impl Strategy<Value = PastAttempt> {
        // Times up to the year 10889, beyond which a sum could overflow.
        let ms = || 0..1_u64 << 47;
        (ms(), ms(), ms(), 0..4_u8).prop_map(|(queued_at, waited_ms, ran_ms, end)| {
            PastImage { queued_at, waited_ms, ran_ms, end }.attempt().unwrap()
        })
    }

    proptest! {
        #[test]
        fn the_newest_attempts_are_kept(attempts in prop::collection::vec(any_attempt(), 0..20)) {
            let list = attempts.iter().fold(PastAttempts::default(), |list, next| list.with(*next));
            let newest = &attempts[attempts.len().saturating_sub(PAST_ATTEMPTS_MAX)..];
            prop_assert_eq!(list.to_vec(), newest);
            prop_assert_eq!(PastAttempts::of(list.bytes()).unwrap(), list);
        }

        #[test]
        fn other_bytes_are_refused_or_a_list(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(list) = PastAttempts::of(Some(&bytes)) {
                prop_assert_eq!(decode(&bytes).unwrap(), list.to_vec());
            }
        }
    }

    /// The same bytes must be read by all later versions.
    #[test]
    fn an_attempt_has_the_bytes_that_are_on_disk() {
        let at = Timestamp::from_millis;
        let attempt = PastAttempt {
            queued_at: at(1_000),
            started_at: at(1_300),
            ended_at: at(1_301),
            end: RequeueCause::HostLost,
        };
        let list = PastAttempts::default().with(attempt);
        assert_eq!(list.bytes().unwrap(), [0x81, 0x84, 0x19, 3, 0xe8, 0x19, 1, 0x2c, 1, 3]);
        assert!(PastAttempts::of(Some(&[0x81, 0x84, 1, 1, 1, 4])).is_err(), "an unknown end");
    }
}
