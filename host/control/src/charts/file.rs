//! The bytes of the charts of all endpoints, for a file: a mark with the version, a hash of the
//! rest, and the charts as CBOR with a number for each field. Whatever the bytes are, they are read
//! or refused; charts are no data that a start may fail for.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::ring::Rings;
use super::window::Window;

/// Most endpoints with charts.
pub(super) const CHARTS_MAX: usize = 1_000;

const MARK: &[u8; 8] = b"gmchart1";

const HASH_BYTES: usize = 32;

/// Most bytes of a file that is read. A thousand endpoints have 81 million at most.
const BYTES_MAX: usize = 128 << 20;

/// Why bytes are no charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChartsDamaged {
    /// They are of another version, or no charts at all.
    #[error("it is no file of charts of this version")]
    Unknown,
    /// They were changed, or are not complete.
    #[error("it is damaged")]
    Changed,
}

/// The charts by the names of their endpoints' incarnations.
pub(super) type RingsByName = HashMap<String, Rings>;

pub(super) fn encode(charts: &HashMap<&str, &Rings>) -> Vec<u8> {
    let charts: Vec<_> = charts.iter().map(|(name, rings)| (*name, *rings)).collect();
    let content = minicbor::to_vec(charts).expect("a vector takes all bytes");
    let hash: [u8; HASH_BYTES] = Sha256::digest(&content).into();
    [&MARK[..], &hash, &content].concat()
}

pub(super) fn decode(bytes: &[u8]) -> Result<RingsByName, ChartsDamaged> {
    let rest = bytes.strip_prefix(MARK).ok_or(ChartsDamaged::Unknown)?;
    let (hash, content) = rest.split_at_checked(HASH_BYTES).ok_or(ChartsDamaged::Changed)?;
    let found: [u8; HASH_BYTES] = Sha256::digest(content).into();
    if bytes.len() > BYTES_MAX || found != *hash {
        return Err(ChartsDamaged::Changed);
    }
    let charts: Vec<(String, Rings)> =
        minicbor::decode(content).map_err(|_| ChartsDamaged::Changed)?;
    let charts: RingsByName = charts.into_iter().collect();
    let is_sound =
        |rings: &Rings| rings.iter().zip(Window::ALL).all(|(ring, window)| ring.is_sound(window));
    match charts.len() <= CHARTS_MAX && charts.values().all(is_sound) {
        true => Ok(charts),
        false => Err(ChartsDamaged::Changed),
    }
}
