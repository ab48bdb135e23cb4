//! Lists of an endpoint's jobs, page by page.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::job::record::JobRecord;
use crate::job::state::JobStatus;

/// A query for jobs, newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Only jobs with this status.
    pub status: Option<JobStatus>,
    /// Only jobs after this position of an earlier page.
    pub after: Option<Cursor>,
    /// At most this many.
    pub count_max: usize,
}

/// A position in the list. Valid only for the store that returned it, and no longer than its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub u64);

/// Hides the positions of jobs in cursors. A position counts the jobs of all endpoints, so a cursor
/// that showed it would reveal to one owner how many jobs the others submit.
///
/// Each key is a permutation of all numbers: a Feistel network of four rounds, whose functions are
/// parts of HMAC-SHA-256. Cost: some 3 us for each position.
#[derive(Clone)]
pub struct CursorKey([u8; 32]);

impl std::fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CursorKey(redacted)")
    }
}

impl CursorKey {
    const ROUNDS: u8 = 4;

    /// Positions are below this number: at 18,000 jobs/s it is reached after 31 years. Other
    /// numbers show that a cursor belongs to another key.
    const POSITIONS_MAX: u64 = 1 << 44;

    /// The key that belongs to a store's secret. Cursors stay valid as long as the secret.
    pub fn of_secret(secret: &[u8]) -> Self {
        Self(mac(secret, b"cursors of job lists"))
    }

    /// The cursor of a position.
    pub fn hide(&self, position: u64) -> Cursor {
        let (mut left, mut right) = halves(position);
        for round in 0..Self::ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        Cursor(whole(left, right))
    }

    /// The position of a cursor; `None` for a number that is no cursor of this key, except for one
    /// such number in a million.
    pub fn reveal(&self, Cursor(cursor): Cursor) -> Option<u64> {
        let (mut left, mut right) = halves(cursor);
        for round in (0..Self::ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        Some(whole(left, right)).filter(|position| *position < Self::POSITIONS_MAX)
    }

    fn round(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_be_bytes();
        let [first, second, third, fourth, ..] = mac(&self.0, &[round, a, b, c, d]);
        u32::from_be_bytes([first, second, third, fourth])
    }
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC has keys of any length");
    mac.chain_update(text).finalize().into_bytes().into()
}

fn halves(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

fn whole(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Some jobs of an endpoint, newest first.
#[derive(Debug, Clone, Default)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobRecord>,
    /// Where a page begins that continues after one of them.
    pub positions: Positions,
    /// The position of the next page. It may exist even when this page is short, since a store
    /// examines a bounded number of jobs for each page.
    pub next: Option<Cursor>,
}

/// The positions of the jobs of a page, hidden once they are needed.
#[derive(Debug, Clone, Default)]
pub struct Positions {
    numbers: Vec<u64>,
    /// `None`: they are shown as they are.
    key: Option<CursorKey>,
}

impl Positions {
    /// Those of the jobs of a page, in their order.
    pub fn new(numbers: Vec<u64>, key: Option<CursorKey>) -> Self {
        Self { numbers, key }
    }

    /// Where a page begins that continues after the job with this index; `None` when there is none.
    pub fn after(&self, index: usize) -> Option<Cursor> {
        let number = *self.numbers.get(index)?;
        Some(self.key.as_ref().map_or(Cursor(number), |key| key.hide(number)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_has_one_position(position in 0..CursorKey::POSITIONS_MAX, secret: [u8; 32]) {
            let key = CursorKey::of_secret(&secret);
            prop_assert_eq!(key.reveal(key.hide(position)), Some(position));
        }
    }

    #[test]
    fn cursors_of_neighbours_have_nothing_in_common() {
        let key = CursorKey::of_secret(b"one");
        let cursors: Vec<_> = (0..1_000).map(|position| key.hide(position).0).collect();
        for pair in cursors.windows(2) {
            let [one, next] = pair else { unreachable!("windows of two") };
            assert!(one.abs_diff(*next) > 1 << 32, "{one:x} {next:x}");
            assert!((8..=56).contains(&(one ^ next).count_ones()), "{one:x} {next:x}");
        }
        assert_ne!(CursorKey::of_secret(b"two").hide(7), key.hide(7));
    }

    #[test]
    fn a_cursor_of_another_key_has_no_position() {
        let [one, two] = [&b"one"[..], b"two"].map(CursorKey::of_secret);
        for position in (0..1_000).chain([CursorKey::POSITIONS_MAX - 1]) {
            assert_eq!(two.reveal(one.hide(position)), None, "{position}");
        }
    }
}
