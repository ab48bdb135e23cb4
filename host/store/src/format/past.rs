//! The earlier attempts of a job that was queued again, and the usage of all its attempts with a result, in
//! the encoding of the disk: a list of attempts, and behind it the sum, unless that is zero. A host that
//! does not know the sum reads the list alone.
//!
//! **Bounds.** The newest [`PAST_ATTEMPTS_MAX`] attempts, some 20 bytes for each, and about 30 bytes of
//! usage. **Cost.** A job that has not ended for the first time has 16 bytes more in memory, and none on disk.
//! Another attempt and another result copy the bytes.

use gristmill_core::billing::usage::{JobUsage, UsageSum};
use gristmill_core::job::record::{PastAttempt, RequeueCause};
use gristmill_core::limits::PAST_ATTEMPTS_MAX;
use gristmill_core::time::Timestamp;
use minicbor::{Decode, Decoder, Encode};

/// The earlier attempts, oldest first, and the usage of all attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PastAttempts(Option<Box<[u8]>>);

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

/// A further quantity gets the next number.
#[derive(Default, Encode, Decode)]
struct UsedImage {
    /// As [`UsageSum::to_numbers`] has them.
    #[n(0)]
    billed: [u64; 9],
    #[n(1)]
    egress_bytes: u64,
}

impl UsedImage {
    fn of(usage: &JobUsage) -> Self {
        Self { billed: usage.billed.to_numbers(), egress_bytes: usage.egress_bytes }
    }

    fn usage(&self) -> JobUsage {
        let billed = UsageSum::from_numbers(self.billed);
        JobUsage { billed, egress_bytes: self.egress_bytes }
    }
}

impl PastAttempts {
    /// The list of these bytes.
    ///
    /// # Errors
    /// When the bytes are no such list and no such sum.
    pub(crate) fn of(bytes: Option<&[u8]>) -> Result<Self, String> {
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        decode(bytes).ok_or("the earlier attempts of a job are invalid")?;
        Ok(Self(Some(bytes.into())))
    }

    /// The bytes on disk; `None` without any attempt and any usage.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// The attempts, oldest first, and the sum of those that ended with a result.
    pub(crate) fn read(&self) -> (Vec<PastAttempt>, JobUsage) {
        // The bytes were checked when the list was made.
        self.bytes().and_then(decode).unwrap_or_default()
    }

    /// The list with a further attempt.
    #[must_use]
    pub(crate) fn with(&self, ended: PastAttempt) -> Self {
        let (mut attempts, usage) = self.read();
        attempts.push(ended);
        let dropped = attempts.len().saturating_sub(PAST_ATTEMPTS_MAX);
        attempts.drain(..dropped);
        Self::encode(&attempts, &usage)
    }

    /// The list with the usage of a further attempt.
    #[must_use]
    pub(crate) fn with_usage(&self, used: &JobUsage) -> Self {
        let (attempts, mut usage) = self.read();
        usage.add(used);
        Self::encode(&attempts, &usage)
    }

    fn encode(attempts: &[PastAttempt], usage: &JobUsage) -> Self {
        let images: Vec<_> = attempts.iter().map(PastImage::of).collect();
        let mut bytes = minicbor::to_vec(images).expect("a vector takes all bytes");
        if *usage != JobUsage::default() {
            let image = UsedImage::of(usage);
            minicbor::encode(image, &mut bytes).expect("a vector takes all bytes");
        }
        Self(Some(bytes.into()))
    }
}

fn decode(bytes: &[u8]) -> Option<(Vec<PastAttempt>, JobUsage)> {
    let mut decoder = Decoder::new(bytes);
    let images: Vec<PastImage> = decoder.decode().ok()?;
    let attempts = images.iter().map(PastImage::attempt).collect::<Option<_>>()?;
    let is_end = decoder.position() == bytes.len();
    let image = if is_end { UsedImage::default() } else { decoder.decode().ok()? };
    Some((attempts, image.usage()))
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
    RequeueCause::ALL.into_iter().find(|end| end_code(*end) == code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_attempt() -> impl Strategy<Value = PastAttempt> {
        // Times up to the year 10889, beyond which a sum could overflow.
        let ms = || 0..1_u64 << 47;
        (ms(), ms(), ms(), 0..RequeueCause::ALL.len()).prop_map(
            |(queued_at, waited_ms, ran_ms, end)| {
                let end = end_code(RequeueCause::ALL[end]);
                PastImage { queued_at, waited_ms, ran_ms, end }.attempt().unwrap()
            },
        )
    }

    fn any_usage() -> impl Strategy<Value = JobUsage> {
        any::<([u64; 9], u64)>()
            .prop_map(|(billed, egress_bytes)| UsedImage { billed, egress_bytes }.usage())
    }

    proptest! {
        #[test]
        fn the_newest_attempts_are_kept_and_all_usage(
            attempts in prop::collection::vec((any_attempt(), any_usage()), 0..20),
        ) {
            let (mut list, mut sum) = (PastAttempts::default(), JobUsage::default());
            for (attempt, used) in &attempts {
                list = list.with_usage(used).with(*attempt);
                sum.add(used);
            }
            let newest = &attempts[attempts.len().saturating_sub(PAST_ATTEMPTS_MAX)..];
            let newest: Vec<_> = newest.iter().map(|(attempt, _)| *attempt).collect();
            prop_assert_eq!(list.read(), (newest, sum));
            prop_assert_eq!(PastAttempts::of(list.bytes()).unwrap(), list);
        }

        #[test]
        fn other_bytes_are_refused_or_a_list(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(list) = PastAttempts::of(Some(&bytes)) {
                prop_assert_eq!(decode(&bytes).unwrap(), list.read());
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
        let unknown = u8::try_from(RequeueCause::ALL.len()).unwrap();
        assert!(PastAttempts::of(Some(&[0x81, 0x84, 1, 1, 1, unknown])).is_err(), "an unknown end");
        let used = UsedImage { billed: [1, 2, 3, 4, 5, 6, 7, 8, 9], egress_bytes: 10 }.usage();
        let first = PastAttempts::default().with_usage(&used);
        assert_eq!(first.bytes().unwrap(), [0x80, 0x82, 0x89, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let both = list.with_usage(&used);
        assert_eq!(
            both.bytes().unwrap(),
            [list.bytes().unwrap(), &first.bytes().unwrap()[1..]].concat()
        );
        // A host without sums reads the list.
        assert_eq!(minicbor::decode::<Vec<PastImage>>(both.bytes().unwrap()).unwrap().len(), 1);
        assert!(
            PastAttempts::of(Some(&[0x80, 0x81, 0x88, 1, 2, 3, 4, 5, 6, 7, 8])).is_err(),
            "too few"
        );
    }
}
