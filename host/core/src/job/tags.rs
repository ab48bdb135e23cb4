//! The tags of a job: pairs of a key and a value, by which clients find their jobs again. Handlers
//! do not see them, and the host gives them no meaning.
//!
//! **Bounds.** [`TAGS_MAX`] pairs, [`TAG_KEY_BYTES_MAX`] and [`TAG_VALUE_BYTES_MAX`] bytes for
//! each, and [`TAGS_BYTES_MAX`] for all. **Cost.** A thin pointer for each job; the text is in one
//! allocation, which jobs of an owner with the same tags share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gristmill_wire::bounds::{
    DEBOUNCE_TAG, JOB_KEY_RULE, JOB_KEY_TAG, PRIORITY, PRIORITY_TAG, TAG_KEY_BYTES_MAX,
    TAG_VALUE_BYTES_MAX, TAGS_BYTES_MAX, TAGS_MAX, is_job_key,
};
use serde::{Deserialize, Serialize};

/// The tags of one job; at least one. The text has a line `key=value` for each, in the order of the
/// keys. The same text is on disk.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tags(Arc<Box<str>>);

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(String, String)", into = "(String, String)")]
pub struct Tag {
    key: Box<str>,
    value: Box<str>,
}

/// What decides when a job has its turn among those that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn<'k> {
    /// `policy.key`.
    pub key: Option<&'k str>,
    /// `policy.priority`, 0 to 9.
    pub priority: u8,
}

/// A stored text is not that of [`Tags`]. A repetition reads the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tags of a job are damaged")]
pub struct DamagedTags;

/// Why texts are not the tags of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTags {
    /// Too many.
    #[error("`tags` has more than {TAGS_MAX} pairs, the most allowed")]
    Count,
    /// A key with another length, or with other characters.
    #[error(
        "each key of `tags` must have 1 to {TAG_KEY_BYTES_MAX} characters of a-z, 0-9, `.`, `_`, `-` and `/`"
    )]
    Key,
    /// Two values for one key.
    #[error("`tags` has the key `{0}` twice")]
    Twice(String),
    /// A value that is too long.
    #[error("`tags.{key}` has {bytes} bytes; at most {TAG_VALUE_BYTES_MAX} are allowed")]
    Value {
        /// The key.
        key: String,
        /// The length of the value.
        bytes: usize,
    },
    /// A value with a control character.
    #[error("`tags.{0}` has a control character")]
    Control(String),
    /// A key of a job with another length, or with a control character.
    #[error("`policy.key` {JOB_KEY_RULE}")]
    JobKey,
    /// Too long together.
    #[error(
        "the keys and values of `tags` have more than {TAGS_BYTES_MAX} bytes together, the most allowed"
    )]
    Bytes,
}

impl Tag {
    /// Checks a key and its value.
    ///
    /// # Errors
    /// [`InvalidTags::Key`], [`InvalidTags::Value`] and [`InvalidTags::Control`].
    pub fn new(key: &str, value: &str) -> Result<Self, InvalidTags> {
        check(key, value)?;
        Ok(Self { key: key.into(), value: value.into() })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl TryFrom<(String, String)> for Tag {
    type Error = InvalidTags;
    fn try_from((key, value): (String, String)) -> Result<Self, InvalidTags> {
        Self::new(&key, &value)
    }
}

impl From<Tag> for (String, String) {
    fn from(Tag { key, value }: Tag) -> Self {
        (key.into(), value.into())
    }
}

fn check(key: &str, value: &str) -> Result<(), InvalidTags> {
    let is_part = |byte: u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'.' | b'_' | b'-' | b'/')
    };
    if !(1..=TAG_KEY_BYTES_MAX).contains(&key.len()) || !key.bytes().all(is_part) {
        return Err(InvalidTags::Key);
    }
    if value.len() > TAG_VALUE_BYTES_MAX {
        return Err(InvalidTags::Value { key: key.to_owned(), bytes: value.len() });
    }
    if value.chars().any(char::is_control) {
        return Err(InvalidTags::Control(key.to_owned()));
    }
    Ok(())
}

impl Tags {
    /// Checks pairs of keys and values; `None` when there are none. Looks at no more pairs than are
    /// allowed.
    ///
    /// # Errors
    /// The first bound that they exceed.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Option<Self>, InvalidTags> {
        let mut checked = BTreeMap::new();
        let mut bytes = 0;
        for (count, (key, value)) in pairs.into_iter().enumerate() {
            if count == TAGS_MAX {
                return Err(InvalidTags::Count);
            }
            let (key, value) = (key.as_ref(), value.as_ref());
            check(key, value)?;
            bytes += key.len() + value.len();
            if bytes > TAGS_BYTES_MAX {
                return Err(InvalidTags::Bytes);
            }
            if checked.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(InvalidTags::Twice(key.to_owned()));
            }
        }
        if checked.is_empty() {
            return Ok(None);
        }
        let lines: Vec<_> = checked.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Ok(Some(Self(Arc::new(lines.join("\n").into()))))
    }

    /// These tags with the key and the priority of a job as further ones.
    ///
    /// # Errors
    /// The first bound that they exceed.
    pub fn with_turn(tags: Option<Self>, turn: &Turn<'_>) -> Result<Option<Self>, InvalidTags> {
        let &Turn { key, priority } = turn;
        if key.is_none() && priority == 0 {
            return Ok(tags);
        }
        if key.is_some_and(|key| !is_job_key(key)) {
            return Err(InvalidTags::JobKey);
        }
        let priority = (priority > 0).then(|| priority.to_string());
        let key = key.map(|key| (JOB_KEY_TAG, key));
        let priority = priority.as_deref().map(|priority| (PRIORITY_TAG, priority));
        Self::new(tags.iter().flat_map(Self::iter).chain(key).chain(priority))
    }

    /// These tags with the time of the first of the submissions that replace each other.
    ///
    /// # Errors
    /// The first bound that they exceed.
    pub fn with_debounce(self, first_ms: u64) -> Result<Self, InvalidTags> {
        let others = self.iter().filter(|(key, _)| *key != DEBOUNCE_TAG);
        let first = first_ms.to_string();
        let tags = Self::new(others.chain([(DEBOUNCE_TAG, first.as_str())]))?;
        Ok(tags.unwrap_or(self))
    }

    /// The tags with this [text](Self::as_str).
    ///
    /// # Errors
    /// [`DamagedTags`] when the text was not made by this type.
    pub fn from_text(text: &str) -> Result<Self, DamagedTags> {
        let pairs = text.lines().map(|line| line.split_once('=').unwrap_or((line, "\n")));
        match Self::new(pairs) {
            Ok(Some(tags)) if tags.as_str() == text => Ok(tags),
            _ => Err(DamagedTags),
        }
    }

    /// A copy of the tags that is shared.
    pub fn from_shared(text: Arc<Box<str>>) -> Self {
        Self(text)
    }

    /// The text with all tags.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, to be shared.
    pub fn shared(&self) -> &Arc<Box<str>> {
        &self.0
    }

    /// The keys with their values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split('\n').filter_map(|line| line.split_once('='))
    }

    /// The value of the tag [`JOB_KEY_TAG`].
    pub fn job_key(&self) -> Option<&str> {
        self.value(JOB_KEY_TAG)
    }

    /// The priority of the job, by the tag [`PRIORITY_TAG`].
    pub fn priority(&self) -> u8 {
        let given = self.value(PRIORITY_TAG).and_then(|text| text.parse::<u64>().ok());
        given.map_or(0, |given| given.min(PRIORITY.max) as u8)
    }

    /// The time of the first of the submissions that replace each other, in milliseconds since
    /// 1970, by the tag [`DEBOUNCE_TAG`].
    pub fn debounced_since_ms(&self) -> Option<u64> {
        self.value(DEBOUNCE_TAG)?.parse().ok()
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.iter().find(|(it, _)| *it == key).map(|(_, value)| value)
    }

    /// Whether the job has this tag.
    pub fn has(&self, tag: &Tag) -> bool {
        self.iter().any(|(key, value)| (key, value) == (&*tag.key, &*tag.value))
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;
