//! The size of the scenarios: a few seconds each, or the time in `OVERLOAD_SECONDS`, and then with
//! all their connections.

use std::time::Duration;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// How long the load lasts.
    pub(crate) lasts: Duration,
    /// Whether everything has its full size.
    pub(crate) is_full: bool,
}

impl Scale {
    /// The size of this run.
    pub(crate) fn of_this_run() -> Self {
        let text = std::env::var("OVERLOAD_SECONDS").unwrap_or_default();
        let seconds = (!text.is_empty()).then(|| text.parse().expect("OVERLOAD_SECONDS: seconds"));
        Self { lasts: Duration::from_secs(seconds.unwrap_or(8)), is_full: seconds.is_some() }
    }

    /// One number in a short run, another in a full one.
    pub(crate) fn choose<T>(self, short: T, full: T) -> T {
        if self.is_full { full } else { short }
    }
}
