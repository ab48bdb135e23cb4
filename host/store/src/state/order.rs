//! Jobs in the order of a number: a position in a queue, the number of a row, or a time.
//!
//! Sorted pieces of up to [`PIECE`] jobs, themselves in order. Numbers that arrive in order, as
//! most do, leave full pieces behind: 8 bytes for each job, compared with 25 in an ordered map.
//! After any insertions and removals, two neighbouring pieces have more than half a piece together,
//! or differ in the upper half of their numbers. A search examines the first job of some pieces, 12
//! for a million jobs, and then searches one piece. No operation moves more than a few pieces of
//! jobs: 2 KiB each.

use std::collections::VecDeque;

use crate::state::slab::JobKey;

/// Most jobs in a piece.
const PIECE: usize = 256;

/// A set of jobs, each with a number.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pieces: VecDeque<Piece>,
    len: usize,
}

/// Neighbouring jobs; never empty.
#[derive(Debug)]
struct Piece {
    /// The upper half of their numbers.
    high: u32,
    /// The lower halves with the jobs, in order.
    jobs: VecDeque<(u32, JobKey)>,
}

impl Order {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a job. False if the job is already present under this number.
    pub(crate) fn insert(&mut self, number: u64, key: JobKey) -> bool {
        let (high, low) = halves(number);
        let after = self.pieces_before(number, key);
        // The piece that contains this position, or else the piece right behind it.
        let is_of = |index: &usize| self.pieces.get(*index).is_some_and(|piece| piece.high == high);
        let found = after.checked_sub(1).filter(is_of).or_else(|| Some(after).filter(is_of));
        let Some((index, piece)) = found.and_then(|i| Some((i, self.pieces.get_mut(i)?))) else {
            self.pieces.insert(after, Piece { high, jobs: VecDeque::from([(low, key)]) });
            self.len += 1;
            return true;
        };
        let Err(at) = piece.jobs.binary_search(&(low, key)) else { return false };
        if piece.jobs.len() < PIECE {
            piece.jobs.insert(at, (low, key));
        } else {
            // Cut at the new job, so that jobs in ascending order fill the rest of the piece.
            let mut rest = VecDeque::with_capacity(PIECE);
            rest.extend(piece.jobs.drain(at..));
            if at < PIECE {
                piece.jobs.push_back((low, key))
            } else {
                rest.push_back((low, key))
            }
            self.pieces.insert(index + 1, Piece { high, jobs: rest });
            self.join(index + 1);
            self.join_before(index);
        }
        self.len += 1;
        true
    }

    /// Removes a job. False if it is not present under this number.
    pub(crate) fn remove(&mut self, number: u64, key: JobKey) -> bool {
        let (high, low) = halves(number);
        let Some(index) = self.pieces_before(number, key).checked_sub(1) else { return false };
        let Some(piece) = self.pieces.get_mut(index).filter(|piece| piece.high == high) else {
            return false;
        };
        let Ok(at) = piece.jobs.binary_search(&(low, key)) else { return false };
        piece.jobs.remove(at);
        self.len -= 1;
        if piece.jobs.is_empty() {
            self.pieces.remove(index);
        } else {
            self.join(index);
        }
        self.join_before(index);
        true
    }

    /// The first job with its number.
    pub(crate) fn first(&self) -> Option<(u64, JobKey)> {
        self.pieces.front().and_then(Piece::first)
    }

    /// All jobs with their numbers, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, JobKey)> {
        self.pieces.iter().flat_map(Piece::iter)
    }

    /// The jobs with a number less than `end`, in order.
    pub(crate) fn below(&self, end: u64) -> impl DoubleEndedIterator<Item = (u64, JobKey)> {
        let pieces =
            self.pieces.partition_point(|piece| piece.first().is_some_and(|(n, _)| n < end));
        self.pieces.range(..pieces).flat_map(Piece::iter).filter(move |(number, _)| *number < end)
    }

    /// The jobs with a number from `begin` on, in order.
    pub(crate) fn since(&self, begin: u64) -> impl Iterator<Item = (u64, JobKey)> {
        let pieces = self.pieces.partition_point(|piece| piece.last().is_some_and(|n| n < begin));
        self.pieces.range(pieces..).flat_map(Piece::iter).skip_while(move |(n, _)| *n < begin)
    }

    /// Number of pieces that begin with this job or an earlier one.
    fn pieces_before(&self, number: u64, key: JobKey) -> usize {
        self.pieces.partition_point(|piece| piece.first() <= Some((number, key)))
    }

    fn join_before(&mut self, index: usize) {
        if let Some(before) = index.checked_sub(1) {
            self.join(before);
        }
    }

    /// Joins this piece and the next one, if the result is at most half full. The limit keeps
    /// alternating insertions and removals from cutting and joining all the time.
    fn join(&mut self, index: usize) {
        let (Some(piece), Some(next)) = (self.pieces.get(index), self.pieces.get(index + 1)) else {
            return;
        };
        if piece.high == next.high
            && piece.jobs.len() + next.jobs.len() <= PIECE / 2
            && let Some(next) = self.pieces.remove(index + 1)
            && let Some(piece) = self.pieces.get_mut(index)
        {
            piece.jobs.reserve_exact(PIECE - piece.jobs.len());
            piece.jobs.extend(next.jobs);
        }
    }
}

impl Piece {
    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, JobKey)> {
        self.jobs.iter().map(|(low, key)| (number(self.high, *low), *key))
    }

    fn first(&self) -> Option<(u64, JobKey)> {
        self.iter().next()
    }

    /// The number of its last job.
    fn last(&self) -> Option<u64> {
        self.jobs.back().map(|(low, _)| number(self.high, *low))
    }
}

fn halves(number: u64) -> (u32, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
    ((number >> 32) as u32, number as u32)
}

fn number(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
