//! The rules of a schema, ready to be applied.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde_json::Value;

use crate::number::Num;
use crate::pattern::Pattern;

/// The index of a part of a schema.
pub(crate) type NodeId = usize;

/// A schema that is ready to check inputs.
#[derive(Debug)]
pub struct InputSchema {
    pub(crate) nodes: Vec<Vec<Check>>,
    pub(crate) root: NodeId,
    /// About the bytes that it takes.
    pub(crate) bytes: usize,
}

/// One rule of a node.
#[derive(Debug)]
pub(crate) enum Check {
    /// The schema `false`.
    Never,
    Kinds(Kinds),
    /// `enum` and `const`: the canonical bytes, and how a sentence shows them.
    OneOfValues {
        values: HashSet<Vec<u8>>,
        shown: Vec<String>,
    },
    Least(Num),
    Most(Num),
    Above(Num),
    Below(Num),
    MultipleOf(Num),
    CharsLeast(u64),
    CharsMost(u64),
    Pattern(Box<Pattern>),
    ItemsLeast(u64),
    ItemsMost(u64),
    Unique,
    Items {
        first: Vec<NodeId>,
        rest: Option<NodeId>,
    },
    Contains {
        node: NodeId,
        least: u64,
        most: Option<u64>,
    },
    FieldsLeast(u64),
    FieldsMost(u64),
    Required(Vec<String>),
    Beside(Vec<(String, Vec<String>)>),
    Object(Object),
    Names(NodeId),
    IfPresent(Vec<(String, NodeId)>),
    All(Vec<NodeId>),
    Any(Vec<NodeId>),
    One(Vec<NodeId>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
}

/// `properties`, `patternProperties` and `additionalProperties`.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) named: BTreeMap<String, NodeId>,
    pub(crate) patterns: Vec<(Pattern, NodeId)>,
    pub(crate) rest: Rest,
}

/// The rule for all other fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rest {
    Allowed,
    Refused,
    Node(NodeId),
}

/// A set of the kinds of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

impl Kinds {
    const NAMES: [(&'static str, &'static str); 7] = [
        ("null", "null"),
        ("boolean", "true or false"),
        ("integer", "an integer"),
        ("number", "a number"),
        ("string", "a string"),
        ("array", "a list"),
        ("object", "an object"),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        let position = Self::NAMES.iter().position(|(named, _)| *named == name)?;
        Some(Self(1 << position))
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, value: &Value) -> bool {
        let bits = match value {
            Value::Null => 1,
            Value::Bool(_) => 1 << 1,
            Value::Number(number) if Num::of(number).is_whole() => (1 << 2) | (1 << 3),
            Value::Number(_) => 1 << 3,
            Value::String(_) => 1 << 4,
            Value::Array(_) => 1 << 5,
            Value::Object(_) => 1 << 6,
        };
        self.0 & bits != 0
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        let names: Vec<_> = names.map(|(_, (_, shown))| *shown).collect();
        f.write_str(&names.join(" or "))
    }
}
