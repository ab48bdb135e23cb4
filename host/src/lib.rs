//! The `gristmill` binary: the host's wiring ([`serve`]), the command line ([`cli`]) and the HTTP
//! client behind its commands, and the reading of backups ([`archive`]).

mod archive;
pub mod cli;
mod client;
mod compilers;
mod data_dir;
pub mod serve;

/// The file in the data directory that holds the admin key: written by the host, read by client
/// commands beside it.
pub(crate) const ADMIN_KEY_FILE: &str = "admin.key";

/// The system's allocator costs a tenth of the processor time of a small job: calls come on one
/// thread and go on another, and most of what they allocate is freed there. Its feature `no_thp` keeps
/// the kernel from backing what it takes by pages of 2 MiB: of those, 6 MiB in use made 24 resident,
/// and no work took less processor time for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
