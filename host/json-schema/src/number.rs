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

    /// Whether the number divided by `of` is whole, by their decimal digits: in floating point the
    /// quotient of 0.3 and 0.1 is 2.9999999999999996, and that of 1e308 and 0.5 infinite.
    pub(crate) fn is_multiple_of(self, of: Self) -> bool {
        let ((number, exponent), (of, of_exponent)) = (self.decimal(), of.decimal());
        if number == 0 || of == 0 {
            return of != 0;
        }
        // Without zeros at its end, the number has no factor of 10.
        let Ok(mut tens) = u32::try_from(exponent - of_exponent) else { return false };
        // By squares, since there are up to 650 tens; both factors are below 2^64.
        let (mut rest, mut power) = (number % of, 10 % of);
        while tens > 0 {
            if tens % 2 == 1 {
                rest = rest * power % of;
            }
            power = power * power % of;
            tens /= 2;
        }
        rest == 0
    }

    /// The digits without sign and without zeros at their end, below 2^64, and the power of ten of
    /// the last one. For floating point these are the shortest digits that stand for it.
    fn decimal(self) -> (u128, i32) {
        let (mut digits, mut exponent) = match self {
            Self::Whole(whole) if u64::try_from(whole.unsigned_abs()).is_ok() => {
                (whole.unsigned_abs(), 0)
            }
            _ => {
                let text = format!("{:e}", self.as_f64().abs());
                let (digits, exponent) = text.split_once('e').unwrap_or_default();
                let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
                let exponent = exponent.parse().unwrap_or(0) - part.len() as i32;
                (format!("{whole}{part}").parse().unwrap_or(0), exponent)
            }
        };
        while digits != 0 && digits % 10 == 0 {
            (digits, exponent) = (digits / 10, exponent + 1);
        }
        (digits, exponent)
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
