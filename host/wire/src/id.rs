//! Ids of objects. Every id that a client sees matches `^[A-Za-z0-9_-]+$`, and has at most
//! [`NAME_BYTES_MAX`] characters. The id of a job is an opaque text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bounds::NAME_BYTES_MAX;

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
    #[error("{what} `{text}` is reserved{}", others(reserved, text))]
    Reserved {
        /// The kind of object.
        what: &'static str,
        /// The text, as given.
        text: String,
        /// All reserved names of this kind.
        reserved: &'static [&'static str],
    },
}

/// The other names, as the end of a sentence.
fn others(names: &[&str], text: &str) -> String {
    let others = names.iter().filter(|name| **name != text);
    let others: Vec<_> = others.map(|name| format!("`{name}`")).collect();
    if others.is_empty() { String::new() } else { format!(", like {}", others.join(", ")) }
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
                    let text = text.to_owned();
                    return Err(InvalidId::Reserved { what: $what, text, reserved: &RESERVED_IDS });
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
    /// Names a schedule.
    ScheduleId, "schedule id", reserved: []
);
name!(
    /// Names an action on many jobs.
    JobActionId, "job action id", reserved: []
);
name!(
    /// Names one worker of an endpoint while it exists.
    WorkerId, "worker id", reserved: []
);

/// Ids that new endpoints may not have: paths of management APIs with the same position as an
/// endpoint's id, and [`OTHERS`]. An existing endpoint with such an id keeps it, and works as
/// before; no endpoint can have the first two.
const RESERVED_IDS: [&str; 10] = [
    "serverless",
    "templates",
    "network-volumes",
    "registries",
    "billing",
    "catalog",
    "pods",
    "clusters",
    "account",
    OTHERS,
];

/// The id under which an owner's usage is summed when its endpoint, or its template, has no
/// separate row. New endpoints and templates may not have this id.
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
        if RESERVED_IDS.contains(&self.as_str()) {
            let (what, text) = ("endpoint id", self.to_string());
            return Err(InvalidId::Reserved { what, text, reserved: &RESERVED_IDS });
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
            let (what, text) = ("template id", self.to_string());
            return Err(InvalidId::Reserved { what, text, reserved: &[OTHERS] });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_paths_are_refused_as_ids_of_new_endpoints_only() {
        for text in &RESERVED_IDS[2..] {
            let stored: EndpointId = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            let refused = stored.check_new().unwrap_err().to_string();
            let said =
                format!("endpoint id `{text}` is reserved, like `serverless`, `templates`, ");
            assert!(refused.starts_with(&said), "{refused}");
        }
        for text in ["serverless", "templates"] {
            assert!(EndpointId::new(text).is_err(), "{text}");
        }
        for text in ["pod", "Pods", "my-pods", "accounts"] {
            assert!(EndpointId::new(text).unwrap().check_new().is_ok(), "{text}");
        }
    }

    #[test]
    fn names_follow_the_pattern() {
        assert!(EndpointId::new("My_endpoint-1").is_ok());
        for (text, complaint) in [
            ("", "endpoint id must have 1 to 128 characters, not 0"),
            ("a b", "endpoint id `a b` may only have letters, digits, `_` and `-`"),
            (
                "serverless",
                "endpoint id `serverless` is reserved, like `templates`, `network-volumes`, \
                 `registries`, `billing`, `catalog`, `pods`, `clusters`, `account`, `_others`",
            ),
        ] {
            assert_eq!(EndpointId::new(text).unwrap_err().to_string(), complaint);
        }
        assert!(EndpointId::new(&"x".repeat(129)).is_err());
        assert_eq!(OwnerId::new(OwnerId::OPERATOR), Ok(OwnerId::operator()));
    }
}
