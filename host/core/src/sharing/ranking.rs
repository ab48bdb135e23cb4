//! The endpoints by the bytes that memory keeps for them, and the owners by the sums of them.
//!
//! **Promises.** The largest endpoint of the owner with the most bytes is found without a search:
//! no other owner has [`UNIT_BYTES`] more, and no other endpoint of this owner. **Bounds.** An
//! entry of some 60 bytes for each endpoint with bytes, and one for each owner of such an endpoint.
//! **Costs.** A look-up of the owner for each change, and two entries of ordered sets for each
//! [`UNIT_BYTES`]: most lines move none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::id::OwnerId;
use crate::incarnation::EndpointIncarnation;

/// Bytes are ranked in such units, some thirty short lines.
const UNIT_BYTES: usize = 4 << 10;

/// The endpoints that have bytes.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    owners: HashMap<OwnerId, OfOwner>,
    /// The owners by the units of their bytes, the greatest last.
    by_units: BTreeSet<(usize, OwnerId)>,
}

/// The endpoints of one owner.
#[derive(Debug, Default)]
struct OfOwner {
    bytes: usize,
    /// By the units of their bytes, the greatest last, and by their numbers.
    endpoints: BTreeMap<(usize, u64), EndpointIncarnation>,
}

/// The units of so many bytes; none only of no bytes.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

impl Ranking {
    /// An endpoint that had `before` bytes has `after` bytes now. No other endpoint has its
    /// `number`.
    pub(crate) fn change(
        &mut self,
        endpoint: &EndpointIncarnation,
        number: u64,
        before: usize,
        after: usize,
    ) {
        if before == after {
            return;
        }
        let owner = endpoint.owner();
        let of_owner = self.owners.entry(owner.clone()).or_default();
        let units_before = units(of_owner.bytes);
        of_owner.bytes = of_owner.bytes - before + after;
        of_owner.rank(endpoint, number, units(before), units(after));
        let units_after = units(of_owner.bytes);
        if units_before == units_after {
            return;
        }
        self.by_units.remove(&(units_before, owner.clone()));
        if units_after > 0 {
            self.by_units.insert((units_after, owner.clone()));
        } else {
            self.owners.remove(owner);
        }
    }

    /// The endpoint with the most bytes of the owner with the most; `None` if there are no bytes.
    pub(crate) fn largest(&self) -> Option<&EndpointIncarnation> {
        let (_, owner) = self.by_units.last()?;
        self.owners.get(owner)?.endpoints.values().next_back()
    }
}

impl OfOwner {
    fn rank(&mut self, endpoint: &EndpointIncarnation, number: u64, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.endpoints.remove(&(before, number));
        if after > 0 {
            self.endpoints.insert((after, number), endpoint.clone());
        }
    }
}

#[cfg(test)]
impl Ranking {
    /// Panics unless it has exactly these endpoints, with so many bytes.
    pub(crate) fn check<'e>(
        &self,
        endpoints: impl Iterator<Item = (&'e EndpointIncarnation, u64, usize)>,
    ) {
        let mut expected = Self::default();
        endpoints.for_each(|(endpoint, number, bytes)| expected.change(endpoint, number, 0, bytes));
        assert_eq!(self.by_units, expected.by_units);
        assert_eq!(self.owners.len(), expected.owners.len());
        for (owner, of_owner) in &self.owners {
            let expected = &expected.owners[owner];
            assert_eq!(of_owner.bytes, expected.bytes);
            assert_eq!(of_owner.endpoints, expected.endpoints);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint_of(owner: &str) -> EndpointIncarnation {
        EndpointIncarnation::new(OwnerId::new(owner).unwrap())
    }

    #[test]
    fn the_largest_endpoint_of_the_owner_with_the_most_bytes_is_found() {
        const KIB: usize = 1 << 10;
        let mut ranking = Ranking::default();
        let [one, two, other] = ["a", "a", "b"].map(endpoint_of);
        assert_eq!(ranking.largest(), None);
        ranking.change(&other, 0, 0, 100 * KIB);
        ranking.change(&one, 1, 0, 60 * KIB);
        ranking.change(&two, 2, 0, 60 * KIB);
        assert!(ranking.largest().is_some_and(|largest| *largest != other), "120 exceeds 100");
        ranking.change(&one, 1, 60 * KIB, 70 * KIB);
        assert_eq!(ranking.largest(), Some(&one));
        ranking.change(&two, 2, 60 * KIB, 0);
        assert_eq!(ranking.largest(), Some(&other));
        ranking.change(&other, 0, 100 * KIB, 0);
        ranking.change(&one, 1, 70 * KIB, 1);
        assert_eq!(ranking.largest(), Some(&one), "one byte has a rank");
        ranking.change(&one, 1, 1, 0);
        ranking.check(std::iter::empty());
    }

    #[test]
    fn an_owner_with_thousands_of_short_logs_is_not_the_one_with_the_most_bytes() {
        let mut ranking = Ranking::default();
        let large = endpoint_of("large");
        for number in 0..1_000 {
            ranking.change(&endpoint_of("short"), number, 0, 100);
        }
        ranking.change(&large, 1_000, 0, 120_000);
        assert_eq!(ranking.largest(), Some(&large), "100,000 bytes in 1,000 endpoints");
    }
}
