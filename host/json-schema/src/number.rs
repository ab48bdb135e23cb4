//! Numbers as JSON Schema compares them: by their value, so that 1 and 1.0 are equal.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Number;

/// A number of a schema or an input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Num {
    /// A whole number, also if it is written as `1.0` or `1e2`.
    Whole(i128),
    /// Any other number.
    Part(f64),
}

/// Whole numbers of floating point below this bound are exact as [`Num::Whole`].
const WHOLE_MAX: f64 = 1e37;

impl Num {
    pub(crate) fn of(number: &Number) -> Self {
        if let Some(whole) =
            number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
        {
            return Self::Whole(whole);
        }
        match number.as_f64().unwrap_or_default() {
            // It is whole, and within the range.
            part if part.fract() == 0.0 && part.abs() < WHOLE_MAX => Self::Whole(part as i128),
            part => Self::Part(part),
        }
    }

    pub(crate) fn is_whole(self) -> bool {
        match self {
            Self::Whole(_) => true,
            // Beyond the range, only whole numbers exist.
            Self::Part(part) => part.fract() == 0.0,
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Part(part) => part,
        }
    }

    pub(crate) fn is_multiple_of(self, of: Self) -> bool {
        match (self, of) {
            (Self::Whole(number), Self::Whole(of)) => of != 0 && number % of == 0,
            _ => {
                let times = self.as_f64() / of.as_f64();
                // 0.3 / 0.1 is 2.9999999999999996.
                let tolerance = times.abs() * 1e-14;
                times.is_finite() && (times - times.round()).abs() <= tolerance
            }
        }
    }
}

impl PartialOrd for Num {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(b)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Part(part) => part.fmt(f),
        }
    }
}
