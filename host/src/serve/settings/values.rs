//! The types of single settings. Each checks its text in one place, for the command line (clap),
//! the environment (clap) and the configuration file (serde).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::ValueParserFactory;
use gristmill_client::wire::settings::is_domain;
use gristmill_core::limits::{Bounds, OutOfBounds};
use gristmill_postgres::{DatabaseUrl, InvalidDatabaseUrl};
use serde::{Deserialize, Deserializer, de};
use tracing_subscriber::EnvFilter;

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Within<MIN, MAX> {
    /// The number `N`, which the compiler checks.
    #[must_use]
    pub const fn exactly<const N: u64>() -> Self {
        const { assert!(MIN <= N && N <= MAX, "the number is out of bounds") };
        Self(N)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number, or the greatest `u32`.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// The bytes of this many MiB.
    #[must_use]
    pub const fn mib_as_bytes(self) -> u64 {
        const { assert!(MAX <= u64::MAX >> 20, "the bytes do not fit into 64 bits") };
        self.0 << 20
    }

    /// The time of this many seconds.
    #[must_use]
    pub const fn as_seconds(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Display for Within<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: u64, const MAX: u64> ValueParserFactory for Within<MIN, MAX> {
    type Parser = fn(&str) -> Result<Self, OutOfBounds>;

    fn value_parser() -> Self::Parser {
        |text| Bounds { min: MIN, default: MIN, max: MAX }.parse(text).map(Self)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> de::Visitor<'_> for Number<MIN, MAX> {
            type Value = Within<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                if (MIN..=MAX).contains(&number) {
                    return Ok(Within(number));
                }
                Err(E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            // TOML has only signed numbers.
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
                }
            }
        }
        from.deserialize_u64(Number)
    }
}

/// A valid filter of the log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LogFilter(String);

impl LogFilter {
    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match EnvFilter::try_new(&text) {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(format!(
                "`{text}` is not a log filter: {error}; write a level, or a list such as \
                 `info,gristmill_dispatch=debug`"
            )),
        }
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

/// A brand, which completes names of fields and parameters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Brand(String);

impl Brand {
    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Brand {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_name = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if is_name {
            Ok(Self(text))
        } else {
            Err(format!("`{text}` is not a brand: only letters and digits"))
        }
    }
}

impl FromStr for Brand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

/// The URL of a database. It is shown without its password.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Database(DatabaseUrl);

impl Database {
    /// The URL.
    pub(crate) fn url(&self) -> &DatabaseUrl {
        &self.0
    }
}

impl TryFrom<String> for Database {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: InvalidDatabaseUrl| error.to_string())
    }
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

/// A domain, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Domain(String);

impl Domain {
    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Domain {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if !is_domain(&text) {
            return Err(format!(
                "`{text}` is not a domain: write `apps.example.com`, or `localhost`"
            ));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}
