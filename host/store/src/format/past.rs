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
        RequeueCause::NoMemory => 4,
    }
}

fn end_of(code: u8) -> Option<RequeueCause> {
    RequeueCause::ALL.into_iter().find(|end| end_code(*end) == code)
}

#[cfg(test)]
#[path = "past_tests.rs"]
mod tests;
