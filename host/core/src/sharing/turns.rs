//! Members that wait by turns, such as the owners that wait for permits, or the endpoints of one
//! owner.
//!
//! **Promise.** The member with the greatest [urgency](Member::urgency) is next. Of equals it is
//! the one with the lowest [rank](Member::rank), which is the one that holds the least, and of
//! these the one whose last turn is the longest ago. A new member comes before the one that had the
//! last turn and behind all others, so each member waits for at most one turn of each equal one.
//! [`heads`](Turns::heads) always has a first waiter that asks for the fewest bytes, however many
//! other members wait: if any waiter has enough room, a waiter of `heads` has.
//! **Cost.** A change of a member takes a look into a map, and O(log n) while the member waits. The
//! next member is found at once, and [`heads`](Turns::heads) examines at most 2 × [`HEADS_MAX`]
//! members. Of the members that neither hold nor await anything, [`IDLE_MAX`] take memory, or as
//! many as there are others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::iter;

use hashbrown::HashMap;

/// Most members that are examined by their turns, and most sizes that are examined after these.
const HEADS_MAX: usize = 32;

/// Idle members are removed when there are more than so many, and more than others: most are back
/// soon, and a new one costs allocations.
const IDLE_MAX: usize = 32;

/// A waiter for a permit of so many bytes, which it receives through its `grant`.
#[derive(Debug)]
pub struct Waiter<G> {
    /// Its number among all waiters.
    pub number: u64,
    /// 0 where all ask for the same.
    pub bytes: u64,
    /// Where it receives the permit.
    pub grant: G,
}

/// What a member asks for.
#[derive(Debug, Clone, Copy)]
pub struct First {
    /// The number of the waiter that is served first.
    pub number: u64,
    /// The fewest bytes that a waiter asks for which may be served first.
    pub bytes: u64,
}

/// A member of [`Turns`].
pub trait Member: Default {
    /// Members with a lower one are behind it while it waits, whatever their ranks are.
    fn urgency(&self) -> u8 {
        0
    }

    /// Members with a lower one are before it, whenever they had their last turn.
    fn rank(&self) -> u128;

    /// What it asks for; `None` while it does not wait.
    fn first(&self) -> Option<First>;

    /// Whether it neither holds nor awaits anything. It is a new member afterwards.
    fn is_idle(&self) -> bool;
}

/// Waiters in the order in which they came.
impl<G> Member for VecDeque<Waiter<G>> {
    fn rank(&self) -> u128 {
        0
    }

    fn first(&self) -> Option<First> {
        self.front().map(|waiter| First { number: waiter.number, bytes: waiter.bytes })
    }

    fn is_idle(&self) -> bool {
        self.is_empty()
    }
}

/// The members.
#[derive(Debug)]
pub struct Turns<K, M> {
    members: HashMap<K, Entry<M>>,
    /// Those that wait, the next one first.
    line: BTreeMap<Place, K>,
    /// The same places, by the bytes that the members ask for.
    sizes: BTreeSet<(u64, Place)>,
    last_turn: u64,
    /// How many members are idle.
    idle: usize,
}

#[derive(Debug)]
struct Entry<M> {
    member: M,
    turn: u64,
    /// Its place in the line, and the bytes that it asks for.
    waits: Option<(u64, Place)>,
}

/// The lowest is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The greatest urgency has the lowest one.
    urgency: Reverse<u8>,
    rank: u128,
    turn: u64,
    /// The number of the first waiter, which no other member has.
    number: u64,
}

impl Place {
    /// Before all others.
    const MIN: Self = Self { urgency: Reverse(u8::MAX), rank: 0, turn: 0, number: 0 };
}

impl<K, M> Default for Turns<K, M> {
    fn default() -> Self {
        let (line, sizes) = (BTreeMap::new(), BTreeSet::new());
        Self { members: HashMap::new(), line, sizes, last_turn: 0, idle: 0 }
    }
}

impl<K: Clone + Eq + Hash, M: Member> Turns<K, M> {
    /// Whether no member waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The first waiter of the next member, and the fewest bytes that any member asks for.
    pub fn first(&self) -> Option<First> {
        let (place, (bytes, _)) = (self.line.keys().next()?, self.sizes.first()?);
        Some(First { number: place.number, bytes: *bytes })
    }

    /// A member; none for most that neither hold nor await anything.
    pub fn get(&self, key: &K) -> Option<&M> {
        self.members.get(key).map(|entry| &entry.member)
    }

    /// All that hold or await something.
    #[cfg(test)]
    pub(crate) fn members(&self) -> impl Iterator<Item = &M> {
        self.members.values().map(|entry| &entry.member).filter(|member| !member.is_idle())
    }

    /// Changes a member, which is added if it is missing. The change is a turn of the member if
    /// `is_turn`.
    pub fn change<T>(&mut self, key: &K, is_turn: bool, change: impl FnOnce(&mut M) -> T) -> T {
        let turn_of_new = self.last_turn.saturating_sub(1);
        let entry = match self.members.get_mut(key) {
            Some(entry) => {
                if entry.member.is_idle() {
                    self.idle -= 1;
                    entry.turn = turn_of_new;
                }
                entry
            }
            None => {
                let new = Entry { member: M::default(), turn: turn_of_new, waits: None };
                self.members.entry(key.clone()).or_insert(new)
            }
        };
        if let Some(waits) = entry.waits.take() {
            self.line.remove(&waits.1);
            self.sizes.remove(&waits);
        }
        let answer = change(&mut entry.member);
        if is_turn {
            self.last_turn += 1;
            entry.turn = self.last_turn;
        }
        if let Some(First { number, bytes }) = entry.member.first() {
            let (urgency, rank) = (Reverse(entry.member.urgency()), entry.member.rank());
            let place = Place { urgency, rank, turn: entry.turn, number };
            self.line.insert(place, key.clone());
            self.sizes.insert((bytes, place));
            entry.waits = Some((bytes, place));
        }
        if entry.member.is_idle() {
            self.idle += 1;
            if self.idle > IDLE_MAX.max(self.members.len() / 2) {
                self.members.retain(|_, entry| !entry.member.is_idle());
                self.idle = 0;
            }
        }
        answer
    }

    /// The members that wait, the next one first.
    pub fn in_order(&self) -> impl Iterator<Item = (&K, &M)> {
        self.line.values().filter_map(|key| Some((key, self.get(key)?)))
    }

    /// The first members that wait, and then the first one of each of the smallest sizes, by their
    /// turns too. A member may come twice.
    pub fn heads(&self) -> impl Iterator<Item = (&K, &M)> {
        let smallest = iter::once_with(|| self.smallest()).flatten();
        let smallest = smallest.filter_map(|key| Some((key, self.get(key)?)));
        self.in_order().take(HEADS_MAX).chain(smallest)
    }

    /// The first member of each of the smallest sizes; none when [`heads`](Self::heads) has
    /// examined all members without them.
    fn smallest(&self) -> Vec<&K> {
        if self.line.len() <= HEADS_MAX {
            return Vec::new();
        }
        let mut places = Vec::new();
        let mut next = self.sizes.first();
        while let Some(&(bytes, place)) = next
            && places.len() < HEADS_MAX
        {
            places.push(place);
            let larger = bytes.checked_add(1).map(|larger| (larger, Place::MIN));
            next = larger.and_then(|larger| self.sizes.range(larger..).next());
        }
        places.sort_unstable();
        places.iter().filter_map(|place| self.line.get(place)).collect()
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
