//! How much of the catalog each owner holds, and the bounds of it.
//!
//! The catalog is in memory, every start reads it, and a change waits for the one before it. So an
//! owner without a bound could take the host's memory and hold up all changes.
//!
//! Records count as they are stored, except that the record of a component counts only for its
//! content. Releases count in the record that has them: those that a template has run, for the
//! template's owner. So no owner's share grows because of a change of another owner, but for the
//! mark of a deleted template in the records of the endpoints that used it, which has 200 bytes at
//! most. A schedule also counts what it may have decided.
//!
//! **Costs.** A change serialises the records that it replaces and those that it writes, to count
//! their bytes.

use std::collections::{BTreeSet, HashMap};
use std::io;

use serde::Serialize;

use super::component::Component;
use super::entry::{CatalogChange, EntryRef};
use crate::id::OwnerId;
use crate::limits::Bounds;
use crate::schedule::state;
use crate::sharing::shares::SharedBound;
use crate::store_error::OwnerQuota;

/// Most that one owner may have in the catalog. A component counts in full for each of its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerBounds {
    /// Templates, endpoints, images, components, volumes, credentials and schedules, together; and
    /// as many keys.
    pub records_max: u64,
    /// Bytes of these records as JSON, and as many of the keys. The record of a component counts
    /// for its content.
    pub record_bytes_max: u64,
    /// Bytes of the uploaded components. Compiled files take two to four times as much.
    pub component_bytes_max: u64,
    /// The sum of `workers_min` of all endpoints of the host. Each reserves a sandbox, and the
    /// owners share them.
    pub kept_workers_max: u64,
}

impl OwnerBounds {
    /// Bounds and default of `records_max`.
    pub const RECORDS: Bounds = Bounds { min: 10, default: 10_000, max: 1_000_000 };
    /// Bounds and default of `record_bytes_max`, in MiB. A new component of an image writes the
    /// records of all templates of the owner that name the image.
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
            kept_workers_max: 128,
        }
    }
}

/// What one owner holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    records: u64,
    record_bytes: u64,
    /// Keys apart from all other records: the operator makes them, so the records that an owner
    /// makes must not prevent them.
    keys: u64,
    key_bytes: u64,
    component_bytes: u64,
    /// The same with the compiled files.
    component_disk_bytes: u64,
    kept_workers: u64,
}

/// What each owner holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnerShares(HashMap<OwnerId, Share>);

impl OwnerShares {
    /// Counts a record that the catalog has from now on.
    pub(super) fn add(&mut self, entry: EntryRef<'_>, added: Share) {
        for owner in owners(entry) {
            self.0.entry(owner).or_default().combine(added, u64::saturating_add);
        }
    }

    /// Counts a record no more. `removed` is the share that was added for it.
    pub(super) fn remove(&mut self, entry: EntryRef<'_>, removed: Share) {
        for owner in owners(entry) {
            let share = self.0.entry(owner.clone()).or_default();
            share.combine(removed, u64::saturating_sub);
            if *share == Share::default() {
                self.0.remove(&owner);
            }
        }
    }

    /// Refuses a change after which one of these owners has more than `bounds` allow, unless they
    /// had as much `before`: lower bounds and a full share never prevent a deletion.
    ///
    /// # Errors
    /// [`OwnerQuota::Records`] with the first bound that is passed.
    pub(super) fn check(
        &self,
        before: &Self,
        owners: &BTreeSet<OwnerId>,
        bounds: &OwnerBounds,
    ) -> Result<(), OwnerQuota> {
        for owner in owners {
            let before_share = before.of(owner);
            let amounts = self.of(owner).amounts(bounds).into_iter();
            for (amount, before) in amounts.zip(before_share.amounts(bounds)) {
                let Amount { held, max, shift, unit, option } = amount;
                if held > max && held > before.held {
                    let asked = held.div_ceil(1 << shift);
                    return Err(OwnerQuota::Records { asked, max: max >> shift, unit, option });
                }
            }
            if self.of(owner).kept_workers > before_share.kept_workers {
                self.check_kept_workers(owner, bounds.kept_workers_max)?;
            }
        }
        Ok(())
    }

    /// Refuses more kept workers than the other owners leave to this one.
    fn check_kept_workers(&self, owner: &OwnerId, all_max: u64) -> Result<(), OwnerQuota> {
        let asked = self.of(owner).kept_workers;
        let of_all: u64 = self.0.values().map(|share| share.kept_workers).sum();
        let bound = SharedBound::now(all_max, self.0.len() > 1);
        let left = all_max.saturating_sub(of_all - asked);
        let max = bound.left_to(0, left).unwrap_or_default();
        let unit = "sandboxes reserved by `workersMin`, of the half of all that owners share";
        let option = "max-running-jobs";
        if asked > max {
            return Err(OwnerQuota::Records { asked, max, unit, option });
        }
        Ok(())
    }

    fn of(&self, owner: &OwnerId) -> Share {
        self.0.get(owner).copied().unwrap_or_default()
    }

    /// Bytes of the owner's uploaded components.
    pub(super) fn component_bytes(&self, owner: &OwnerId) -> u64 {
        self.of(owner).component_bytes
    }

    /// Bytes of the owner's components with their compiled files.
    pub(super) fn component_disk_bytes(&self, owner: &OwnerId) -> u64 {
        self.of(owner).component_disk_bytes
    }

    /// The owners.
    pub(super) fn owners(&self) -> impl Iterator<Item = &OwnerId> {
        self.0.keys()
    }
}

/// The bytes that each record of a component counts, beside its imports, exports, producers and
/// schema.
const COMPONENT_RECORD_BYTES: u64 = 512;

/// A part of a share, with its bound.
struct Amount {
    held: u64,
    max: u64,
    /// Binary digits that the sentence of a refusal leaves out: 20 for MiB.
    shift: u32,
    unit: &'static str,
    option: &'static str,
}

impl Share {
    /// What this record counts for each of its owners.
    pub(super) fn of(entry: EntryRef<'_>) -> Self {
        let bytes = json_bytes(&entry);
        match entry {
            EntryRef::Key(_) => Self { keys: 1, key_bytes: bytes, ..Self::default() },
            EntryRef::Component(component) => {
                let component_disk_bytes = component.disk_bytes();
                let component_bytes = component.bytes;
                // The other fields change with uploads of other owners, and with compiles.
                let Component { imports, exports, producers, input_schema, .. } = component;
                let bytes = json_bytes(&(imports, exports, producers, input_schema));
                let record = Self::record(COMPONENT_RECORD_BYTES + bytes);
                Self { component_bytes, component_disk_bytes, ..record }
            }
            EntryRef::Endpoint(endpoint) => {
                // Another owner may change these numbers, so they count as if they were the
                // longest.
                let missing = [endpoint.version, endpoint.template_revision].map(missing_digits);
                let bytes = bytes + missing.iter().sum::<u64>();
                Self { kept_workers: endpoint.settings.workers_min.into(), ..Self::record(bytes) }
            }
            EntryRef::Template(_)
            | EntryRef::Image(_)
            | EntryRef::RegistryAuth(_)
            | EntryRef::Volume(_) => Self::record(bytes),
            // What it has decided is in memory twice: as a state, and as the store's note.
            EntryRef::Schedule(_) => Self::record(bytes + 2 * state::BYTES_MAX),
        }
    }

    fn record(bytes: u64) -> Self {
        Self { records: 1, record_bytes: bytes, ..Self::default() }
    }

    fn combine(&mut self, other: Self, with: fn(u64, u64) -> u64) {
        let Self {
            records,
            record_bytes,
            keys,
            key_bytes,
            component_bytes,
            component_disk_bytes,
            kept_workers,
        } = self;
        *records = with(*records, other.records);
        *record_bytes = with(*record_bytes, other.record_bytes);
        *keys = with(*keys, other.keys);
        *key_bytes = with(*key_bytes, other.key_bytes);
        *component_bytes = with(*component_bytes, other.component_bytes);
        *component_disk_bytes = with(*component_disk_bytes, other.component_disk_bytes);
        *kept_workers = with(*kept_workers, other.kept_workers);
    }

    /// The parts that have bounds.
    fn amounts(self, bounds: &OwnerBounds) -> [Amount; 5] {
        let OwnerBounds { records_max, record_bytes_max, component_bytes_max, .. } = *bounds;
        let count = |held, max, unit, option| Amount { held, max, shift: 0, unit, option };
        let bytes = |held, max, unit, option| Amount { held, max, shift: 20, unit, option };
        [
            count(self.records, records_max, "records", "max-owner-records"),
            bytes(self.record_bytes, record_bytes_max, "MiB of records", "max-owner-record-mib"),
            count(self.keys, records_max, "keys", "max-owner-records"),
            bytes(self.key_bytes, record_bytes_max, "MiB of keys", "max-owner-record-mib"),
            bytes(
                self.component_bytes,
                component_bytes_max,
                "MiB of components",
                "max-owner-component-mib",
            ),
        ]
    }
}

fn json_bytes(value: &impl Serialize) -> u64 {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("the catalog's types are JSON");
    counter.0
}

/// The digits by which the longest number is longer.
fn missing_digits(number: u32) -> u64 {
    u64::from(u32::MAX.ilog10() - number.max(1).ilog10())
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

/// The owners of the records that these changes put.
pub(super) fn owners_of_written(changes: &[CatalogChange]) -> BTreeSet<OwnerId> {
    let written = changes.iter().filter_map(|change| match change {
        CatalogChange::Put(entry) => Some(EntryRef::from(entry)),
        CatalogChange::Delete(_) => None,
    });
    written.flat_map(owners).collect()
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
        EntryRef::Schedule(schedule) => &schedule.owner,
    };
    vec![owner.clone()]
}
