//! What tests need of the store beside its calls: a store without a disk, and the decoders of bytes
//! on disk, which callers cannot reach directly.

pub mod fuzzing;
mod in_memory;
mod memory;
