//! The memories and tables of one job. Wasmtime asks before each grows; the sums over the whole
//! store are kept here, since a component may have several memories.

/// Core instances of a job. Python needs 14, JavaScript 8, Rust 3.
pub(crate) const INSTANCES_MAX: u32 = 40;

/// Memories of a job.
pub(crate) const MEMORIES_MAX: u32 = 4;

/// Tables of a job.
pub(crate) const TABLES_MAX: u32 = 8;

/// Elements of all tables of a job together.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Memory of the host for an element of a table.
const TABLE_ELEMENT_BYTES: u64 = 8;

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

    /// Counts the growth of a memory from `current` to `desired` bytes. Returns its bytes; `None`
    /// beyond the limit.
    pub(crate) fn grow_memory(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Option<u64> {
        let bytes = desired.saturating_sub(current) as u64;
        let sum = self.memory_bytes + bytes;
        self.hit_memory_limit = sum > self.memory_bytes_max;
        if self.hit_memory_limit {
            return None;
        }
        // Beyond the memory's own maximum wasmtime refuses by itself, and nothing grows.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Some(0);
        }
        self.memory_bytes = sum;
        self.memory_bytes_peak = self.memory_bytes_peak.max(sum);
        Some(bytes)
    }

    /// Counts the growth of a table from `current` to `desired` elements. Returns its bytes; `None`
    /// beyond the limit.
    pub(crate) fn grow_table(&mut self, current: usize, desired: usize) -> Option<u64> {
        let elements = desired.saturating_sub(current);
        let sum = self.table_elements.saturating_add(elements);
        if sum > TABLE_ELEMENTS_MAX {
            return None;
        }
        self.table_elements = sum;
        Some(elements as u64 * TABLE_ELEMENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_summed_and_the_peak_is_kept() {
        let mut limiter = Limiter::new(100);
        assert_eq!(limiter.grow_memory(0, 60, None), Some(60));
        assert_eq!(limiter.grow_memory(0, 40, Some(50)), Some(40));
        assert_eq!(limiter.memory_bytes_peak(), 100);
        assert!(!limiter.hit_memory_limit());
        assert_eq!(limiter.grow_memory(40, 41, None), None);
        assert!(limiter.hit_memory_limit());
        assert_eq!(limiter.memory_bytes_peak(), 100);
    }

    #[test]
    fn growth_that_wasmtime_refuses_is_not_counted() {
        let mut limiter = Limiter::new(100);
        assert_eq!(limiter.grow_memory(0, 60, Some(50)), Some(0));
        assert_eq!(limiter.memory_bytes_peak(), 0);
    }

    #[test]
    fn table_elements_are_summed() {
        let mut limiter = Limiter::new(0);
        assert!(limiter.grow_table(0, TABLE_ELEMENTS_MAX - 1).is_some());
        assert_eq!(limiter.grow_table(0, 2), None);
        assert_eq!(limiter.grow_table(0, 1), Some(8));
    }
}
