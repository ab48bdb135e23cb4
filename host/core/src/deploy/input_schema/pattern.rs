//! Regular expressions of schemas, without look-around and references to groups.
//!
//! **Bounds.** A search runs on a lazily built automaton, which takes a nanosecond for each byte of text, and
//! longer for each new state. When the states of a whole check have filled the [cache](CACHE_BYTES) a few
//! times, the search gives up, where other engines would take time proportional to the size of the
//! expression for each byte.

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input};

/// Most bytes of one compiled expression: `\w{1,20}` takes some 20 KiB.
const COMPILED_BYTES_MAX: usize = 64 << 10;

/// Bytes of states of one expression that a check keeps at one time.
const CACHE_BYTES: usize = 256 << 10;

/// How often a check may drop these states and begin anew.
const CACHE_CLEARS_MAX: usize = 2;

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    dfa: DFA,
}

/// The states of one pattern during one check.
#[derive(Debug)]
pub(super) struct States(Cache);

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// One sentence that says why it cannot be used.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let config = DFA::config()
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(CACHE_CLEARS_MAX))
            .unicode_word_boundary(true);
        let nfa = thompson::Config::new()
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .which_captures(thompson::WhichCaptures::None);
        let built = DFA::builder().configure(config).thompson(nfa).build(text);
        match built {
            Ok(dfa) => Ok(Self { text: text.to_owned(), dfa }),
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
        self.dfa.get_nfa().memory_usage() + self.text.len()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The states for one check.
    pub(super) fn states(&self) -> States {
        States(self.dfa.create_cache())
    }

    /// Whether a part of `text` matches. `None`: the search has given up.
    pub(super) fn matches(&self, states: &mut States, text: &str) -> Option<bool> {
        let input = Input::new(text).anchored(Anchored::No).earliest(true);
        let found = self.dfa.try_search_fwd(&mut states.0, &input).ok()?;
        Some(found.is_some())
    }
}
