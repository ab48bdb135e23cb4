//! Documents of settings: each setting stands in one row with its name, its default and its bounds.
//!
//! `settings!` makes two types of the rows. The settings have a value for each row, and are the
//! same in answers, in the host's memory and in its records: a record without a field, of a host
//! that did not have it, gets the default. The input has the fields that a client gives. A change
//! checks these fields alone: a bound that was lowered since does not prevent another change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::bounds::{
    Bounds, DOMAIN_BYTES_MAX, ENV_NAME_CHARS_MAX, ENV_VALUE_CHARS_MAX, ENV_VARIABLES_MAX,
    NAME_CHARS_MAX,
};

/// The error for a value that a field cannot have, in one sentence that begins with the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {fault}")]
pub struct InvalidField {
    field: String,
    fault: String,
}

impl InvalidField {
    /// The error of a field, which a sentence that goes on with `fault` describes.
    pub fn new(field: &str, fault: impl Into<String>) -> Self {
        Self { field: field.to_owned(), fault: fault.into() }
    }

    /// The same for a field of an object that is itself the field `outer`.
    pub(crate) fn below(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

/// Numbers with bounds.
pub trait Number: Sized {
    /// The number, if it is inside the bounds.
    fn within(given: u64, bounds: Bounds) -> Option<Self>;

    /// The default of the bounds.
    fn default_of(bounds: Bounds) -> Self
    where
        Self: Default,
    {
        Self::within(bounds.default, bounds).unwrap_or_default()
    }
}

impl Number for u64 {
    fn within(given: u64, bounds: Bounds) -> Option<Self> {
        bounds.contains(given).then_some(given)
    }
}

impl Number for u32 {
    fn within(given: u64, bounds: Bounds) -> Option<Self> {
        u64::within(given, bounds).and_then(|number| number.try_into().ok())
    }
}

/// 0 stands for no number.
impl<T: Number> Number for Option<T> {
    fn within(given: u64, bounds: Bounds) -> Option<Self> {
        match given {
            0 => Some(None),
            number => T::within(number, bounds).map(Some),
        }
    }
}

/// The number, if it is inside its bounds; for an optional one 0 stands for none.
///
/// # Errors
/// With the bounds.
pub fn number<T: Number>(field: &str, given: u64, bounds: Bounds) -> Result<T, InvalidField> {
    T::within(given, bounds).ok_or_else(|| {
        let Bounds { min, max, .. } = bounds;
        InvalidField::new(field, format!("must be {min} to {max}, not {given}"))
    })
}

/// Checks the length of a text.
///
/// # Errors
/// When it has more than `chars_max` characters.
pub fn check_text(field: &str, text: &str, chars_max: usize) -> Result<(), InvalidField> {
    // A text has at most as many characters as bytes, so most texts need no count.
    if text.len() > chars_max && text.chars().nth(chars_max).is_some() {
        let fault = format!("has more than {chars_max} characters, the most allowed");
        return Err(InvalidField::new(field, fault));
    }
    Ok(())
}

/// Checks the length of a list or an object.
///
/// # Errors
/// When it has more than `count_max` entries.
pub fn check_count(field: &str, count: usize, count_max: usize) -> Result<(), InvalidField> {
    if count > count_max {
        let fault = format!("has {count} entries; at most {count_max} are allowed");
        return Err(InvalidField::new(field, fault));
    }
    Ok(())
}

/// The same as a check of lists.
pub(crate) fn at_most<T>(count_max: usize) -> impl Fn(&str, &Vec<T>) -> Result<(), InvalidField> {
    move |field, list| check_count(field, list.len(), count_max)
}

/// Checks an environment. A handler gets each variable as `NAME=VALUE` with a NUL at its end, and
/// would see another name or value if these characters were in one of them.
///
/// # Errors
/// When it has too many variables, or one of them is too long or has such a character.
pub fn check_env(field: &str, env: &BTreeMap<String, String>) -> Result<(), InvalidField> {
    check_count(field, env.len(), ENV_VARIABLES_MAX)?;
    for (name, value) in env {
        let is_long = name.chars().nth(ENV_NAME_CHARS_MAX).is_some();
        if name.is_empty() || is_long || name.contains(['=', '\0']) {
            let fault = format!(
                "has a variable `{}`; a name has 1 to {ENV_NAME_CHARS_MAX} characters, and neither \
                 `=` nor NUL",
                format!("{name:.99}").escape_debug(),
            );
            return Err(InvalidField::new(field, fault));
        }
        let of_variable = format!("{field}.{name}");
        check_text(&of_variable, value, ENV_VALUE_CHARS_MAX)?;
        if value.contains('\0') {
            return Err(InvalidField::new(&of_variable, "has a NUL, which no value can have"));
        }
    }
    Ok(())
}

/// Whether the text is a domain: a host name, and no address.
pub fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= DOMAIN_BYTES_MAX
        && text.split('.').all(is_label)
        && text.parse::<IpAddr>().is_err()
}

/// Checks a display name.
///
/// # Errors
/// When it is empty or too long.
pub fn check_name(field: &str, name: &str) -> Result<(), InvalidField> {
    if name.is_empty() || name.chars().nth(NAME_CHARS_MAX).is_some() {
        let fault = format!("is required and has 1 to {NAME_CHARS_MAX} characters");
        return Err(InvalidField::new(field, fault));
    }
    Ok(())
}

/// The name of a field in a document.
pub(crate) fn camel_case(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1);
        name + &initial.to_ascii_uppercase() + rest
    })
}

/// Defines a document of settings, and the input that changes it. The rows are in four groups, each
/// of which may be empty:
///
/// * `numbers { name: u32, BOUNDS = Bounds { … }; }`: the bounds, with the default, become a
///   constant of the settings.
/// * `optional { name: u32, BOUNDS = Bounds { … }; }`: numbers that can be absent, as they are by
///   default. An input with 0 removes the number.
/// * `values { name: Type as Schema = default, check; }`: other values. The schema of that name in
///   [`schema`](crate::schema), and the check, a function of the field's name and the value, can be
///   left out.
/// * `objects { name: Type, Input; }`: documents of settings in their turn.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $settings:ident;

        $(#[$input_about:meta])*
        pub struct $input:ident { $($own:tt)* }

        numbers { $(
            $(#[$number_about:meta])*
            $number:ident: $number_type:ident, $number_bounds:ident = $number_in:expr;
        )* }
        optional { $(
            $(#[$optional_about:meta])*
            $optional:ident: $optional_type:ident, $optional_bounds:ident = $optional_in:expr;
        )* }
        values { $(
            $(#[$value_about:meta])*
            $value:ident: $value_type:ty $(as $schema:ident)? = $default:expr $(, $check:expr)?;
        )* }
        objects { $(
            $(#[$object_about:meta])*
            $object:ident: $object_type:ident, $object_input:ident;
        )* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", default)]
        pub struct $settings {
            $(
                $(#[$number_about])*
                #[cfg_attr(feature = "openapi", schema(required))]
                pub $number: $number_type,
            )*
            $(
                $(#[$value_about])*
                #[cfg_attr(feature = "openapi", schema(required))]
                $(#[cfg_attr(feature = "openapi", schema(value_type = $crate::schema::$schema))])?
                pub $value: $value_type,
            )*
            $(
                $(#[$object_about])*
                #[cfg_attr(feature = "openapi", schema(required))]
                pub $object: $object_type,
            )*
            $(
                $(#[$optional_about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                #[cfg_attr(feature = "openapi", schema(value_type = $optional_type))]
                pub $optional: Option<$optional_type>,
            )*
        }

        impl Default for $settings {
            fn default() -> Self {
                Self {
                    $($number: $crate::settings::Number::default_of(Self::$number_bounds),)*
                    $($optional: None,)*
                    $($value: $default,)*
                    $($object: $object_type::default(),)*
                }
            }
        }

        impl $settings {
            $(
                #[doc = concat!("Bounds and default of `", stringify!($number), "`.")]
                pub const $number_bounds: $crate::bounds::Bounds = $number_in;
            )*
            $(
                #[doc = concat!("Bounds of `", stringify!($optional), "`.")]
                pub const $optional_bounds: $crate::bounds::Bounds = $optional_in;
            )*

            /// Takes the fields that are given.
            ///
            /// # Errors
            /// For the first field with a value that it cannot have; the settings are useless then.
            pub(crate) fn take(&mut self, given: $input) -> Result<(), InvalidField> {
                let name = $crate::settings::camel_case;
                $(if let Some(given) = given.$number {
                    let (field, bounds) = (name(stringify!($number)), Self::$number_bounds);
                    self.$number = $crate::settings::number(&field, given, bounds)?;
                })*
                $(if let Some(given) = given.$optional {
                    let (field, bounds) = (name(stringify!($optional)), Self::$optional_bounds);
                    self.$optional = $crate::settings::number(&field, given, bounds)?;
                })*
                $(if let Some(given) = given.$value {
                    $($check(&name(stringify!($value)), &given)?;)?
                    self.$value = given;
                })*
                $(if let Some(given) = given.$object {
                    let outer = name(stringify!($object));
                    self.$object.take(given).map_err(|error| error.below(&outer))?;
                })*
                Ok(())
            }
        }

        $(#[$input_about])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
        pub struct $input {
            $($own)*
            $(
                $(#[$number_about])*
                #[serde(
                    default,
                    deserialize_with = "crate::whole_number::optional",
                    skip_serializing_if = "Option::is_none"
                )]
                #[cfg_attr(feature = "openapi", schema(inline, value_type = Option<$crate::schema::Whole<
                    { $settings::$number_bounds.min }, { $settings::$number_bounds.max }
                >>))]
                pub $number: Option<u64>,
            )*
            $(
                $(#[$value_about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                $(#[cfg_attr(feature = "openapi", schema(value_type = Option<$crate::schema::$schema>))])?
                pub $value: Option<$value_type>,
            )*
            $(
                $(#[$object_about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $object: Option<$object_input>,
            )*
            $(
                $(#[$optional_about])*
                /// 0 removes the number.
                #[serde(
                    default,
                    deserialize_with = "crate::whole_number::optional",
                    skip_serializing_if = "Option::is_none"
                )]
                #[cfg_attr(feature = "openapi", schema(inline, value_type = Option<$crate::schema::ZeroOr<
                    { $settings::$optional_bounds.min }, { $settings::$optional_bounds.max }
                >>))]
                pub $optional: Option<u64>,
            )*
        }

        $crate::json_object::only_objects!($input);
    };
}
pub(crate) use settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_one_name_in_documents() {
        for (field, expected) in [("env", "env"), ("workers_max", "workersMax"), ("a_b_cd", "aBCd")]
        {
            assert_eq!(camel_case(field), expected);
        }
    }
}
