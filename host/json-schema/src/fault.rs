//! The first fault of an input, as one sentence for the client: the position, the rule and the
//! allowed values.

use std::fmt;

use serde_json::Value;

use crate::number::Num;
use crate::rules::{Check, Kinds, Object};

/// Most characters of a name or a text of the input in a sentence.
const SHOWN_CHARS_MAX: usize = 64;

/// Most allowed values, or names, in a sentence.
const LISTED_MAX: usize = 16;

/// Most parts of a position in a sentence.
const PARTS_MAX: usize = 32;

/// A step from a value to one of its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PathStep<'a> {
    Member(&'a str),
    Item(usize),
}

/// A value that breaks a rule.
#[derive(Debug)]
pub(crate) struct Fault<'a> {
    /// The name of the checked value, such as `input`.
    pub(crate) name: &'a str,
    /// From the checked value to the value with the fault.
    pub(crate) path: Vec<PathStep<'a>>,
    pub(crate) rule: Rule<'a>,
    pub(crate) found: &'a Value,
}

/// The broken rule.
#[derive(Debug)]
pub(crate) enum Rule<'a> {
    /// The value itself breaks it.
    Check(&'a Check),
    /// A field that must be there.
    Missing(&'a str),
    /// A field that is needed beside another one.
    MissingBeside(&'a str, &'a str),
    /// A field that must not be there.
    Unknown(&'a str, &'a Object),
    /// An item that must not be there.
    TooMany(usize),
    /// A field whose name does not fit.
    BadName(&'a str),
    /// Two items are equal.
    Repeated,
    /// No alternative fits; those that were nearest allow these kinds.
    NoKind(Kinds),
    /// So many alternatives fit.
    Fits(usize),
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ", Path(self.name, &self.path))?;
        match &self.rule {
            Rule::Missing(name) => write!(f, "must have the field `{}` (`required`)", Cut(name)),
            Rule::MissingBeside(name, beside) => write!(
                f,
                "must have the field `{}` beside `{}` (`dependentRequired`)",
                Cut(name),
                Cut(beside)
            ),
            Rule::Unknown(name, object) => unknown(f, name, object),
            Rule::BadName(name) => {
                write!(f, "must not have a field with the name `{}` (`propertyNames`)", Cut(name))
            }
            Rule::TooMany(most) => write!(f, "must have at most {most} items (`items`)"),
            Rule::Repeated => write!(f, "must have no item twice (`uniqueItems`)"),
            Rule::NoKind(kinds) => write!(f, "must be {kinds} (`type`), not {}", Shown(self.found)),
            Rule::Fits(0) => write!(f, "must fit one of its alternatives (`anyOf`)"),
            Rule::Fits(count) => {
                write!(f, "must fit exactly one of its alternatives, not {count} (`oneOf`)")
            }
            Rule::Check(check) => broken(f, check, self.found),
        }
    }
}

fn unknown(f: &mut fmt::Formatter<'_>, name: &str, object: &Object) -> fmt::Result {
    write!(f, "must not have the field `{}` (`additionalProperties`)", Cut(name))?;
    if object.named.is_empty() {
        return Ok(());
    }
    let names: Vec<_> =
        object.named.keys().take(LISTED_MAX).map(|name| format!("`{}`", Cut(name))).collect();
    let more = if object.named.len() > LISTED_MAX { " and others" } else { "" };
    write!(f, "; allowed: {}{more}", names.join(", "))
}

fn broken(f: &mut fmt::Formatter<'_>, check: &Check, found: &Value) -> fmt::Result {
    let shown = Shown(found);
    match check {
        Check::Never => write!(f, "must not be there (`false`)"),
        Check::Kinds(kinds) => write!(f, "must be {kinds} (`type`), not {shown}"),
        Check::OneOfValues { shown: values, .. } if values.len() == 1 => {
            write!(f, "must be {} (`const`), not {shown}", values.join(""))
        }
        Check::OneOfValues { shown: values, .. } => {
            let listed = values.iter().take(LISTED_MAX).map(String::as_str);
            let more = if values.len() > LISTED_MAX { ", …" } else { "" };
            let listed = listed.collect::<Vec<_>>().join(", ");
            write!(f, "must be one of {listed}{more} (`enum`), not {shown}")
        }
        Check::Least(least) => write!(f, "must be at least {least} (`minimum`), not {shown}"),
        Check::Most(most) => write!(f, "must be at most {most} (`maximum`), not {shown}"),
        Check::Above(least) => {
            write!(f, "must be greater than {least} (`exclusiveMinimum`), not {shown}")
        }
        Check::Below(most) => {
            write!(f, "must be less than {most} (`exclusiveMaximum`), not {shown}")
        }
        Check::MultipleOf(of) => {
            write!(f, "must be a multiple of {of} (`multipleOf`), not {shown}")
        }
        Check::CharsLeast(least) => {
            write!(f, "must have at least {least} characters (`minLength`), not {}", chars(found))
        }
        Check::CharsMost(most) => {
            write!(f, "must have at most {most} characters (`maxLength`), not {}", chars(found))
        }
        Check::Pattern(pattern) => {
            write!(f, "must match `{}` (`pattern`), not {shown}", Cut(pattern.text()))
        }
        Check::ItemsLeast(least) => {
            write!(f, "must have at least {least} items (`minItems`), not {}", items(found))
        }
        Check::ItemsMost(most) => {
            write!(f, "must have at most {most} items (`maxItems`), not {}", items(found))
        }
        Check::FieldsLeast(least) => {
            write!(f, "must have at least {least} fields (`minProperties`), not {}", fields(found))
        }
        Check::FieldsMost(most) => {
            write!(f, "must have at most {most} fields (`maxProperties`), not {}", fields(found))
        }
        Check::Contains { least, most: None, .. } => {
            write!(f, "must contain at least {least} items of the required form (`contains`)")
        }
        Check::Contains { least, most: Some(most), .. } => {
            write!(f, "must contain {least} to {most} items of the required form (`contains`)")
        }
        Check::Not(_) => write!(f, "must not have this form (`not`): {shown}"),
        // Those with parts report the fault of the part.
        _ => write!(f, "does not fit the schema"),
    }
}

fn chars(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.chars().count())
}

fn items(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn fields(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

/// A position, such as `input.items[1].count`.
struct Path<'a>(&'a str, &'a [PathStep<'a>]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, parts) = self;
        f.write_str(name)?;
        for part in parts.iter().take(PARTS_MAX) {
            match part {
                PathStep::Member(name) => write!(f, ".{}", Cut(name))?,
                PathStep::Item(index) => write!(f, "[{index}]")?,
            }
        }
        if parts.len() > PARTS_MAX { f.write_str("…") } else { Ok(()) }
    }
}

/// A text without control characters, cut.
struct Cut<'a>(&'a str);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for char in chars.by_ref().take(SHOWN_CHARS_MAX) {
            write!(f, "{}", if char.is_control() { ' ' } else { char })?;
        }
        if chars.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// A value in a sentence: a plain one as it is, and the kind of any other.
pub(crate) struct Shown<'a>(pub(crate) &'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => value.fmt(f),
            Value::Number(number) => Num::of(number).fmt(f),
            Value::String(text) => write!(f, "\"{}\"", Cut(text)),
            Value::Array(_) => f.write_str("a list"),
            Value::Object(_) => f.write_str("an object"),
        }
    }
}
