//! The room that operations occupy in the write buffer until their batch is on disk.

use gristmill_core::sharing::permits::Permit;

/// Operations with more bytes are large: they wait for a share of their owner and endpoint, and are
/// written in turns with small ones. To write so many bytes takes about as long as a sync.
const LARGE_BYTES: usize = 64 << 10;

/// Whether an operation with so many bytes is large.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes > LARGE_BYTES
}

/// The bytes of some operations. Dropping it returns the permits of the large ones; the bytes of
/// the small ones are released by [`Shared::free`](crate::shared::Shared::free).
#[derive(Debug, Default)]
pub(crate) struct Room {
    small_bytes: usize,
    large_bytes: usize,
    permits: Vec<Permit>,
}

impl Room {
    /// The room of an operation; a large one has a `permit`.
    pub(crate) fn new(bytes: usize, permit: Option<Permit>) -> Self {
        match permit {
            Some(permit) => Self { small_bytes: 0, large_bytes: bytes, permits: vec![permit] },
            None => Self { small_bytes: bytes, large_bytes: 0, permits: Vec::new() },
        }
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.small_bytes + self.large_bytes
    }

    /// The bytes of the small operations.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small_bytes
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.small_bytes += more.small_bytes;
        self.large_bytes += more.large_bytes;
        self.permits.extend(more.permits);
    }
}
