//! Ids of objects. Every id that a client sees matches `^[A-Za-z0-9_-]+$`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits::NAME_BYTES_MAX;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Empty or too long.
    #[error("{what} must have 1 to {NAME_BYTES_MAX} characters, not {len}")]
    Length {
        /// The kind of object.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A character outside the pattern.
    #[error("{what} `{text}` may only have letters, digits, `_` and `-`")]
    Characters {
        /// The kind of object.
        what: &'static str,
        /// The text, as given.
        text: String,
    },
    /// A name that the URL layout uses itself.
    #[error("{what} `{text}` is reserved")]
    Reserved {
        /// The kind of object.
        what: &'static str,
        /// The text, as given.
        text: String,
    },
}

fn check(what: &'static str, text: &str) -> Result<(), InvalidId> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(InvalidId::Length { what, len: text.len() });
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        return Err(InvalidId::Characters { what, text: text.to_owned() });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, reserved: [$($reserved:literal),*]) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the id.
            ///
            /// # Errors
            /// [`InvalidId`] when the text does not match the id pattern or is reserved.
            pub fn new(text: &str) -> Result<Self, InvalidId> {
                check($what, text)?;
                let reserved: &[&str] = &[$($reserved),*];
                if reserved.contains(&text) {
                    return Err(InvalidId::Reserved { what: $what, text: text.to_owned() });
                }
                Ok(Self(text.into()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(&text)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }
    };
}

name!(
    /// Names a serverless endpoint. The URL layout uses `serverless` and `templates`.
    EndpointId, "endpoint id", reserved: ["serverless", "templates"]
);
name!(
    /// Names a template.
    TemplateId, "template id", reserved: []
);
name!(
    /// Names an API key; the public part of the key's text.
    KeyId, "key id", reserved: []
);
name!(
    /// Names credentials for a registry.
    RegistryAuthId, "registry auth id", reserved: []
);
name!(
    /// Names the party that owns keys, templates and endpoints.
    OwnerId, "owner id", reserved: []
);
name!(
    /// Names a network volume.
    VolumeId, "network volume id", reserved: []
);
name!(
    /// Names one worker of an endpoint while it exists.
    WorkerId, "worker id", reserved: []
);

/// Ids that new endpoints may not have: paths of management APIs with the same position as an
/// endpoint's id. An existing endpoint with such an id keeps it, and works as before.
const RESERVED_IDS: [&str; 7] =
    ["network-volumes", "registries", "billing", "catalog", "pods", "clusters", "account"];

/// The id under which an owner's usage is summed when its endpoint, or its template, has no
/// separate row ([`usage`](crate::usage)). New endpoints and templates may not have this id.
pub const OTHERS: &str = "_others";

impl EndpointId {
    /// [`OTHERS`].
    pub fn others() -> Self {
        Self(OTHERS.into())
    }

    /// Refuses an id that a new endpoint may not have.
    ///
    /// # Errors
    /// [`InvalidId::Reserved`].
    pub fn check_new(&self) -> Result<(), InvalidId> {
        if RESERVED_IDS.contains(&self.as_str()) || self.as_str() == OTHERS {
            return Err(InvalidId::Reserved { what: "endpoint id", text: self.to_string() });
        }
        Ok(())
    }
}

impl TemplateId {
    /// [`OTHERS`].
    pub fn others() -> Self {
        Self(OTHERS.into())
    }

    /// Refuses an id that a new template may not have.
    ///
    /// # Errors
    /// [`InvalidId::Reserved`].
    pub fn check_new(&self) -> Result<(), InvalidId> {
        if self.as_str() == OTHERS {
            return Err(InvalidId::Reserved { what: "template id", text: self.to_string() });
        }
        Ok(())
    }
}

impl OwnerId {
    /// The operator's owner name. It owns the first key, every admin key, and all objects of older,
    /// single-owner hosts.
    pub const OPERATOR: &str = "default";

    /// The operator.
    pub fn operator() -> Self {
        Self(Self::OPERATOR.into())
    }

    /// Whether this owner is the operator.
    pub fn is_operator(&self) -> bool {
        self.as_str() == Self::OPERATOR
    }
}

/// Names one data directory among several; the last part of every job id made there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// Names a job: `[sync-]<uuidv7>-<node>`. The id shows the operation that submitted the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    uuid: Uuid,
    node: NodeId,
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
    /// A new id, later than every id made before it on this node.
    pub fn generate(submission: Submission, node: NodeId) -> Self {
        Self { uuid: Uuid::now_v7(), node, is_sync: submission == Submission::Sync }
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
        let (node, is_sync) = rest.split_at_mut(2);
        node.copy_from_slice(&self.node.0.to_be_bytes());
        is_sync.copy_from_slice(&[u8::from(self.is_sync)]);
        bytes
    }

    /// Parses the bytes of [`JobId::to_bytes`].
    ///
    /// # Errors
    /// [`InvalidJobId`] for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidJobId> {
        let (uuid, rest) = bytes.split_first_chunk::<16>().ok_or(InvalidJobId)?;
        let [node_high, node_low, is_sync @ (0 | 1)] = *rest else { return Err(InvalidJobId) };
        Ok(Self {
            uuid: Uuid::from_bytes(*uuid),
            node: NodeId(u16::from_be_bytes([node_high, node_low])),
            is_sync: is_sync == 1,
        })
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_sync {
            f.write_str("sync-")?;
        }
        write!(f, "{}-{}", self.uuid.hyphenated(), self.node)
    }
}

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<Self, InvalidJobId> {
        let (is_sync, rest) = match text.strip_prefix("sync-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (uuid, node) = rest.rsplit_once('-').ok_or(InvalidJobId)?;
        let is_lower_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if uuid.len() != 36 || node.len() != 4 || !node.bytes().all(is_lower_hex) {
            return Err(InvalidJobId);
        }
        let id = Self {
            uuid: Uuid::try_parse(uuid).map_err(|_| InvalidJobId)?,
            node: NodeId(u16::from_str_radix(node, 16).map_err(|_| InvalidJobId)?),
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
    fn reserved_paths_are_refused_as_ids_of_new_endpoints_only() {
        for text in RESERVED_IDS {
            let stored: EndpointId = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            let refused = stored.check_new().unwrap_err().to_string();
            assert_eq!(refused, format!("endpoint id `{text}` is reserved"));
        }
        for text in ["serverless", "templates"] {
            assert!(EndpointId::new(text).is_err(), "{text}");
        }
        for text in ["pod", "Pods", "my-pods", "accounts"] {
            assert!(EndpointId::new(text).unwrap().check_new().is_ok(), "{text}");
        }
    }

    #[test]
    fn job_ids_survive_text_and_bytes() {
        for submission in [Submission::Async, Submission::Sync] {
            let id = JobId::generate(submission, NodeId(0xa0f));
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
        let id = JobId::generate(Submission::Async, NodeId(1)).to_string();
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

    #[test]
    fn names_follow_the_pattern() {
        assert!(EndpointId::new("My_endpoint-1").is_ok());
        for (text, complaint) in [
            ("", "endpoint id must have 1 to 128 characters, not 0"),
            ("a b", "endpoint id `a b` may only have letters, digits, `_` and `-`"),
            ("serverless", "endpoint id `serverless` is reserved"),
        ] {
            assert_eq!(EndpointId::new(text).unwrap_err().to_string(), complaint);
        }
        assert!(EndpointId::new(&"x".repeat(129)).is_err());
        assert_eq!(OwnerId::new(OwnerId::OPERATOR), Ok(OwnerId::operator()));
    }
}
