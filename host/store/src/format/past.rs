//! The earlier attempts of a job that was queued again, the usage of all its attempts with a
//! result, and whether a caller has shortened its ttl, in the encoding of the disk: CBOR with a
//! number for each field, as in [`image`](crate::format::image).
//!
//! **Bounds.** The newest [`PAST_ATTEMPTS_MAX`] attempts, some 20 bytes for each, and about 30
//! bytes of usage. **Cost.** A job that has not ended for the first time has 16 bytes more in
//! memory, and none on disk. Another attempt and another result copy the bytes.

use gristmill_core::billing::usage::{JobUsage, UsageSum};
use gristmill_core::job::record::{PastAttempt, RequeueCause};
use gristmill_core::limits::PAST_ATTEMPTS_MAX;
use gristmill_core::time::Timestamp;
use minicbor::{Decode, Encode};

/// The earlier attempts, oldest first, the usage of all attempts, and the note about the ttl.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PastAttempts(Option<Box<[u8]>>);

/// The same, decoded.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    attempts: Vec<PastAttempt>,
    usage: JobUsage,
    has_shortened_ttl: bool,
}

#[derive(Encode, Decode)]
struct ContentImage {
    #[n(0)]
    attempts: Vec<PastImage>,
    /// `None`: no usage.
    #[n(1)]
    used: Option<UsedImage>,
    #[n(2)]
    #[cbor(skip_if = "std::ops::Not::not")]
    has_shortened_ttl: bool,
}

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

#[derive(Encode, Decode)]
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
    /// When the bytes are no such list.
    pub(crate) fn of(bytes: Option<&[u8]>) -> Result<Self, String> {
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        decode(bytes).ok_or("the earlier attempts of a job are invalid")?;
        Ok(Self(Some(bytes.into())))
    }

    /// The bytes on disk; `None` without any attempt, usage and note.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// The attempts, oldest first, and the sum of those that ended with a result.
    pub(crate) fn read(&self) -> (Vec<PastAttempt>, JobUsage) {
        let Content { attempts, usage, .. } = self.content();
        (attempts, usage)
    }

    /// Whether a caller has shortened the ttl of the job.
    pub(crate) fn has_shortened_ttl(&self) -> bool {
        self.content().has_shortened_ttl
    }

    fn content(&self) -> Content {
        // The bytes were checked when the list was made.
        self.bytes().and_then(decode).unwrap_or_default()
    }

    /// The list with a further attempt.
    #[must_use]
    pub(crate) fn with(&self, ended: PastAttempt) -> Self {
        let mut content = self.content();
        content.attempts.push(ended);
        let dropped = content.attempts.len().saturating_sub(PAST_ATTEMPTS_MAX);
        content.attempts.drain(..dropped);
        Self::encode(&content)
    }

    /// The list with the usage of a further attempt.
    #[must_use]
    pub(crate) fn with_usage(&self, used: &JobUsage) -> Self {
        let mut content = self.content();
        content.usage.add(used);
        Self::encode(&content)
    }

    /// The list with the note that a caller has shortened the ttl of the job.
    #[must_use]
    pub(crate) fn with_shortened_ttl(&self) -> Self {
        Self::encode(&Content { has_shortened_ttl: true, ..self.content() })
    }

    fn encode(content: &Content) -> Self {
        let Content { attempts, usage, has_shortened_ttl } = content;
        let image = ContentImage {
            attempts: attempts.iter().map(PastImage::of).collect(),
            used: (*usage != JobUsage::default()).then(|| UsedImage::of(usage)),
            has_shortened_ttl: *has_shortened_ttl,
        };
        // Room for the usage, so that the vector grows only with earlier attempts.
        let mut bytes = Vec::with_capacity(48);
        minicbor::encode(image, &mut bytes).expect("a vector takes all bytes");
        Self(Some(bytes.into()))
    }
}

fn decode(bytes: &[u8]) -> Option<Content> {
    let ContentImage { attempts, used, has_shortened_ttl } = minicbor::decode(bytes).ok()?;
    let attempts = attempts.iter().map(PastImage::attempt).collect::<Option<_>>()?;
    let usage = used.map_or_else(JobUsage::default, |used| used.usage());
    Some(Content { attempts, usage, has_shortened_ttl })
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
        any::<([u64; 9], u64)>().prop_map(|(billed, egress_bytes)| used(billed, egress_bytes))
    }

    fn used(billed: [u64; 9], egress_bytes: u64) -> JobUsage {
        UsedImage { billed, egress_bytes }.usage()
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
            prop_assert!(!list.has_shortened_ttl());
            prop_assert_eq!(list.read(), (newest, sum));
            prop_assert_eq!(&PastAttempts::of(list.bytes()).unwrap(), &list);
            let shortened = list.with_shortened_ttl();
            prop_assert_eq!(shortened.read(), list.read());
            prop_assert!(PastAttempts::of(shortened.bytes()).unwrap().has_shortened_ttl());
        }

        #[test]
        fn a_shortened_ttl_stays_noted(ended in any_attempt(), used in any_usage()) {
            let list = PastAttempts::default().with_shortened_ttl();
            prop_assert!(list.with(ended).with_usage(&used).has_shortened_ttl());
        }

        #[test]
        fn other_bytes_are_refused_or_a_list(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(list) = PastAttempts::of(Some(&bytes)) {
                prop_assert_eq!(decode(&bytes).unwrap(), list.content());
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
        let bytes = [0x81, 0x81, 0x84, 0x19, 3, 0xe8, 0x19, 1, 0x2c, 1, 3];
        assert_eq!(list.bytes().unwrap(), bytes);
        let unknown = [&bytes[..10], &[u8::try_from(RequeueCause::ALL.len()).unwrap()]].concat();
        assert!(PastAttempts::of(Some(&unknown)).is_err(), "an unknown end");
        let used = used([1, 2, 3, 4, 5, 6, 7, 8, 9], 10);
        let first = PastAttempts::default().with_usage(&used);
        let sum = [0x82, 0x89, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(first.bytes().unwrap(), [&[0x82, 0x80][..], &sum].concat());
        let all = list.with_usage(&used).with_shortened_ttl();
        assert_eq!(all.bytes().unwrap(), [&[0x83][..], &bytes[1..], &sum, &[0xf5]].concat());
        let noted = PastAttempts::default().with_shortened_ttl();
        assert_eq!(noted.bytes().unwrap(), [0x83, 0x80, 0xf6, 0xf5]);
        assert!(
            PastAttempts::of(Some(&[0x82, 0x80, 0x81, 0x88, 1, 2, 3, 4, 5, 6, 7, 8])).is_err(),
            "too few"
        );
    }
}
