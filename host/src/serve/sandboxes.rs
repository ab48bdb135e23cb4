//! How many sandboxes a host has, when the operator does not set it. Read once, at the start.

use std::fs;

/// The mappings of memory that Linux gives a process.
const MAPPINGS_DEFAULT: u64 = 65_530;

/// Mappings of a sandbox: four for its stacks in both engines, and up to twelve while it runs.
const MAPPINGS_OF_SANDBOX: u64 = 16;

/// Mappings that are kept for all else of the process.
const MAPPINGS_OF_REST: u64 = 12_000;

/// Memory of sandboxes for each of them. After a handler has recursed deeply, the pages of its
/// stack stay with its slot, up to 1 MiB in each of both engines. With this number they are at most
/// 40 % of the memory of sandboxes, a quarter of the machine's memory by default. To return them
/// after each job would take 1.2 µs, 3 % of a small one.
const MEMORY_OF_SANDBOX: u64 = 5 << 20;

/// The default number of sandboxes that have so much memory together.
pub(super) fn default_number(budget: u64, most: u64) -> u32 {
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings = mappings.ok().and_then(|count| count.trim().parse().ok());
    sandboxes_of(budget, mappings.unwrap_or(MAPPINGS_DEFAULT), most)
}

fn sandboxes_of(budget: u64, mappings: u64, most: u64) -> u32 {
    let by_mappings = mappings.saturating_sub(MAPPINGS_OF_REST) / MAPPINGS_OF_SANDBOX;
    let sandboxes = (budget / MEMORY_OF_SANDBOX).min(by_mappings).clamp(1, most);
    u32::try_from(sandboxes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_follow_the_memory_and_the_mappings() {
        let cases = [
            (64 << 30, 65_530, 3_345),
            (64 << 30, 262_144, 4_096),
            (15 << 30, 65_530, 3_072),
            (2_560 << 20, 65_530, 512),
            (256 << 20, 65_530, 51),
            (1 << 10, 65_530, 1),
            (10 << 30, 100, 1),
        ];
        for (budget, mappings, expected) in cases {
            assert_eq!(sandboxes_of(budget, mappings, 4_096), expected, "{budget} {mappings}");
        }
    }
}
