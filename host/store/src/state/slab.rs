//! A growing table of values with small keys. It grows block by block, so that no insertion ever
//! copies the present values, and a freed slot is used again.

/// Names a value in a [`Slab`] until the value is removed; then the key may name another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobKey(u32);

const BLOCK: usize = 1_024;

#[derive(Debug)]
enum Slot<T> {
    Free { next: Option<JobKey> },
    Used(T),
}

/// Values by key. Insertion, lookup and removal cost a few nanoseconds each.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    blocks: Vec<Vec<Slot<T>>>,
    free: Option<JobKey>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { blocks: Vec::new(), free: None }
    }

    pub(crate) fn insert(&mut self, value: T) -> JobKey {
        if let Some(key) = self.free
            && let Some(slot) = self.slot_mut(key)
        {
            let Slot::Free { next } = *slot else {
                unreachable!("the free list holds free slots only");
            };
            *slot = Slot::Used(value);
            self.free = next;
            return key;
        }
        let key = JobKey(u32::try_from(self.end()).expect("fewer than 2^32 jobs fit in memory"));
        match self.blocks.last_mut() {
            Some(block) if block.len() < BLOCK => block.push(Slot::Used(value)),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(Slot::Used(value));
                self.blocks.push(block);
            }
        }
        key
    }

    pub(crate) fn get(&self, key: JobKey) -> Option<&T> {
        let index = key.0 as usize;
        match self.blocks.get(index / BLOCK)?.get(index % BLOCK)? {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: JobKey) -> Option<&mut T> {
        match self.slot_mut(key)? {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn remove(&mut self, key: JobKey) -> Option<T> {
        let next = self.free;
        let slot = self.slot_mut(key)?;
        if matches!(slot, Slot::Free { .. }) {
            return None;
        }
        let Slot::Used(value) = std::mem::replace(slot, Slot::Free { next }) else {
            return None;
        };
        self.free = Some(key);
        Some(value)
    }

    /// One past the greatest index that was ever used.
    pub(crate) fn end(&self) -> usize {
        let full = self.blocks.len().saturating_sub(1) * BLOCK;
        full + self.blocks.last().map_or(0, Vec::len)
    }

    /// The values with an index in `range`, with their keys.
    pub(crate) fn range(
        &self,
        range: std::ops::Range<usize>,
    ) -> impl Iterator<Item = (JobKey, &T)> {
        range.filter_map(|index| {
            let key = JobKey(u32::try_from(index).ok()?);
            Some((key, self.get(key)?))
        })
    }

    /// All values.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.iter_mut().flatten().filter_map(|slot| match slot {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        })
    }

    fn slot_mut(&mut self, key: JobKey) -> Option<&mut Slot<T>> {
        let index = key.0 as usize;
        self.blocks.get_mut(index / BLOCK)?.get_mut(index % BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::job::Job;

    #[test]
    fn a_slot_takes_no_more_than_its_job() {
        assert_eq!(size_of::<Slot<Job>>(), size_of::<Job>());
    }

    #[test]
    fn freed_slots_are_used_again_and_stale_keys_find_nothing() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..BLOCK + 1).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.end(), BLOCK + 1);
        assert_eq!(slab.remove(keys[3]), Some(3));
        assert_eq!(slab.remove(keys[3]), None);
        assert_eq!(slab.get(keys[3]), None);
        assert_eq!(slab.remove(keys[BLOCK]), Some(BLOCK));
        assert_eq!(slab.insert(7_000), keys[BLOCK]);
        assert_eq!(slab.insert(8_000), keys[3]);
        assert_eq!(slab.get(keys[3]), Some(&8_000));
        assert_eq!(slab.end(), BLOCK + 1);
        assert_eq!(slab.range(2..5).map(|(_, v)| *v).collect::<Vec<_>>(), [2, 8_000, 4]);
    }
}
