//! A small generator: the same seed makes the same choices, as far as time allows.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate generator for a part of the load.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(among.len()).unwrap();
        if count == 0 { None } else { among.get(usize::try_from(self.below(count)).unwrap()) }
    }

    /// From `least` to `most` milliseconds.
    pub(crate) fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least + 1))
    }
}
