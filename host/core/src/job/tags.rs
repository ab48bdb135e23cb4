//! The tags of a job: pairs of a key and a value, by which clients find their jobs again. Handlers
//! do not see them, and the host gives them no meaning.
//!
//! **Bounds.** [`TAGS_MAX`] pairs, [`TAG_KEY_BYTES_MAX`] and [`TAG_VALUE_BYTES_MAX`] bytes for
//! each, and [`TAGS_BYTES_MAX`] for all. **Cost.** A thin pointer for each job; the text is in one
//! allocation, which jobs of an owner with the same tags share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gristmill_wire::bounds::{TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_BYTES_MAX, TAGS_MAX};
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Tags>, InvalidTags> {
        Tags::new(pairs.iter().copied())
    }

    #[test]
    fn tags_are_in_the_order_of_their_keys() {
        let tags = of(&[("team", "a=b"), ("env", ""), ("a/b.c_d-1", "é %_")]).unwrap().unwrap();
        assert_eq!(tags.as_str(), "a/b.c_d-1=é %_\nenv=\nteam=a=b");
        let pairs: Vec<_> = tags.iter().collect();
        assert_eq!(pairs, [("a/b.c_d-1", "é %_"), ("env", ""), ("team", "a=b")]);
        assert!(tags.has(&Tag::new("team", "a=b").unwrap()));
        assert!(!tags.has(&Tag::new("team", "a").unwrap()));
        assert!(!tags.has(&Tag::new("team", "").unwrap()));
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(size_of::<Option<Tags>>(), 8);
    }

    #[test]
    fn each_bound_is_checked() {
        let key = "k".repeat(TAG_KEY_BYTES_MAX);
        let value = "v".repeat(TAG_VALUE_BYTES_MAX);
        assert!(of(&[(&key, &value)]).is_ok());
        for wrong in ["", &format!("{key}k"), "A", "a b", "é", "a=b", "a:b", "a\n"] {
            assert_eq!(of(&[(wrong, "v")]), Err(InvalidTags::Key), "{wrong:?}");
        }
        let bytes = TAG_VALUE_BYTES_MAX + 1;
        let long = InvalidTags::Value { key: "k".to_owned(), bytes };
        assert_eq!(of(&[("k", &format!("{value}v"))]), Err(long));
        for wrong in ["\n", "a\u{0}b", "\u{85}"] {
            assert_eq!(of(&[("k", wrong)]), Err(InvalidTags::Control("k".to_owned())), "{wrong:?}");
        }
        assert_eq!(of(&[("k", "1"), ("k", "1")]), Err(InvalidTags::Twice("k".to_owned())));
        let keys: Vec<_> = (0..=TAGS_MAX).map(|n| format!("k{n}")).collect();
        let count = |number: usize| Tags::new(keys.iter().take(number).map(|key| (key, "v")));
        assert!(count(TAGS_MAX).is_ok());
        assert_eq!(count(TAGS_MAX + 1), Err(InvalidTags::Count));
        let all = |bytes: usize| {
            let value = "v".repeat(254);
            let mut pairs: Vec<_> = (0..8).map(|n| (format!("{n:02}"), value.clone())).collect();
            pairs.last_mut().unwrap().1.push_str(&"v".repeat(bytes));
            Tags::new(pairs)
        };
        assert!(all(0).is_ok());
        assert_eq!(all(1), Err(InvalidTags::Bytes));
    }

    #[test]
    fn no_more_pairs_are_read_than_are_allowed() {
        let endless = (0..).map(|n| (format!("k{n}"), "v"));
        assert_eq!(Tags::new(endless), Err(InvalidTags::Count));
    }

    #[test]
    fn a_damaged_text_is_refused() {
        for text in
            ["", "a", "b=1\na=2", "a=1\n", "a=1\n\nb=2", "a=1\na=1", "A=1", "=1", "a=\r\nb=1"]
        {
            assert!(Tags::from_text(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_has_its_tags(pairs in proptest::collection::btree_map("[a-z0-9._/-]{1,8}", "[ -~é]{0,9}", 1..9)) {
            let tags = Tags::new(&pairs).unwrap().unwrap();
            prop_assert_eq!(&Tags::from_text(tags.as_str()).unwrap(), &tags);
            let read = tags.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
            prop_assert_eq!(read.collect::<BTreeMap<_, _>>(), pairs);
        }
    }
}
