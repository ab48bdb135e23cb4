//! Regular expressions of schemas, without look-around and references to groups.
//!
//! **Bounds.** A search runs on a lazily built automaton, which takes a nanosecond for each byte of text, and
//! longer for each new state. When the states of a whole check have filled the [cache](CACHE_BYTES) a few
//! times, the search gives up, where other engines would take time proportional to the size of the
//! expression for each byte.
//! **Cost.** The states of a pattern are kept for the next check while they are few
//! ([`KEPT_BYTES`]), so that a short text takes 0.3 instead of 4 µs
//! (development build).

use std::sync::Arc;

use parking_lot::Mutex;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Most bytes of one compiled expression: `\w{1,20}` takes some 20 KiB.
const COMPILED_BYTES_MAX: usize = 64 << 10;

/// Bytes of states of one expression that a check keeps at one time.
const CACHE_BYTES: usize = 256 << 10;

/// How often a check may drop these states and begin anew.
const CACHE_CLEARS_MAX: usize = 2;

/// Most bytes of states that an expression keeps between checks.
const KEPT_BYTES: usize = 16 << 10;

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    dfa: DFA,
    kept: Kept,
}

/// The states that the last check has kept, unless another check uses them now.
type Kept = Arc<Mutex<Option<Cache>>>;

/// The states of one pattern during one check. Dropping them keeps them for the next check.
#[derive(Debug)]
pub(super) struct States {
    cache: Option<Cache>,
    /// Whether an earlier check has made some of them.
    is_kept: bool,
    kept: Kept,
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// One sentence that says why it cannot be used.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let config = DFA::config()
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(CACHE_CLEARS_MAX));
        let nfa = thompson::Config::new()
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .which_captures(thompson::WhichCaptures::None);
        // An ASCII boundary may be within a character, which matters only to the position of a match.
        let syntax = syntax::Config::new().utf8(false);
        let mut builder = DFA::builder();
        let built =
            builder.configure(config).thompson(nfa).syntax(syntax).build(&ascii_words(text));
        match built {
            Ok(dfa) => Ok(Self { text: text.to_owned(), dfa, kept: Kept::default() }),
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
    pub(super) fn bytes(&self) -> usize {
        self.dfa.get_nfa().memory_usage() + self.text.len() + KEPT_BYTES
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The states for one check.
    pub(super) fn states(&self) -> States {
        let cache = self.kept.lock().take();
        States { is_kept: cache.is_some(), cache, kept: self.kept.clone() }
    }

    /// Whether a part of `text` matches. `None`: the search has given up.
    pub(super) fn matches(&self, states: &mut States, text: &str) -> Option<bool> {
        let input = Input::new(text).anchored(Anchored::No).earliest(true);
        let cache = states.cache.get_or_insert_with(|| self.dfa.create_cache());
        let mut found = self.dfa.try_search_fwd(cache, &input);
        if found.is_err() && std::mem::take(&mut states.is_kept) {
            // Whether a check is exhausted does not depend on the checks before it.
            *cache = self.dfa.create_cache();
            found = self.dfa.try_search_fwd(cache, &input);
        }
        Some(found.ok()?.is_some())
    }
}

/// The expression with `\b` and `\B` as ECMA-262 defines them, between ASCII letters, digits and `_` and
/// other characters. The automaton cannot search for the boundaries of Unicode in text that is not ASCII.
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
        let is_small =
            |cache: &Cache| cache.clear_count() == 0 && cache.memory_usage() <= KEPT_BYTES;
        if let Some(cache) = self.cache.take().filter(is_small) {
            *self.kept.lock() = Some(cache);
        }
    }
}
