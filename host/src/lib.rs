//! The `gristmill` binary: the host's wiring ([`serve`]), the command line ([`cli`]), and the
//! reading of backups ([`archive`]).

mod archive;
pub mod cli;
mod data_dir;
pub mod serve;

/// The system's allocator costs a tenth of the processor time of a small job: calls arrive on one
/// thread and continue on another, and most of their memory is freed there. The feature `no_thp`
/// keeps the kernel from using pages of 2 MiB: with them, 6 MiB in use made 24 MiB resident, and no
/// workload took less processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
