//! Searches among archived jobs. An index by tag, by endpoint and status, by id or by time proposes
//! numbers of jobs, the greatest first; whether a job matches is decided when its row is read.
//!
//! **Bounds.** A search proposes a bounded number of jobs, and takes a bounded number of steps
//! between them; then it states how far it has come. **Cost.** Some 5 µs for the first step in an
//! index, and 1 µs for each further one.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasher;

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::filter::JobFilter;
use gristmill_core::job::state::JobStatus;
use gristmill_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::format::{EndpointKey, status_code};
use crate::tables::archived;
use crate::tables::found_by::{BLOCK, hash};
use crate::tables::sql::integer;

/// Most steps of one search in the indexes, or rows whose endpoint and status are looked at.
const STEPS_MAX: usize = 2_000;

/// Most lists of an endpoint and a status that are merged. With more of them, the rows are read in
/// their order.
const LISTS_MAX: usize = 256;

/// Most endpoints whose lists of a tag are merged.
const TAG_LISTS_MAX: usize = 1_024;

/// Most jobs with the wanted beginning of an id that are put in order.
const IDS_MAX: usize = 4_096;

/// Numbers of jobs that a list reads at one time.
const READ_MAX: usize = 64;

/// The numbers of archived jobs that may match, the greatest first, and the number down to which
/// there are no others.
pub(crate) type Proposed = (Vec<u64>, u64);

/// Up to `count_max` numbers below `before` of archived jobs of these endpoints.
pub(crate) fn propose<S: BuildHasher>(
    db: &Connection,
    endpoints: &HashMap<EndpointKey, &EndpointId, S>,
    filter: &JobFilter,
    before: u64,
    count_max: usize,
) -> rusqlite::Result<Proposed> {
    let statuses: Vec<_> = filter.possible_statuses().filter(|status| status.is_final()).collect();
    if endpoints.is_empty() || statuses.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let (mut before, mut down_to) = (before, 0);
    if filter.from.is_some() || filter.until.is_some() {
        let millis = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        let range = (millis(filter.from).unwrap_or(0), millis(filter.until).unwrap_or(u64::MAX));
        match numbers_of_time(db, range, before)? {
            Some((until, from)) => (before, down_to) = (until, from),
            None => return Ok((Vec::new(), 0)),
        }
    }
    if let Some(prefix) = &filter.id_prefix
        && let Some(mut numbers) = numbers_of_ids(db, prefix)?
    {
        numbers.retain(|seq| (down_to..before).contains(seq));
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        let is_cut = numbers.len() > count_max;
        numbers.truncate(count_max);
        return Ok(match numbers.last() {
            Some(last) if is_cut => (numbers.clone(), *last),
            _ => (numbers, down_to),
        });
    }
    let keys = endpoints.keys().copied();
    let sources: Vec<Source> = if !filter.tags.is_empty() && endpoints.len() <= TAG_LISTS_MAX {
        let mut hashes: Vec<_> =
            filter.tags.iter().map(|tag| hash(tag.key(), tag.value())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        keys.map(|key| Source::new(hashes.iter().map(|hash| Of::Tag(key, *hash)))).collect()
    } else if filter.tags.is_empty() && endpoints.len() * statuses.len() <= LISTS_MAX {
        let codes: Vec<_> = statuses.iter().map(|status| status_code(Some(*status))).collect();
        let lists = keys.flat_map(|key| codes.iter().map(move |code| Of::State(key, *code)));
        lists.map(|list| Source::new([list])).collect()
    } else {
        return rows_in_order(db, endpoints, &statuses, (down_to, before), count_max);
    };
    merge(db, sources, (down_to, before), count_max)
}

/// The numbers of several sources, in one order.
fn merge(
    db: &Connection,
    mut sources: Vec<Source>,
    (down_to, before): (u64, u64),
    count_max: usize,
) -> rusqlite::Result<Proposed> {
    let mut numbers = Vec::new();
    let mut heads = BinaryHeap::with_capacity(sources.len());
    for (index, source) in sources.iter_mut().enumerate() {
        heads.extend(source.step(db, before)?.map(|step| (step, index)));
    }
    for steps in 0.. {
        let Some(((at, is_number), index)) = heads.pop() else { break };
        if at < down_to || (at == down_to && !is_number) {
            break;
        }
        // Two tags may have one hash, and damage may leave a number in two lists.
        let is_new = is_number && numbers.last() != Some(&at);
        if steps >= STEPS_MAX || (is_new && numbers.len() == count_max) {
            return Ok((numbers, if is_number { at + 1 } else { at }));
        }
        numbers.extend(is_new.then_some(at));
        if let Some(source) = sources.get_mut(index) {
            heads.extend(source.step(db, at)?.map(|step| (step, index)));
        }
    }
    Ok((numbers, down_to))
}

/// The numbers of the rows of these endpoints with these statuses, found by looking at all rows.
fn rows_in_order<S: BuildHasher>(
    db: &Connection,
    endpoints: &HashMap<EndpointKey, &EndpointId, S>,
    statuses: &[JobStatus],
    (down_to, before): (u64, u64),
    count_max: usize,
) -> rusqlite::Result<Proposed> {
    let sql = "SELECT seq, endpoint, state FROM job WHERE archived = 1 AND seq >= ?1 AND seq < ?2 \
               ORDER BY seq DESC LIMIT ?3";
    let mut statement = db.prepare_cached(sql)?;
    let steps = integer(STEPS_MAX as u64);
    let mut rows = statement.query(params![integer(down_to), integer(before), steps])?;
    let codes: Vec<_> = statuses.iter().map(|status| status_code(Some(*status))).collect();
    let (mut numbers, mut steps, mut last) = (Vec::new(), 0, before);
    while let Some(row) = rows.next()? {
        if numbers.len() == count_max {
            return Ok((numbers, last));
        }
        last = row.get::<_, i64>(0)?.unsigned_abs();
        steps += 1;
        // A damaged row is left out of lists.
        let (Ok(endpoint), Ok(state)) = (row.get(1), row.get(2)) else { continue };
        if endpoints.contains_key(&EndpointKey(endpoint)) && codes.contains(&state) {
            numbers.push(last);
        }
    }
    Ok((numbers, if steps == STEPS_MAX { last } else { down_to }))
}

/// The numbers of the archived jobs whose ids begin with this text; `None` when they are too many,
/// or when the text says nothing about the order of ids.
fn numbers_of_ids(db: &Connection, prefix: &str) -> rusqlite::Result<Option<Vec<u64>>> {
    let text = JobId::without_submission(prefix);
    // The bytes of an id are those of its UUID, and then others.
    let digits: String = text.chars().take(36).filter(|digit| *digit != '-').collect();
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.is_empty() || !digits.bytes().all(is_digit) {
        return Ok(None);
    }
    let bound = |filler: &str, rest: [u8; 3]| -> Option<Vec<u8>> {
        let padded = format!("{digits}{}", filler.repeat(32_usize.saturating_sub(digits.len())));
        let number = u128::from_str_radix(&padded, 16).ok()?;
        Some([&number.to_be_bytes()[..], &rest[..]].concat())
    };
    let (Some(first), Some(last)) = (bound("0", [0; 3]), bound("f", [255; 3])) else {
        return Ok(None);
    };
    let sql = "SELECT seq FROM job WHERE archived = 1 AND id >= ?1 AND id <= ?2 LIMIT ?3";
    let mut statement = db.prepare_cached(sql)?;
    let limit = integer(IDS_MAX as u64 + 1);
    let found = statement.query_map(params![first, last, limit], |row| row.get::<_, i64>(0))?;
    let found: Vec<_> = found.map(|seq| seq.map(i64::unsigned_abs)).collect::<Result<_, _>>()?;
    Ok((found.len() <= IDS_MAX).then_some(found))
}

/// Numbers that are in all of some lists.
struct Source(Vec<List>);

impl Source {
    fn new(lists: impl IntoIterator<Item = Of>) -> Self {
        Self(lists.into_iter().map(List::new).collect())
    }

    /// The next position below `before`: a number that is in all lists, or, with `false`, one above
    /// the next number that may be. `None`: there are no more.
    fn step(&mut self, db: &Connection, before: u64) -> rusqlite::Result<Option<(u64, bool)>> {
        let Some((first, others)) = self.0.split_first_mut() else { return Ok(None) };
        let Some(number) = first.below(db, before)? else { return Ok(None) };
        for other in others {
            match other.below(db, number + 1)? {
                Some(found) if found == number => {}
                Some(lower) => return Ok(Some((lower + 1, false))),
                None => return Ok(None),
            }
        }
        Ok(Some((number, true)))
    }
}

/// A list in an index.
#[derive(Debug, Clone, Copy)]
enum Of {
    Tag(EndpointKey, i64),
    State(EndpointKey, u8),
}

/// Numbers of a list, read piece by piece, the greatest first.
struct List {
    of: Of,
    read: VecDeque<u64>,
    next_count: usize,
    has_more: bool,
}

impl List {
    fn new(of: Of) -> Self {
        Self { of, read: VecDeque::new(), next_count: 1, has_more: true }
    }

    /// The greatest number below `before`, which is never greater than in the call before.
    fn below(&mut self, db: &Connection, before: u64) -> rusqlite::Result<Option<u64>> {
        while self.read.pop_front_if(|number| *number >= before).is_some() {}
        if self.read.is_empty() && self.has_more {
            let count = self.next_count;
            self.next_count = (4 * count).min(READ_MAX);
            self.read = match self.of {
                Of::Tag(endpoint, tag) => numbers_of_tag(db, endpoint, tag, before, count)?,
                Of::State(endpoint, code) => {
                    archived::numbers_of_status(db, endpoint, code, before, count)?
                }
            }
            .into();
            self.has_more = self.read.len() == count;
        }
        Ok(self.read.front().copied())
    }
}

/// The greatest numbers of archived jobs of an endpoint with this tag below `before`, at most
/// `count_max` of them, the greatest first.
pub(crate) fn numbers_of_tag(
    db: &Connection,
    endpoint: EndpointKey,
    tag: i64,
    before: u64,
    count_max: usize,
) -> rusqlite::Result<Vec<u64>> {
    let mut statement = db.prepare_cached(NUMBERS_OF_TAG)?;
    let count_max = integer(count_max as u64);
    let found = statement.query_map(params![endpoint.0, tag, integer(before), count_max], |row| {
        row.get::<_, i64>(0).map(i64::unsigned_abs)
    });
    found?.collect()
}

const NUMBERS_OF_TAG: &str = "SELECT seq FROM job_tag WHERE endpoint = ?1 AND tag = ?2 AND seq < ?3 \
                              ORDER BY seq DESC LIMIT ?4";

/// The next numbers of archived jobs that may have been submitted in a range of time: from the
/// second number of the answer up to the first one, exclusive, which is `before` at most. `None`:
/// there are none below `before`.
pub(crate) fn numbers_of_time(
    db: &Connection,
    (from, until): (u64, u64),
    before: u64,
) -> rusqlite::Result<Option<(u64, u64)>> {
    let Some(last) = before.checked_sub(1) else { return Ok(None) };
    let find = "SELECT block FROM archived_time WHERE block <= ?1 AND last_at >= ?2 AND first_at < ?3 \
                ORDER BY block DESC LIMIT 1";
    let params = |block: u64| params_of(block, from, until);
    let mut find = db.prepare_cached(find)?;
    let first: Option<i64> = find.query_row(params(last / BLOCK), |row| row.get(0)).optional()?;
    let Some(first) = first.map(i64::unsigned_abs) else { return Ok(None) };
    let find_end = "SELECT block FROM archived_time WHERE block <= ?1 AND NOT (last_at >= ?2 AND first_at < ?3) \
                    ORDER BY block DESC LIMIT 1";
    let mut find_end = db.prepare_cached(find_end)?;
    let end: Option<i64> = find_end.query_row(params(first), |row| row.get(0)).optional()?;
    let down_to = end.map_or(0, |block| (block.unsigned_abs() + 1) * BLOCK);
    Ok(Some((before.min((first + 1).saturating_mul(BLOCK)), down_to)))
}

fn params_of(block: u64, from: u64, until: u64) -> [i64; 3] {
    [integer(block), integer(from), integer(until)]
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
