//! Ids of objects. Every id that a client sees matches `^[A-Za-z0-9_-]+$`. The names of objects
//! other than jobs are those of the HTTP APIs.

use std::fmt;
use std::str::FromStr;

use crate::hex::is_lower_hex;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use gristmill_wire::id::{
    EndpointId, InvalidId, JobActionId, KeyId, OTHERS, OwnerId, RegistryAuthId, TemplateId,
    VolumeId, WorkerId,
};

/// Names a shard: the jobs that one engine decides about, such as those of a data directory. It is the last
/// part of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// Names a job: `[sync-]<uuidv7>-<shard>`. The id shows the operation that submitted the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    uuid: Uuid,
    shard: ShardId,
    is_sync: bool,
}

/// How a job was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Submission {
    /// By `/run`: the client fetches the result later.
    Async,
    /// By `/runsync`: the client waits for the result.
    Sync,
}

/// The error for a text that is not a job id. Job ids are opaque to clients, so the answer is
/// always "not found".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a job id")]
pub struct InvalidJobId;

impl JobId {
    /// A new id, later than every id made before it in this shard.
    pub fn generate(submission: Submission, shard: ShardId) -> Self {
        Self { uuid: Uuid::now_v7(), shard, is_sync: submission == Submission::Sync }
    }

    /// How the job was submitted.
    pub fn submission(self) -> Submission {
        if self.is_sync { Submission::Sync } else { Submission::Async }
    }

    /// The id as 19 bytes, for storage; [`JobId::from_bytes`] is the inverse.
    pub fn to_bytes(self) -> [u8; 19] {
        let mut bytes = [0; 19];
        let (uuid, rest) = bytes.split_at_mut(16);
        uuid.copy_from_slice(self.uuid.as_bytes());
        let (shard, is_sync) = rest.split_at_mut(2);
        shard.copy_from_slice(&self.shard.0.to_be_bytes());
        is_sync.copy_from_slice(&[u8::from(self.is_sync)]);
        bytes
    }

    /// Parses the bytes of [`JobId::to_bytes`].
    ///
    /// # Errors
    /// [`InvalidJobId`] for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidJobId> {
        let (uuid, rest) = bytes.split_first_chunk::<16>().ok_or(InvalidJobId)?;
        let [shard_high, shard_low, is_sync @ (0 | 1)] = *rest else { return Err(InvalidJobId) };
        Ok(Self {
            uuid: Uuid::from_bytes(*uuid),
            shard: ShardId(u16::from_be_bytes([shard_high, shard_low])),
            is_sync: is_sync == 1,
        })
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_sync {
            f.write_str("sync-")?;
        }
        write!(f, "{}-{}", self.uuid.hyphenated(), self.shard)
    }
}

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<Self, InvalidJobId> {
        let (is_sync, rest) = match text.strip_prefix("sync-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (uuid, shard) = rest.rsplit_once('-').ok_or(InvalidJobId)?;
        if uuid.len() != 36 || !is_lower_hex(shard.as_bytes(), 4) {
            return Err(InvalidJobId);
        }
        let id = Self {
            uuid: Uuid::try_parse(uuid).map_err(|_| InvalidJobId)?,
            shard: ShardId(u16::from_str_radix(shard, 16).map_err(|_| InvalidJobId)?),
            is_sync,
        };
        // Only the exact spelling of the host names the job.
        if id.to_string() == text { Ok(id) } else { Err(InvalidJobId) }
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_survive_text_and_bytes() {
        for submission in [Submission::Async, Submission::Sync] {
            let id = JobId::generate(submission, ShardId(0xa0f));
            let text = id.to_string();
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(JobId::from_bytes(&id.to_bytes()), Ok(id));
            assert_eq!(id.submission(), submission);
            assert_eq!(text.starts_with("sync-"), submission == Submission::Sync);
            assert!(text.ends_with("-0a0f"));
        }
    }

    #[test]
    fn other_texts_are_no_job_ids() {
        let id = JobId::generate(Submission::Async, ShardId(1)).to_string();
        let wrong = [
            String::new(),
            "sync-".into(),
            "nonsense".into(),
            id.to_uppercase().replace("0001", "000A"),
            format!("{id}0"),
            format!("sync-sync-{id}"),
            id.replace("-0001", "-+001"),
            id.chars().filter(|c| *c != '-').collect(),
        ];
        for text in wrong {
            assert_eq!(text.parse::<JobId>(), Err(InvalidJobId), "{text}");
        }
    }
}
