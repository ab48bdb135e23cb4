//! The metering of handlers.

use crate::words::words;

words! {
    /// How a handler's computation is metered. Timeouts and cancellation work with either.
    #[derive(Hash, Default)]
    pub enum Metering {
        /// Every instruction counts against a budget, and the job's usage shows the sum.
        #[default]
        Fuel = "fuel",
        /// Only time counts, and a handler runs faster: no code counts its instructions.
        Epoch = "epoch",
    }
}
