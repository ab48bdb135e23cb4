//! The metering of handlers.

use serde::{Deserialize, Serialize};

/// How a handler's computation is metered. Timeouts and cancellation work with either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metering {
    /// Every instruction counts against a budget, and the job's usage shows the sum.
    #[default]
    Fuel,
    /// Only time counts, and a handler runs faster: no code counts its instructions.
    Epoch,
}

impl Metering {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Fuel, Self::Epoch];

    /// The metering's name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Epoch => "epoch",
        }
    }
}
