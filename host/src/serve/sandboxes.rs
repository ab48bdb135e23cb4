//! How many sandboxes a host has, when the operator does not set it. Read once, at the start.

use std::fs;

/// The mappings of memory that Linux gives a process.
const MAPPINGS_DEFAULT: u64 = 65_530;

/// Mappings of a sandbox: four for its stacks in both engines, and up to twelve while it runs.
const MAPPINGS_OF_SANDBOX: u64 = 16;

/// Mappings that are kept for all else of the process.
const MAPPINGS_OF_REST: u64 = 12_000;

/// The default number of sandboxes that have so much memory together: one for each MiB, since few
/// handlers have less, and no more than the system has mappings for.
pub(super) fn default_number(budget: u64, most: u64) -> u32 {
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings = mappings.ok().and_then(|count| count.trim().parse().ok());
    sandboxes_of(budget, mappings.unwrap_or(MAPPINGS_DEFAULT), most)
}

fn sandboxes_of(budget: u64, mappings: u64, most: u64) -> u32 {
    let by_mappings = mappings.saturating_sub(MAPPINGS_OF_REST) / MAPPINGS_OF_SANDBOX;
    let sandboxes = (budget >> 20).min(by_mappings).clamp(1, most);
    u32::try_from(sandboxes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_follow_the_memory_and_the_mappings() {
        let cases = [
            (10 << 30, 65_530, 3_345),
            (10 << 30, 262_144, 4_096),
            (2_560 << 20, 65_530, 2_560),
            (256 << 20, 65_530, 256),
            (1 << 10, 65_530, 1),
            (10 << 30, 100, 1),
        ];
        for (budget, mappings, expected) in cases {
            assert_eq!(sandboxes_of(budget, mappings, 4_096), expected, "{budget} {mappings}");
        }
    }
}
