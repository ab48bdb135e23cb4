//! The store's threads and their callers in many orders: a program of its own, which compiles the
//! store's files with the locks and threads of [`sync`](sync.rs) instead of `src/sync.rs`.
//!
//! Every module of `src/lib.rs` is here. All libraries are those of the other suites, so that only
//! the store itself is compiled again; as a feature of the store the scheduler cost 94 crates.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "the suite uses a part of the store")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that meets the unexpected has failed"
)]

#[path = "../src/cache_dir.rs"]
mod cache_dir;
#[path = "../src/checkpoint/mod.rs"]
mod checkpoint;
#[path = "../src/commit/mod.rs"]
mod commit;
#[path = "../src/damage.rs"]
mod damage;
#[path = "../src/dir_lock.rs"]
mod dir_lock;
#[path = "../src/durable.rs"]
mod durable;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/failure.rs"]
mod failure;
#[path = "../src/format/mod.rs"]
mod format;
#[path = "../src/journal/mod.rs"]
mod journal;
#[path = "../src/medium.rs"]
mod medium;
#[path = "../src/offline/mod.rs"]
mod offline;
#[path = "../src/postgres/mod.rs"]
mod postgres;
#[path = "../src/private.rs"]
mod private;
#[path = "../src/recover.rs"]
mod recover;
#[path = "../src/seal/mod.rs"]
mod seal;
#[path = "../src/settings.rs"]
mod settings;
#[path = "../src/shared.rs"]
mod shared;
#[path = "../src/state/mod.rs"]
mod state;
#[path = "../src/store/mod.rs"]
mod store;
mod sync;
#[path = "../src/tables/mod.rs"]
mod tables;
#[path = "../src/testing/mod.rs"]
mod testing;

mod orders;

pub use offline::check::check;
pub use offline::repair::repair;
pub use settings::Settings;
pub use store::Store;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let tests = orders::TESTS.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), tests.into()).exit_code()
}
