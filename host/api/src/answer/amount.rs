//! Amounts of credits.

use gristmill_core::billing::price::Credits;
use gristmill_wire::management::Amount;

/// Credits with all their digits.
pub(crate) fn amount(credits: Credits) -> Amount {
    Amount::new(credits.to_string()).expect("credits are written as a JSON number")
}
