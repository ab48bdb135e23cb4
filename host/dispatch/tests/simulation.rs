//! A deterministic simulation of dispatcher, store and clock. A seed determines a sequence of
//! submissions, cancels, retries, deploys, drains and crashes; time passes only when nothing else
//! can happen. Each seed runs twice, and both runs must have the same events. `SIMULATION_SEED` and
//! `SIMULATION_SEEDS` choose the first seed and the number of seeds.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

#[path = "simulation/late_store.rs"]
mod late_store;
#[path = "simulation/mill.rs"]
mod mill;
#[path = "simulation/story.rs"]
mod story;

use story::Story;

#[test]
fn every_story_ends_well_and_can_be_told_twice() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("SIMULATION_SEED", u64::from(rand::random::<u32>()));
    let seeds = number("SIMULATION_SEEDS", 60);
    println!("SIMULATION_SEED={first} SIMULATION_SEEDS={seeds}");
    let mut events = 0;
    for seed in first..first + seeds {
        let told = Story::tell(seed);
        let again = Story::tell(seed);
        let first_difference = told.iter().zip(&again).position(|(one, other)| one != other);
        if let Some(at) = first_difference {
            panic!("seed {seed} differs at event {at}:\n{}\n{}", told[at], again[at]);
        }
        assert_eq!(told.len(), again.len(), "seed {seed}");
        events += told.len();
    }
    println!("{seeds} stories of {events} events");
}
