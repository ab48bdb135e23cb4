//! The memories and tables of one job. Wasmtime asks before each grows; the sums over the whole
//! store are kept here, since a component may have several memories.

use wasmtime::{ResourceLimiter, Result};

/// Core instances of a job. Python needs 14, JavaScript 8, Rust 3.
pub(crate) const INSTANCES_MAX: u32 = 40;

/// Memories of a job.
pub(crate) const MEMORIES_MAX: u32 = 4;

/// Tables of a job.
pub(crate) const TABLES_MAX: u32 = 8;

/// Elements of all tables of a job together; each takes 8 bytes of the host.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Counts and bounds the memory of a job.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_bytes_max: u64,
    memory_bytes: u64,
    memory_bytes_peak: u64,
    table_elements: usize,
    hit_memory_limit: bool,
}

impl Limiter {
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        Self {
            memory_bytes_max,
            memory_bytes: 0,
            memory_bytes_peak: 0,
            table_elements: 0,
            hit_memory_limit: false,
        }
    }

    /// The limit, in bytes.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    /// Greatest sum of all memories so far, in bytes.
    pub(crate) fn memory_bytes_peak(&self) -> u64 {
        self.memory_bytes_peak
    }

    /// The sum of all memories now, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Starts again from the present sums: for the next job of the same instance.
    pub(crate) fn begin(&mut self) {
        self.memory_bytes_peak = self.memory_bytes;
        self.hit_memory_limit = false;
    }

    /// Whether the job's last attempt to grow was refused. A trap after that is the handler's
    /// reaction.
    pub(crate) fn hit_memory_limit(&self) -> bool {
        self.hit_memory_limit
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let sum = self.memory_bytes + desired.saturating_sub(current) as u64;
        let is_within_limit = sum <= self.memory_bytes_max;
        self.hit_memory_limit = !is_within_limit;
        // Beyond the memory's own maximum wasmtime refuses by itself, and nothing grows.
        let grows = is_within_limit && maximum.is_none_or(|maximum| desired <= maximum);
        if grows {
            self.memory_bytes = sum;
            self.memory_bytes_peak = self.memory_bytes_peak.max(sum);
        }
        Ok(is_within_limit)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool> {
        let sum = self.table_elements.saturating_add(desired.saturating_sub(current));
        let is_within_limit = sum <= TABLE_ELEMENTS_MAX;
        if is_within_limit {
            self.table_elements = sum;
        }
        Ok(is_within_limit)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_summed_and_the_peak_is_kept() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, Some(50)).unwrap());
        assert_eq!(limiter.memory_bytes_peak(), 100);
        assert!(!limiter.hit_memory_limit());
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert!(limiter.hit_memory_limit());
        assert_eq!(limiter.memory_bytes_peak(), 100);
    }

    #[test]
    fn growth_that_wasmtime_refuses_is_not_counted() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.memory_growing(0, 60, Some(50)).unwrap());
        assert_eq!(limiter.memory_bytes_peak(), 0);
    }

    #[test]
    fn table_elements_are_summed() {
        let mut limiter = Limiter::new(0);
        assert!(limiter.table_growing(0, TABLE_ELEMENTS_MAX - 1, None).unwrap());
        assert!(!limiter.table_growing(0, 2, None).unwrap());
        assert!(limiter.table_growing(0, 1, None).unwrap());
    }
}
