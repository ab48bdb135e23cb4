//! Draws tokens until a condition stops it.

use std::hash::{BuildHasher as _, RandomState};

use gristmill_sdk::Error;

use crate::chain::{Chain, END, Id};
use crate::stop::{Passed, StopFilter};
use crate::tokens::{capitalized, spaced};

/// The settings of a text.
pub struct Settings {
    pub max_tokens: usize,
    pub temperature: f64,
    /// The same seed draws the same text.
    pub seed: Option<u64>,
    pub stop: Vec<String>,
}

/// The beginning of a text.
pub enum Start {
    /// With this word, or with any paragraph of the corpus.
    New(Option<Id>),
    /// After these two tokens.
    After([Id; 2]),
}

/// The drawn text.
pub struct Drawn {
    pub tokens: usize,
    pub finish_reason: &'static str,
}

/// Draws a text and passes on its tokens. Text that may belong to a stop sequence is held back
/// until it is clear whether it does.
pub fn generate(
    chain: &Chain,
    start: Start,
    settings: Settings,
    mut tell: impl FnMut(String) -> Result<(), Error>,
) -> Result<Drawn, Error> {
    let mut random = Random::new(settings.seed);
    let mut stops = StopFilter::new(settings.stop);
    let (mut last, mut given) = match start {
        Start::New(word) => ([END, END], word),
        Start::After(last) => (last, None),
    };
    let mut is_first = last == [END, END];
    for tokens in 0..settings.max_tokens {
        let next =
            given.take().unwrap_or_else(|| chain.next(last, settings.temperature, random.next()));
        if next == END {
            tell_rest(&mut stops, &mut tell)?;
            return Ok(Drawn { tokens, finish_reason: "stop" });
        }
        last = [last[1], next];
        let token = chain.text(next);
        let text = if is_first { capitalized(token) } else { spaced(token) };
        is_first = false;
        match stops.push(&text) {
            Passed::Text(text) if text.is_empty() => {}
            Passed::Text(text) => tell(text)?,
            Passed::Last(text) => {
                if !text.is_empty() {
                    tell(text)?;
                }
                return Ok(Drawn { tokens: tokens + 1, finish_reason: "stop" });
            }
        }
    }
    tell_rest(&mut stops, &mut tell)?;
    Ok(Drawn { tokens: settings.max_tokens, finish_reason: "length" })
}

fn tell_rest(
    stops: &mut StopFilter,
    tell: &mut impl FnMut(String) -> Result<(), Error>,
) -> Result<(), Error> {
    let rest = stops.finish();
    if rest.is_empty() { Ok(()) } else { tell(rest) }
}

/// SplitMix64: small, and good enough for prose.
struct Random(u64);

impl Random {
    fn new(seed: Option<u64>) -> Self {
        // The default is a random seed, as the platform gives it to hash maps.
        Self(seed.unwrap_or_else(|| RandomState::new().hash_one(0)))
    }

    /// A number in `0.0..1.0`.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0);
        f64::from(high) / 4_294_967_296.0
    }
}
