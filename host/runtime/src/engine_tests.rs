//! The pools and the engines: what fits on a machine, what swap changes, and which files an engine
//! may load.

use super::*;
use crate::swap::tests::FakeSwaps;

#[test]
fn the_text_of_a_pool_names_its_settings() {
    let pool = |resident_bytes, scans| Pool::Slots { resident_bytes, scans }.to_string();
    assert_eq!(pool(512 * KIB, true), "pooled, first 512 KiB kept in memory, changed pages reset");
    assert_eq!(pool(2 * MIB, false), "pooled, first 2 MiB kept in memory");
    assert_eq!(pool(0, false), "pooled, first 0 KiB kept in memory");
}

#[test]
fn compiling_and_running_engines_agree_on_their_files() {
    let engines =
        Engines::new(2, Pool::for_this_machine(), false, SwapWatch::of_this_machine()).unwrap();
    for metering in [Metering::Fuel, Metering::Epoch] {
        let key = engine_key(metering, &compile_engine(engines.kind(metering)).unwrap());
        assert_eq!(engines.get(metering).unwrap().key, key);
    }
    let [fuel, epoch] =
        [Metering::Fuel, Metering::Epoch].map(|m| engines.get(m).unwrap().key.clone());
    assert!(fuel.starts_with("fuel-") && epoch.starts_with("epoch-"));
    assert_ne!(fuel.strip_prefix("fuel-"), epoch.strip_prefix("epoch-"));
}

/// Engines whose pools scan, both in use, on a machine without swap; `None` if its kernel cannot
/// scan.
fn scanning(jobs: u32) -> Option<(FakeSwaps, SwapWatch, Engines, [Arc<RunEngine>; 2])> {
    if !PoolingAllocationConfig::is_pagemap_scan_available() {
        println!("skipped: this kernel cannot scan");
        return None;
    }
    let swaps = FakeSwaps::none();
    let swap = swaps.watch();
    let engines = Engines::new(jobs, Pool::SCANNED, false, swap.clone()).unwrap();
    let in_use = [Metering::Fuel, Metering::Epoch].map(|m| engines.get(m).unwrap());
    Some((swaps, swap, engines, in_use))
}

/// The pools of three engines for so many sandboxes fit into 128 TiB, and those of four do not.
const LARGE: u32 = 2_200;

#[test]
fn a_pool_beyond_the_address_space_is_refused() {
    for (jobs, gib) in [(20_000, 320_000), (1_000_000, 16_000_000)] {
        let swap = SwapWatch::of_this_machine();
        let refused = Engines::new(jobs, Pool::for_this_machine(), false, swap).unwrap_err();
        let expected = format!("cannot reserve the addresses of {jobs} sandboxes, {gib} GiB");
        assert!(refused.to_string().contains(&expected), "{refused:#}");
    }
}

#[test]
fn each_sandbox_has_two_to_four_memories() {
    let cases = [(1, 4), (2_500, 10_000), (3_345, 10_000), (4_096, 10_000), (6_000, 12_000)];
    for (jobs, memories) in cases {
        assert_eq!(pooled_memories(jobs), memories, "{jobs}");
    }
}

#[test]
fn an_engine_whose_pool_does_not_fit_beside_the_one_before_has_none() {
    let Some((swaps, swap, engines, before)) = scanning(LARGE) else { return };
    swaps.enable(&swap);
    assert_eq!(engines.get(Metering::Fuel).unwrap().pool, Pool::COPIED);
    assert_eq!(engines.get(Metering::Epoch).unwrap().pool, Pool::OnDemand);
    drop(before);
}

#[test]
fn swap_that_is_enabled_ends_the_scan_for_new_instances() {
    let Some((swaps, swap, engines, [fuel, epoch])) = scanning(2) else { return };
    assert!(!engines.is_outdated(&fuel) && !engines.is_outdated(&epoch));
    assert_eq!(engines.pool(), Pool::SCANNED);
    swaps.enable(&swap);
    assert!(engines.is_outdated(&fuel) && engines.is_outdated(&epoch));
    for metering in [Metering::Fuel, Metering::Epoch] {
        let engine = engines.get(metering).unwrap();
        assert_eq!(engine.pool, Pool::COPIED);
        assert!(!engines.is_outdated(&engine));
        let again = engines.get(metering).unwrap();
        assert!(Arc::ptr_eq(&engine, &again), "built once");
    }
    assert_eq!(engines.pool(), Pool::COPIED);
    let weak = engines.ticker.shared.engines.lock().len();
    assert_eq!(weak, 4, "the old engines tick for the instances that they still have");
}

#[test]
fn a_pool_that_never_scanned_stays_when_swap_is_enabled() {
    let swaps = FakeSwaps::none();
    let swap = swaps.watch();
    let engines = Engines::new(2, Pool::COPIED, false, swap.clone()).unwrap();
    let before = engines.get(Metering::Fuel).unwrap();
    swaps.enable(&swap);
    assert!(Arc::ptr_eq(&before, &engines.get(Metering::Fuel).unwrap()));
}
