//! The cost of usage: a price for each metered quantity, and the resulting credits.
//!
//! **Exact.** A price has at most nine digits after the point and is kept as a whole number of
//! nano-credits, without floating point. An amount is the exact sum of all items, rounded once,
//! half up, to a millionth of a credit. The sum of the amounts of a year's days may therefore
//! differ from the amount of the year by at most a millionth for each day.
//!
//! **Own code**, because `rust_decimal` has 28 digits: an exact part of a GiB needs 30, and the
//! greatest usage at the greatest price 35.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::billing::usage::UsageSum;

/// Digits after the point of a price.
const PRICE_DIGITS: usize = 9;

/// Nano-credits in one credit.
const NANO: u64 = 1_000_000_000;

/// The greatest price, in credits.
const PRICE_MAX: u64 = 1_000_000;

/// Nano-credits in the smallest amount.
const NANO_PER_MICRO: u128 = 1_000;

/// The credits for one unit of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    nano: u64,
}

/// The error for a text that is not a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a price is a number from 0 to {PRICE_MAX} with at most {PRICE_DIGITS} digits behind the point"
)]
pub struct InvalidPrice;

impl FromStr for Price {
    type Err = InvalidPrice;
    fn from_str(text: &str) -> Result<Self, InvalidPrice> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > PRICE_DIGITS {
            return Err(InvalidPrice);
        }
        let part: u64 = format!("{part:0<PRICE_DIGITS$}").parse().map_err(|_| InvalidPrice)?;
        let whole: u64 = whole.parse().map_err(|_| InvalidPrice)?;
        let nano = whole.checked_mul(NANO).and_then(|nano| nano.checked_add(part));
        nano.filter(|nano| *nano <= PRICE_MAX * NANO).map(|nano| Self { nano }).ok_or(InvalidPrice)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Decimal;
        impl Visitor<'_> for Decimal {
            type Value = Price;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Price, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Price, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Price, E> {
                self.visit_str(&number.to_string())
            }
            // The shortest decimal text of this number is the text in the file.
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Price, E> {
                self.visit_str(&number.to_string())
            }
        }
        from.deserialize_any(Decimal)
    }
}

/// The price table. Quantities without a price are free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Prices {
    /// For each attempt that counts.
    pub job: Price,
    /// For each second of execution.
    pub wall_second: Price,
    /// For each second of an attempt with 1 GiB of memory, by its greatest memory, in whole MiB.
    pub gb_second: Price,
    /// For each second in which a handler held a processor.
    pub cpu_second: Price,
    /// For each 10^9 units of fuel.
    pub giga_fuel: Price,
    /// For each GiB of inputs.
    pub gb_in: Price,
    /// For each GiB of outputs and chunks.
    pub gb_out: Price,
}

impl Prices {
    /// The cost of the usage.
    pub fn amount(&self, used: &UsageSum) -> Credits {
        const GIB: u64 = 1 << 30;
        // The quantity, the quantity of one unit, and the price of one unit.
        let items = [
            (used.jobs, 1, self.job),
            (used.wall_ms, 1_000, self.wall_second),
            (used.memory_mib_ms, 1_024 * 1_000, self.gb_second),
            (used.cpu_us, 1_000_000, self.cpu_second),
            (used.fuel, 1_000_000_000, self.giga_fuel),
            (used.bytes_in, GIB, self.gb_in),
            (used.bytes_out, GIB, self.gb_out),
        ];
        // All of those numbers divide this one: 2^30 times 5^9.
        const COMMON: u128 = (1 << 30) * 1_953_125;
        let (mut nano, mut rest) = (0_u128, 0_u128);
        for (count, per_unit, price) in items {
            let per_unit = u128::from(per_unit);
            let product = u128::from(count) * u128::from(price.nano);
            nano += product / per_unit;
            rest += product % per_unit * (COMMON / per_unit);
        }
        nano += rest / COMMON;
        let is_half = nano % NANO_PER_MICRO >= NANO_PER_MICRO / 2;
        Credits { micro: nano / NANO_PER_MICRO + u128::from(is_half) }
    }
}

/// An amount, in whole millionths of a credit. Its text is a decimal number without trailing zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Credits {
    micro: u128,
}

impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.micro / 1_000_000, self.micro % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let part = format!("{part:06}");
        write!(f, "{whole}.{}", part.trim_end_matches('0'))
    }
}

#[cfg(test)]
#[path = "price_tests.rs"]
mod tests;
