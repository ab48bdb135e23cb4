//! Regular expressions of schemas, without look-around and references to groups.
//!
//! **Bounds.** A search runs on a lazily built automaton, and reads the text once. A byte takes 2
//! ns where its transition is known. A new transition walks the expression, and a hostile text
//! needs a new one for almost each byte. So a search counts each new transition as steps of its
//! check, by the size of the expression, before it makes the transition: 33 steps for the pattern
//! of a UUID, some thousands for the largest expressions.
//! **Cost.** The states of a pattern are kept for the next check while they are few
//! ([`KEPT_BYTES`]), so that a short text takes 0.3 instead of 4 µs
//! (development build).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

/// Most bytes of one compiled expression: `\w{3}` takes 52 KiB, since it has all letters of
/// Unicode.
const COMPILED_BYTES_MAX: usize = 64 << 10;

/// Bytes of states of one expression that a check keeps at one time. A full cache is emptied.
const CACHE_BYTES: usize = 256 << 10;

/// Most bytes of states that an expression keeps between checks.
const KEPT_BYTES: usize = 16 << 10;

/// Most steps that the states which an expression keeps between checks have cost.
pub(crate) const KEPT_STEPS_MAX: u64 = 100_000;

/// Parts of an expression that a new transition visits for each step.
const PARTS_PER_STEP: usize = 16;

/// Steps of the smallest new transition, with its state.
const TRANSITION_STEPS: usize = 16;

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    dfa: DFA,
    /// Steps for a new transition.
    transition_steps: u64,
    kept: Kept,
}

/// The states that the last check has kept, unless another check uses them now.
type Kept = Arc<Mutex<Option<Made>>>;

/// The states of one pattern during one check. Dropping them keeps them for the next check.
#[derive(Debug)]
pub(crate) struct States {
    made: Option<Made>,
    kept: Kept,
}

/// States and transitions that searches have made.
#[derive(Debug)]
struct Made {
    cache: Cache,
    /// Whether a text that ends in a state matches.
    ends: HashMap<LazyStateID, bool>,
    /// The steps that they have cost.
    steps: u64,
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// One sentence that says why it cannot be used.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        // A match within a character does not end a search, so that all matches are followed.
        let config = DFA::config()
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true)
            .match_kind(MatchKind::All);
        let nfa = thompson::Config::new()
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .which_captures(thompson::WhichCaptures::None);
        // An ASCII boundary may be within a character, which matters only to the position of a
        // match.
        let syntax = syntax::Config::new().utf8(false);
        let mut builder = DFA::builder();
        let built =
            builder.configure(config).thompson(nfa).syntax(syntax).build(&ascii_words(text));
        match built {
            Ok(dfa) => {
                let steps = TRANSITION_STEPS + parts(dfa.get_nfa()) / PARTS_PER_STEP;
                let (text, kept) = (text.to_owned(), Kept::default());
                Ok(Self { text, dfa, transition_steps: steps as u64, kept })
            }
            Err(error) => {
                let mut causes = vec![error.to_string()];
                let mut source = std::error::Error::source(&error);
                while let Some(cause) = source {
                    causes.push(cause.to_string());
                    source = cause.source();
                }
                let cause = causes.iter().flat_map(|cause| cause.lines()).next_back();
                let cause = cause.unwrap_or_default().trim_start_matches("error: ");
                Err(format!(
                    "`{text}` is not a regular expression that runs in linear time within \
                     {COMPILED_BYTES_MAX} bytes, without look-around and references to groups: {cause}"
                ))
            }
        }
    }

    /// About the bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.dfa.get_nfa().memory_usage() + self.text.len() + KEPT_BYTES
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The states for one check. `is_new`: without those that earlier checks have made.
    pub(crate) fn states(&self, is_new: bool) -> States {
        let made = if is_new { None } else { self.kept.lock().take() };
        States { made, kept: self.kept.clone() }
    }

    /// Whether a part of `text` matches. `None`: `steps` do not suffice for the states that this
    /// needs.
    pub(crate) fn matches(&self, states: &mut States, text: &str, steps: &mut u64) -> Option<bool> {
        let made = match &mut states.made {
            Some(made) => made,
            none => {
                *steps = steps.checked_sub(self.transition_steps)?;
                let (cache, steps) = (self.dfa.create_cache(), self.transition_steps);
                none.insert(Made { cache, ends: HashMap::new(), steps })
            }
        };
        let mut charge = |made: &mut Made| {
            *steps = steps.checked_sub(self.transition_steps)?;
            made.steps += self.transition_steps;
            Some(())
        };
        let mut state = self.dfa.start_state_forward(&mut made.cache, &Input::new(text)).ok()?;
        for (at, byte) in text.bytes().enumerate() {
            let known = (!state.is_tagged())
                .then(|| self.dfa.next_state_untagged(&made.cache, state, byte))
                .filter(|next| !next.is_unknown());
            state = match known {
                Some(next) => next,
                None => {
                    charge(made)?;
                    let clears = made.cache.clear_count();
                    let next = self.dfa.next_state(&mut made.cache, state, byte).ok()?;
                    if made.cache.clear_count() != clears {
                        made.ends.clear();
                    }
                    next
                }
            };
            // A match shows with the byte after it.
            if state.is_match() && text.is_char_boundary(at) {
                return Some(true);
            }
            if state.is_dead() {
                return Some(false);
            }
        }
        if let Some(matches) = made.ends.get(&state) {
            return Some(*matches);
        }
        charge(made)?;
        let clears = made.cache.clear_count();
        let matches = self.dfa.next_eoi_state(&mut made.cache, state).ok()?.is_match();
        match made.cache.clear_count() == clears {
            true => drop(made.ends.insert(state, matches)),
            false => made.ends.clear(),
        }
        Some(matches)
    }

    /// What the library's own search finds.
    #[cfg(test)]
    pub(crate) fn library_matches(&self, text: &str) -> bool {
        let input = Input::new(text).earliest(true);
        self.dfa.try_search_fwd(&mut self.dfa.create_cache(), &input).unwrap().is_some()
    }
}

/// The states and edges of an expression, each as often as a new transition may visit it.
fn parts(nfa: &NFA) -> usize {
    let edges = |state: &thompson::State| match state {
        thompson::State::Union { alternates } => alternates.len(),
        thompson::State::Sparse(sparse) => sparse.transitions.len(),
        _ => 1,
    };
    let parts = nfa.states().iter().map(|state| 1 + edges(state)).sum::<usize>();
    // An assertion makes it walk twice.
    if nfa.look_set_any().is_empty() { parts } else { 2 * parts }
}

/// The expression with `\b` and `\B` as ECMA-262 defines them, between ASCII letters, digits and
/// `_` and other characters. The automaton cannot search for the boundaries of Unicode in text that
/// is not ASCII.
fn ascii_words(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    // A class may contain others.
    let mut classes = 0_usize;
    while let Some(next) = chars.next() {
        match next {
            '\\' => match chars.next() {
                Some(word @ ('b' | 'B')) if classes == 0 && chars.peek() != Some(&'{') => {
                    ascii.push_str(if word == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" });
                }
                escaped => {
                    ascii.push(next);
                    ascii.extend(escaped);
                }
            },
            '[' => {
                classes += 1;
                ascii.push(next);
                ascii.extend(chars.next_if_eq(&'^'));
                // As the first one in a class it is a character.
                ascii.extend(chars.next_if_eq(&']'));
            }
            ']' => {
                classes = classes.saturating_sub(1);
                ascii.push(next);
            }
            other => ascii.push(other),
        }
    }
    ascii
}

impl Drop for States {
    fn drop(&mut self) {
        let is_small = |made: &Made| {
            made.cache.clear_count() == 0
                && made.cache.memory_usage() <= KEPT_BYTES
                && made.steps <= KEPT_STEPS_MAX
        };
        if let Some(made) = self.made.take().filter(is_small) {
            *self.kept.lock() = Some(made);
        }
    }
}
