//! Makes bytes durable that an earlier process has written and perhaps never synced, before any of
//! them is used.
//!
//! A killed process leaves its last writes in the page cache, where the next process finds them; a
//! loss of power would still lose them. A failed sync is worse: the kernel drops the error and
//! marks the pages as clean, so that a second sync succeeds without writing them. Writing the bytes
//! again makes the second sync effective.
//!
//! Cost: reading and writing the used part of the file, once for each start after a crash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes that are read and written in one call.
const PIECE_BYTES: usize = 1 << 20;

/// Writes the first `end` bytes of the file again, and syncs it. `file` is open for reading and
/// writing, and not in append mode.
pub(crate) fn rewrite(file: &File, end: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let bytes = piece.get_mut(..wanted).unwrap_or_default();
        file.read_exact_at(bytes, at)?;
        file.write_all_at(bytes, at)?;
        at += wanted as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_changes_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<_> = (0..PIECE_BYTES + 77).map(|n| u8::try_from(n % 251).unwrap()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        for end in [0, 1, 70_000, PIECE_BYTES as u64, bytes.len() as u64] {
            rewrite(&file, end).unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes, "{end}");
        }
        assert!(rewrite(&file, bytes.len() as u64 + 1).is_err());
    }
}
