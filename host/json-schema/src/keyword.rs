//! The keywords of a schema, and the values that they may have.

use serde_json::{Map, Value};

use crate::canonical::canonical;
use crate::fault::Shown;
use crate::number::Num;
use crate::rules::{Check, Kinds};

/// A part of the schema, or one sentence that says where it is wrong.
pub(crate) type Read<T> = Result<T, String>;

/// A keyword's value with its position in the schema.
pub(crate) struct Keyword<'s, 'p> {
    pub(crate) name: &'s str,
    pub(crate) value: &'s Value,
    pub(crate) at: &'p str,
}

impl<'s> Keyword<'s, '_> {
    pub(crate) fn wrong<T>(&self, allowed: &str) -> Read<T> {
        Err(format!("`{}/{}` must be {allowed}, not {}", self.at, self.name, Shown(self.value)))
    }

    pub(crate) fn object(&self) -> Read<&'s Map<String, Value>> {
        self.value.as_object().map_or_else(|| self.wrong("an object"), Ok)
    }

    pub(crate) fn list(&self) -> Read<&'s Vec<Value>> {
        self.value.as_array().map_or_else(|| self.wrong("a list"), Ok)
    }

    pub(crate) fn number(&self) -> Read<Num> {
        match self.value {
            Value::Number(number) => Ok(Num::of(number)),
            _ => self.wrong("a number"),
        }
    }

    pub(crate) fn count(&self) -> Read<u64> {
        match self.value {
            Value::Number(number) => match Num::of(number) {
                Num::Whole(count) if count >= 0 => Ok(u64::try_from(count).unwrap_or(u64::MAX)),
                _ => self.wrong("a whole number from 0 on"),
            },
            _ => self.wrong("a whole number from 0 on"),
        }
    }

    pub(crate) fn text(&self) -> Read<&'s str> {
        self.value.as_str().map_or_else(|| self.wrong("a string"), Ok)
    }

    pub(crate) fn names(&self) -> Read<Vec<String>> {
        let names = self.list()?.iter().map(|name| name.as_str().map(str::to_owned));
        names.collect::<Option<_>>().map_or_else(|| self.wrong("a list of strings"), Ok)
    }
}

/// The position of a keyword's value.
pub(crate) fn below(keyword: &Keyword<'_, '_>) -> String {
    let name = keyword.name.replace('~', "~0").replace('/', "~1");
    format!("{}/{name}", keyword.at)
}

pub(crate) fn count(beside: &Map<String, Value>, name: &str, at: &str) -> Read<Option<u64>> {
    beside.get(name).map(|value| Keyword { name, value, at }.count()).transpose()
}

pub(crate) fn kinds(keyword: &Keyword<'_, '_>) -> Read<Kinds> {
    let allowed = "one or a list of null, boolean, integer, number, string, array and object";
    let named = |value: &Value| value.as_str().and_then(Kinds::named);
    let kinds = match keyword.value {
        Value::Array(list) => list
            .iter()
            .try_fold(Kinds::default(), |all, value| named(value).map(|kinds| all.with(kinds))),
        value => named(value),
    };
    kinds.filter(|kinds| *kinds != Kinds::default()).map_or_else(|| keyword.wrong(allowed), Ok)
}

pub(crate) fn one_of(values: &[Value]) -> Check {
    Check::OneOfValues {
        values: values.iter().map(canonical).collect(),
        shown: values.iter().map(|value| Shown(value).to_string()).collect(),
    }
}

/// Refuses a dialect in which keywords mean something else.
pub(crate) fn dialect(keyword: &Keyword<'_, '_>) -> Read<Option<Check>> {
    const KNOWN: [&str; 4] =
        ["draft/2020-12/schema", "draft/2019-09/schema", "draft-07/schema", "draft-06/schema"];
    let name = keyword.text()?;
    let path = name.trim_end_matches('#').split_once("://json-schema.org/").map(|(_, path)| path);
    match path.is_some_and(|path| KNOWN.contains(&path)) {
        true => Ok(None),
        false => keyword.wrong("that of draft 2020-12, 2019-09, 7 or 6"),
    }
}
