//! How much of the catalog each owner holds, and the bounds of it.
//!
//! The catalog is in memory, every start reads it, and a change waits for the one before it. So an
//! owner without a bound could take the host's memory and hold up all changes.
//!
//! **Costs.** A change serialises the records that it replaces and those that it writes, once, to count
//! their bytes.

use std::collections::{BTreeSet, HashMap};
use std::io;

use super::entry::{CatalogChange, EntryRef};
use crate::id::OwnerId;
use crate::limits::Bounds;
use crate::store::StoreError;

/// Most that one owner may have in the catalog. A component counts in full for each of its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerBounds {
    /// Templates, endpoints, images, components, volumes, credentials and keys, together.
    pub records_max: u64,
    /// Bytes of these records as JSON.
    pub record_bytes_max: u64,
    /// Bytes of the uploaded components. Compiled files take two to four times as much.
    pub component_bytes_max: u64,
    /// The sum of `workers_min` of the owner's endpoints: more workers than jobs that the host can run
    /// are of no use.
    pub kept_workers_max: u64,
}

impl OwnerBounds {
    /// Bounds and default of `records_max`.
    pub const RECORDS: Bounds = Bounds { min: 10, default: 10_000, max: 1_000_000 };
    /// Bounds and default of `record_bytes_max`, in MiB. A change of a template writes the records of
    /// all endpoints that use it, 16 MiB in a part of a second.
    pub const RECORD_MIB: Bounds = Bounds { min: 1, default: 16, max: 16_384 };
    /// Bounds and default of `component_bytes_max`, in MiB.
    pub const COMPONENT_MIB: Bounds = Bounds { min: 64, default: 16_384, max: 1 << 24 };
}

impl Default for OwnerBounds {
    fn default() -> Self {
        Self {
            records_max: Self::RECORDS.default,
            record_bytes_max: Self::RECORD_MIB.default << 20,
            component_bytes_max: Self::COMPONENT_MIB.default << 20,
            kept_workers_max: 256,
        }
    }
}

/// What one owner holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    records: u64,
    record_bytes: u64,
    component_bytes: u64,
    kept_workers: u64,
}

/// What each owner holds.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnerShares(HashMap<OwnerId, Share>);

impl OwnerShares {
    /// Counts a record that the catalog has from now on.
    pub(super) fn add(&mut self, entry: EntryRef<'_>) {
        let added = Share::of(entry);
        for owner in owners(entry) {
            let share = self.0.entry(owner).or_default();
            share.records += added.records;
            share.record_bytes += added.record_bytes;
            share.component_bytes += added.component_bytes;
            share.kept_workers += added.kept_workers;
        }
    }

    /// Counts a record no more.
    pub(super) fn remove(&mut self, entry: EntryRef<'_>) {
        let removed = Share::of(entry);
        for owner in owners(entry) {
            let share = self.0.entry(owner.clone()).or_default();
            share.records -= removed.records;
            share.record_bytes -= removed.record_bytes;
            share.component_bytes -= removed.component_bytes;
            share.kept_workers -= removed.kept_workers;
            if *share == Share::default() {
                self.0.remove(&owner);
            }
        }
    }

    /// Refuses changes after which an owner of a written record has more than `bounds` allow, unless
    /// they had as much `before`: lower bounds and a full share never prevent a deletion.
    ///
    /// # Errors
    /// [`StoreError::OwnerFull`] with the first bound that is passed.
    pub(super) fn check(
        &self,
        before: &Self,
        changes: &[CatalogChange],
        bounds: &OwnerBounds,
    ) -> Result<(), StoreError> {
        let written = changes.iter().filter_map(|change| match change {
            CatalogChange::Put(entry) => Some(EntryRef::from(entry)),
            CatalogChange::Delete(_) => None,
        });
        let written: BTreeSet<_> = written.flat_map(owners).collect();
        for owner in written {
            let (share, before) = (self.of(&owner), before.of(&owner));
            let amounts = [
                (
                    share.records,
                    before.records,
                    bounds.records_max,
                    0,
                    "records",
                    "max-owner-records",
                ),
                (
                    share.record_bytes,
                    before.record_bytes,
                    bounds.record_bytes_max,
                    20,
                    "MiB of records",
                    "max-owner-record-mib",
                ),
                (
                    share.component_bytes,
                    before.component_bytes,
                    bounds.component_bytes_max,
                    20,
                    "MiB of components",
                    "max-owner-component-mib",
                ),
                (
                    share.kept_workers,
                    before.kept_workers,
                    bounds.kept_workers_max,
                    0,
                    "workers kept by `workersMin` of all endpoints",
                    "max-running-jobs",
                ),
            ];
            for (now, earlier, max, shift, unit, option) in amounts {
                if now > max && now > earlier {
                    let asked = now.div_ceil(1 << shift);
                    return Err(StoreError::OwnerFull { asked, max: max >> shift, unit, option });
                }
            }
        }
        Ok(())
    }

    fn of(&self, owner: &OwnerId) -> Share {
        self.0.get(owner).copied().unwrap_or_default()
    }
}

impl Share {
    fn of(entry: EntryRef<'_>) -> Self {
        let component_bytes = match entry {
            EntryRef::Component(component) => component.bytes,
            _ => 0,
        };
        let kept_workers = match entry {
            EntryRef::Endpoint(endpoint) => endpoint.scaling.workers_min.into(),
            _ => 0,
        };
        let mut counter = Counter(0);
        serde_json::to_writer(&mut counter, &entry).expect("the catalog's types are JSON");
        Self { records: 1, record_bytes: counter.0, component_bytes, kept_workers }
    }
}

/// Counts what is written.
struct Counter(u64);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn owners(entry: EntryRef<'_>) -> Vec<OwnerId> {
    let owner = match entry {
        EntryRef::Component(component) => return component.owners.iter().cloned().collect(),
        EntryRef::Template(template) => &template.owner,
        EntryRef::Endpoint(endpoint) => &endpoint.owner,
        EntryRef::Image(image) => &image.owner,
        EntryRef::Key(key) => &key.owner,
        EntryRef::RegistryAuth(auth) => &auth.owner,
        EntryRef::Volume(volume) => &volume.owner,
    };
    vec![owner.clone()]
}
