//! The windows of charts.

/// A span of time up to now, in equal steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// 15 minutes in steps of 10 seconds.
    Minutes15,
    /// 6 hours in steps of 5 minutes.
    Hours6,
    /// 7 days in steps of 2 hours.
    Days7,
}

impl Window {
    /// All windows.
    pub const ALL: [Self; 3] = [Self::Minutes15, Self::Hours6, Self::Days7];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minutes15 => "15m",
            Self::Hours6 => "6h",
            Self::Days7 => "7d",
        }
    }

    /// The length of a step, in milliseconds.
    pub fn step_ms(self) -> u64 {
        match self {
            Self::Minutes15 => 10_000,
            Self::Hours6 => 5 * 60_000,
            Self::Days7 => 2 * 3_600_000,
        }
    }

    /// The number of closed steps.
    pub fn steps(self) -> usize {
        match self {
            Self::Minutes15 => 90,
            Self::Hours6 => 72,
            Self::Days7 => 84,
        }
    }

    /// The number of closed parts: minutes, hours or days.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::Minutes15 => 15,
            Self::Hours6 => 6,
            Self::Days7 => 7,
        }
    }

    /// The number of steps in a part.
    pub(super) fn part_steps(self) -> u64 {
        (self.steps() / self.parts()) as u64
    }

    pub(super) fn step_of(self, ms: u64) -> u64 {
        ms / self.step_ms()
    }
}
