//! The language model: a Markov chain over words, trained on a text in this folder.
//!
//! The next token is drawn from the tokens that followed the last two tokens in the corpus. A pair
//! that occurs only once would repeat the corpus word for word; then the chain uses only the last
//! token.

use std::collections::{BTreeMap, HashMap};

use crate::tokens::tokenize;

const CORPUS: &str = include_str!("corpus.txt");

/// A token of the corpus by its number: the earlier it first occurs, the lower.
pub type Id = usize;

/// The position before the first token of a paragraph and after its last one.
pub const END: Id = 0;

/// The following tokens, with their frequency.
type Counts = BTreeMap<Id, u32>;

/// The trained chain.
pub struct Chain {
    tokens: Vec<&'static str>,
    ids: HashMap<&'static str, Id>,
    after_one: HashMap<Id, Counts>,
    after_two: HashMap<[Id; 2], Counts>,
}

impl Chain {
    /// Reads the corpus: some hundred words, in far less than a millisecond.
    pub fn train() -> Self {
        let mut chain = Self {
            tokens: vec![""],
            ids: HashMap::new(),
            after_one: HashMap::new(),
            after_two: HashMap::new(),
        };
        for paragraph in CORPUS.split("\n\n") {
            let mut last = [END, END];
            for token in tokenize(paragraph) {
                let id = chain.id(token);
                chain.count(&mut last, id);
            }
            chain.count(&mut last, END);
        }
        chain
    }

    fn id(&mut self, token: &'static str) -> Id {
        let next = self.tokens.len();
        *self.ids.entry(token).or_insert_with(|| {
            self.tokens.push(token);
            next
        })
    }

    fn count(&mut self, last: &mut [Id; 2], next: Id) {
        *self.after_two.entry(*last).or_default().entry(next).or_default() += 1;
        *self.after_one.entry(last[1]).or_default().entry(next).or_default() += 1;
        *last = [last[1], next];
    }

    /// The token's text.
    pub fn text(&self, id: Id) -> &'static str {
        self.tokens.get(id).copied().unwrap_or_default()
    }

    /// The token, if the corpus has it in this spelling or in lower case.
    pub fn find(&self, token: &str) -> Option<Id> {
        self.ids.get(token).or_else(|| self.ids.get(token.to_lowercase().as_str())).copied()
    }

    /// The most significant word of a text: the longest one in the corpus, and the last of equally
    /// long ones.
    pub fn topic(&self, text: &str) -> Option<Id> {
        let words = tokenize(text).filter(|token| token.starts_with(char::is_alphabetic));
        words.filter_map(|word| self.find(word)).max_by_key(|id| self.text(*id).chars().count())
    }

    /// Draws the token after the last two tokens. `random` is in `0.0..1.0`. At temperature 0 it is
    /// the most likely token; the higher the temperature, the more equal are the chances of the
    /// others.
    pub fn next(&self, last: [Id; 2], temperature: f64, random: f64) -> Id {
        let Some(counts) = self.counts(last) else { return END };
        let most = counts.values().copied().max().unwrap_or(1);
        if temperature <= 0.0 {
            let likeliest = counts.iter().find(|(_, count)| **count == most);
            return likeliest.map_or(END, |(id, _)| *id);
        }
        let weight = |count: u32| (f64::from(count) / f64::from(most)).powf(1.0 / temperature);
        let mut left = random * counts.values().map(|count| weight(*count)).sum::<f64>();
        let drawn = counts.iter().find(|(_, count)| {
            left -= weight(**count);
            left < 0.0
        });
        drawn.or(counts.last_key_value()).map_or(END, |(id, _)| *id)
    }

    fn counts(&self, last: [Id; 2]) -> Option<&Counts> {
        let pair = self.after_two.get(&last);
        pair.filter(|counts| counts.values().sum::<u32>() > 1)
            .or_else(|| self.after_one.get(&last[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_counted_in_the_corpus() {
        let chain = Chain::train();
        let id = |token| chain.find(token).unwrap();
        let [lower, stone] = ["lower", "stone"].map(id);
        assert_eq!(chain.text(chain.next([END, lower], 1.0, 0.5)), "stone");
        // `lower stone` occurs once, so the chain uses `stone` alone.
        let after: Vec<_> = [0.0, 0.2, 0.4, 0.6, 0.8, 0.999]
            .map(|random| chain.text(chain.next([lower, stone], 1.0, random)))
            .into();
        assert!(after.iter().any(|token| *token != "lies"), "{after:?}");
        assert_eq!(chain.next([END, 1_000_000], 1.0, 0.5), END);
    }

    #[test]
    fn temperature_weighs_the_likeliest() {
        let chain = Chain::train();
        let the = [END, chain.find("the").unwrap()];
        let likeliest = chain.next(the, 0.0, 0.99);
        let hits = |temperature| {
            let draws = (0..1_000).map(|i| chain.next(the, temperature, f64::from(i) / 1_000.0));
            draws.filter(|id| *id == likeliest).count()
        };
        assert_eq!(hits(0.001), 1_000);
        assert!(hits(0.5) > hits(1.0) && hits(1.0) > hits(2.0) && hits(2.0) > 0);
    }

    #[test]
    fn the_topic_is_the_longest_word_that_is_known() {
        let chain = Chain::train();
        let topic = |text| chain.topic(text).map(|id| chain.text(id));
        assert_eq!(topic("Why is the OVEN so hot, computer?"), Some("oven"));
        assert_eq!(topic("xyzzy, 42!"), None);
    }
}
