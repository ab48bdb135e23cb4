//! Ids of objects. Every id that a client sees matches `^[A-Za-z0-9_-]+$`. The names of objects
//! other than jobs are those of the HTTP APIs.

use std::fmt;
use std::str::FromStr;

use crate::hex::{is_lower_hex, lower_hex_digit};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

pub use gristmill_wire::id::{
    EndpointId, InvalidId, JobActionId, KeyId, OTHERS, OwnerId, RegistryAuthId, ScheduleId,
    TemplateId, VolumeId, WorkerId,
};

/// Names a shard: the jobs that one engine decides about, such as those of a data directory. It is
/// the last part of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// Names a job: `[sync-|call<depth>-]<uuidv7>-<shard>`. The id shows how the job was submitted, so
/// that the depth of a handler's job is wherever its id is, also after a crash or a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    uuid: Uuid,
    shard: ShardId,
    submission: SubmissionKind,
}

/// How a job was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubmissionKind {
    /// By `/run`: the client fetches the result later.
    Async,
    /// By `/runsync`: the client waits for the result.
    Sync,
    /// By the handler of another job.
    Handler(CallDepth),
}

/// The number of handlers between a job and the client that caused it: 1 for a job that was
/// submitted by the handler of a client's job, up to [`CallDepth::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallDepth(u8);

impl CallDepth {
    /// The greatest depth. It ends handlers that call each other in a circle.
    pub const MAX: u8 = 8;

    /// The depth of a job that the handler of a job with this submission submits; `None` beyond the
    /// greatest depth.
    pub fn below(caller: SubmissionKind) -> Option<Self> {
        match caller {
            SubmissionKind::Async | SubmissionKind::Sync => Some(Self(1)),
            SubmissionKind::Handler(Self(depth)) => Self::new(depth.saturating_add(1)),
        }
    }

    fn new(depth: u8) -> Option<Self> {
        (1..=Self::MAX).contains(&depth).then_some(Self(depth))
    }

    /// The depth as a number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl SubmissionKind {
    /// The byte of a stored id.
    fn code(self) -> u8 {
        match self {
            Self::Async => 0,
            Self::Sync => 1,
            Self::Handler(CallDepth(depth)) => depth.saturating_add(1),
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Async),
            1 => Some(Self::Sync),
            code => CallDepth::new(code.saturating_sub(1)).map(Self::Handler),
        }
    }

    /// The beginning of an id's text.
    fn prefix(self) -> &'static str {
        const OF_HANDLERS: [&str; CallDepth::MAX as usize] =
            ["call1-", "call2-", "call3-", "call4-", "call5-", "call6-", "call7-", "call8-"];
        match self {
            Self::Async => "",
            Self::Sync => "sync-",
            Self::Handler(CallDepth(depth)) => {
                let at = usize::from(depth).checked_sub(1);
                at.and_then(|at| OF_HANDLERS.get(at)).expect("a depth is 1 to the greatest one")
            }
        }
    }

    /// Splits the text of an id, or its beginning, into the way of its submission and the rest.
    fn split(text: &str) -> (Self, &str) {
        if let Some(rest) = text.strip_prefix("sync-") {
            return (Self::Sync, rest);
        }
        let of_handler = || {
            let (depth, rest) = text.strip_prefix("call")?.split_once('-')?;
            Some((Self::Handler(CallDepth::new(depth.parse().ok()?)?), rest))
        };
        of_handler().unwrap_or((Self::Async, text))
    }
}

/// The error for a text that is not a job id. Job ids are opaque to clients, so the answer is
/// always "not found".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a job id")]
pub struct InvalidJobId;

impl JobId {
    /// A new id, later than every id made before it in this shard.
    pub fn generate(submission: SubmissionKind, shard: ShardId) -> Self {
        Self { uuid: Uuid::now_v7(), shard, submission }
    }

    /// A new id for a job that the handler of this one submits; `None` at the greatest depth.
    pub fn of_call(self) -> Option<Self> {
        let depth = CallDepth::below(self.submission)?;
        Some(Self::generate(SubmissionKind::Handler(depth), self.shard))
    }

    /// How the job was submitted.
    pub fn submission(self) -> SubmissionKind {
        self.submission
    }

    /// The beginning of an id's text without the part that shows how the job was submitted.
    pub fn without_submission(text: &str) -> &str {
        SubmissionKind::split(text).1
    }

    /// The text of the id, without an allocation. Each call about a job compares one and writes
    /// one; with the formatting macros these two took 5 % of the instructions of a call of
    /// `/status`.
    pub fn text(self) -> JobIdText {
        let prefix = self.submission.prefix().as_bytes();
        let mut bytes = [0; JobIdText::BYTES_MAX];
        let (before, rest) = bytes.split_at_mut(prefix.len());
        before.copy_from_slice(prefix);
        let (uuid, rest) = rest.split_at_mut(Hyphenated::LENGTH);
        self.uuid.hyphenated().encode_lower(uuid);
        let [high, low] = self.shard.0.to_be_bytes();
        let [a, b, c, d] = [high >> 4, high & 0xf, low >> 4, low & 0xf].map(lower_hex_digit);
        let shard = [b'-', a, b, c, d];
        rest.iter_mut().zip(shard).for_each(|(to, byte)| *to = byte);
        JobIdText { bytes, length: prefix.len() + Hyphenated::LENGTH + shard.len() }
    }

    /// The id as 19 bytes, for storage; [`JobId::from_bytes`] is the inverse.
    pub fn to_bytes(self) -> [u8; 19] {
        let mut bytes = [0; 19];
        let (uuid, rest) = bytes.split_at_mut(16);
        uuid.copy_from_slice(self.uuid.as_bytes());
        let (shard, submission) = rest.split_at_mut(2);
        shard.copy_from_slice(&self.shard.0.to_be_bytes());
        submission.copy_from_slice(&[self.submission.code()]);
        bytes
    }

    /// Parses the bytes of [`JobId::to_bytes`].
    ///
    /// # Errors
    /// [`InvalidJobId`] for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidJobId> {
        let (uuid, rest) = bytes.split_first_chunk::<16>().ok_or(InvalidJobId)?;
        let [shard_high, shard_low, submission] = *rest else { return Err(InvalidJobId) };
        Ok(Self {
            uuid: Uuid::from_bytes(*uuid),
            shard: ShardId(u16::from_be_bytes([shard_high, shard_low])),
            submission: SubmissionKind::of_code(submission).ok_or(InvalidJobId)?,
        })
    }
}

/// The text of a [`JobId`].
#[derive(Debug, Clone, Copy)]
pub struct JobIdText {
    bytes: [u8; Self::BYTES_MAX],
    length: usize,
}

impl JobIdText {
    /// The longest beginning, the UUID, and the shard behind a dash.
    const BYTES_MAX: usize = "call8-".len() + Hyphenated::LENGTH + "-0000".len();

    /// The text.
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.length).and_then(|text| str::from_utf8(text).ok());
        text.expect("an id is ASCII, and was written up to here")
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<Self, InvalidJobId> {
        let (submission, rest) = SubmissionKind::split(text);
        let (uuid, shard) = rest.rsplit_once('-').ok_or(InvalidJobId)?;
        if uuid.len() != 36 || !is_lower_hex(shard.as_bytes(), 4) {
            return Err(InvalidJobId);
        }
        let id = Self {
            uuid: Uuid::try_parse(uuid).map_err(|_| InvalidJobId)?,
            shard: ShardId(u16::from_str_radix(shard, 16).map_err(|_| InvalidJobId)?),
            submission,
        };
        // Only the exact spelling of the host names the job.
        if id.text().as_str() == text { Ok(id) } else { Err(InvalidJobId) }
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_survive_text_and_bytes() {
        let depths = (1..=CallDepth::MAX).map(|depth| SubmissionKind::Handler(CallDepth(depth)));
        for submission in [SubmissionKind::Async, SubmissionKind::Sync].into_iter().chain(depths) {
            let id = JobId::generate(submission, ShardId(0xa0f));
            let text = id.to_string();
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(JobId::from_bytes(&id.to_bytes()), Ok(id));
            assert_eq!(id.submission(), submission);
            assert_eq!(text.starts_with("sync-"), submission == SubmissionKind::Sync);
            assert_eq!(text.starts_with("call"), matches!(submission, SubmissionKind::Handler(_)));
            assert_eq!(JobId::without_submission(&text).len(), 41);
            assert!(text.ends_with("-0a0f"));
        }
    }

    #[test]
    fn a_chain_of_calls_ends() {
        let depths = std::iter::successors(CallDepth::below(SubmissionKind::Sync), |depth| {
            CallDepth::below(SubmissionKind::Handler(*depth))
        });
        assert_eq!(depths.map(CallDepth::get).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut bytes = JobId::generate(SubmissionKind::Sync, ShardId(1)).to_bytes();
        for code in [10, 255] {
            bytes[18] = code;
            assert_eq!(JobId::from_bytes(&bytes), Err(InvalidJobId));
        }
    }

    #[test]
    fn other_texts_are_no_job_ids() {
        let id = JobId::generate(SubmissionKind::Async, ShardId(1)).to_string();
        let wrong = [
            String::new(),
            "sync-".into(),
            "nonsense".into(),
            id.to_uppercase().replace("0001", "000A"),
            format!("{id}0"),
            format!("sync-sync-{id}"),
            format!("call0-{id}"),
            format!("call9-{id}"),
            format!("call01-{id}"),
            format!("call-{id}"),
            format!("call1-sync-{id}"),
            id.replace("-0001", "-+001"),
            id.chars().filter(|c| *c != '-').collect(),
        ];
        for text in wrong {
            assert_eq!(text.parse::<JobId>(), Err(InvalidJobId), "{text}");
        }
    }
}
