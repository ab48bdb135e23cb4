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

#[path = "simulation/delayed_store.rs"]
mod delayed_store;
#[path = "simulation/scenario.rs"]
mod scenario;
#[path = "simulation/simulated_runtime.rs"]
mod simulated_runtime;

use scenario::Scenario;

#[test]
fn every_scenario_ends_in_order_and_can_be_repeated() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("SIMULATION_SEED", u64::from(rand::random::<u32>()));
    let seeds = number("SIMULATION_SEEDS", 60);
    println!("SIMULATION_SEED={first} SIMULATION_SEEDS={seeds}");
    let mut events = 0;
    for seed in first..first + seeds {
        let first_run = Scenario::run_all(seed);
        let again = Scenario::run_all(seed);
        let first_difference = first_run.iter().zip(&again).position(|(one, other)| one != other);
        if let Some(at) = first_difference {
            panic!("seed {seed} differs at event {at}:\n{}\n{}", first_run[at], again[at]);
        }
        assert_eq!(first_run.len(), again.len(), "seed {seed}");
        events += first_run.len();
    }
    println!("{seeds} stories of {events} events");
}
