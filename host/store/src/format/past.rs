//! The earlier attempts of a job that was queued again, the usage of all its attempts with a
//! result, its rule of retries with the failures so far, and whether a caller has shortened its
//! ttl, in the encoding of the disk: CBOR with a number for each field, as in
//! [`image`](crate::format::image).
//!
//! **Bounds.** The newest [`PAST_ATTEMPTS_MAX`] attempts, some 20 bytes for each and up to
//! [`PAST_ERROR_BYTES_MAX`](gristmill_core::limits::PAST_ERROR_BYTES_MAX) of its error, about 30
//! bytes of usage, and 20 of a rule. **Cost.** A job without a rule that has not ended for the
//! first time has 16 bytes more in memory, and none on disk. Another attempt and another result
//! copy the bytes.

use gristmill_core::billing::usage::{JobUsage, UsageSum};
use gristmill_core::job::record::{PastAttempt, RequeueCause};
use gristmill_core::job::retry::{JobRetry, Retry};
use gristmill_core::limits::PAST_ATTEMPTS_MAX;
use gristmill_core::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::format::image::is_default;

/// The earlier attempts, oldest first, the usage of all attempts, the retries, and the note about
/// the ttl.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PastAttempts(Option<Box<[u8]>>);

/// The same, decoded.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    attempts: Vec<PastAttempt>,
    usage: JobUsage,
    has_shortened_ttl: bool,
    retry: JobRetry,
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
    #[n(3)]
    rule: Option<RuleImage>,
    #[n(4)]
    #[cbor(skip_if = "is_default")]
    failures: u32,
    #[n(5)]
    #[cbor(skip_if = "std::ops::Not::not")]
    is_exhausted: bool,
}

/// The fields of a rule of retries, in the order of their declaration.
type RuleImage = (u32, u64, u64, u32, u32, bool, bool);

fn rule_image(rule: Retry) -> RuleImage {
    let Retry { max_attempts, initial_delay_ms, max_delay_ms, factor, jitter, .. } = rule;
    let Retry { timeouts, out_of_memory, .. } = rule;
    (max_attempts, initial_delay_ms, max_delay_ms, factor, jitter, timeouts, out_of_memory)
}

fn rule_of(image: RuleImage) -> Retry {
    let (max_attempts, initial_delay_ms, max_delay_ms, factor, jitter, ..) = image;
    let (.., timeouts, out_of_memory) = image;
    Retry { max_attempts, initial_delay_ms, max_delay_ms, factor, jitter, timeouts, out_of_memory }
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
    /// The beginning of the error.
    #[n(4)]
    error: Option<String>,
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

    /// The rule of the submission, and the failures so far.
    pub(crate) fn retry(&self) -> JobRetry {
        self.content().retry
    }

    /// The list with other failures, or another rule.
    #[must_use]
    pub(crate) fn with_retry(&self, retry: JobRetry) -> Self {
        Self::encode(&Content { retry, ..self.content() })
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
        let Content { attempts, usage, has_shortened_ttl, retry } = content;
        let image = ContentImage {
            attempts: attempts.iter().map(PastImage::of).collect(),
            used: (*usage != JobUsage::default()).then(|| UsedImage::of(usage)),
            has_shortened_ttl: *has_shortened_ttl,
            rule: retry.rule.map(rule_image),
            failures: retry.failures,
            is_exhausted: retry.is_exhausted,
        };
        // Room for the usage, so that the vector grows only with earlier attempts.
        let mut bytes = Vec::with_capacity(48);
        minicbor::encode(image, &mut bytes).expect("a vector takes all bytes");
        Self(Some(bytes.into()))
    }
}

fn decode(bytes: &[u8]) -> Option<Content> {
    let image: ContentImage = minicbor::decode(bytes).ok()?;
    let ContentImage { attempts, used, has_shortened_ttl, rule, failures, is_exhausted } = image;
    let attempts = attempts.into_iter().map(PastImage::attempt).collect::<Option<_>>()?;
    let retry = JobRetry { rule: rule.map(rule_of), failures, is_exhausted };
    let usage = used.map_or_else(JobUsage::default, |used| used.usage());
    Some(Content { attempts, usage, has_shortened_ttl, retry })
}

impl PastImage {
    fn of(attempt: &PastAttempt) -> Self {
        let PastAttempt { queued_at, started_at, ended_at, end, ref error } = *attempt;
        Self {
            queued_at: queued_at.as_millis(),
            waited_ms: started_at.millis_since(queued_at),
            ran_ms: ended_at.millis_since(started_at),
            end: end_code(end),
            error: error.clone(),
        }
    }

    fn attempt(self) -> Option<PastAttempt> {
        let queued_at = Timestamp::from_millis(self.queued_at);
        let started_at = queued_at.plus_millis(self.waited_ms);
        let end = end_of(self.end)?;
        Some(PastAttempt {
            queued_at,
            started_at,
            ended_at: started_at.plus_millis(self.ran_ms),
            end,
            error: self.error,
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
        RequeueCause::NoMemory => 4,
        RequeueCause::AttemptFailed => 5,
    }
}

fn end_of(code: u8) -> Option<RequeueCause> {
    RequeueCause::ALL.into_iter().find(|end| end_code(*end) == code)
}

#[cfg(test)]
#[path = "past_tests.rs"]
mod tests;
