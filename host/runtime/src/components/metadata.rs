//! The size of the metadata in a compiled file, which wasmtime decodes into the host's memory when it
//! loads the file. The rest of a file, code and data, is mapped, so the kernel can read it again.
//!
//! **Cost.** Three small reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The section with the metadata.
const METADATA: &[u8] = b".wasmtime.info";

/// Bytes of an ELF file's header.
const HEADER_BYTES: usize = 64;

/// Bytes of the header of a section.
const SECTION_BYTES: usize = 64;

/// Most bytes of the names of all sections. A compiled file has 13 sections.
const NAMES_BYTES_MAX: u64 = 1 << 16;

/// The bytes of a compiled file's metadata, before they are decoded.
///
/// # Errors
/// Those of the file system, and [`io::ErrorKind::InvalidData`] for a file that is not a compiled one.
pub(crate) fn metadata_bytes(compiled: &File) -> io::Result<u64> {
    let header = read(compiled, 0, HEADER_BYTES)?;
    let sections = u64_at(&header, 0x28)?;
    let [count, names] = [u16_at(&header, 0x3c)?, u16_at(&header, 0x3e)?].map(usize::from);
    let headers = read(compiled, sections, count * SECTION_BYTES)?;
    let (headers, _) = headers.as_chunks::<SECTION_BYTES>();
    let of_names = headers.get(names).ok_or_else(invalid)?;
    let names_bytes = u64_at(of_names, 0x20)?.min(NAMES_BYTES_MAX) as usize;
    let names = read(compiled, u64_at(of_names, 0x18)?, names_bytes)?;
    for header in headers {
        let name = names.get(u32_at(header, 0)? as usize..).unwrap_or_default();
        if name.strip_prefix(METADATA).is_some_and(|rest| rest.first() == Some(&0)) {
            return u64_at(header, 0x20);
        }
    }
    Err(invalid())
}

fn read(file: &File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, offset)?;
    Ok(read)
}

// Compiled files have the byte order of this machine, and are never larger than its addresses.

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    Ok(u64::from_ne_bytes(*part(bytes, at)?))
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    Ok(u32::from_ne_bytes(*part(bytes, at)?))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    Ok(u16::from_ne_bytes(*part(bytes, at)?))
}

fn part<const BYTES: usize>(bytes: &[u8], at: usize) -> io::Result<&[u8; BYTES]> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or_else(invalid)
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the compiled file has no metadata")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use gristmill_core::deploy::endpoint::Metering;

    use super::*;
    use crate::engine::{Kind, compile_engine};

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn the_metadata_of_compiled_files_is_measured() {
        let kind = Kind { metering: Metering::Fuel, explains_traps: false };
        let engine = compile_engine(kind).unwrap();
        let bytes_with = |globals: usize| {
            let globals = "(global i32 (i32.const 7))".repeat(globals);
            let component = wat::parse_str(format!("(component (core module {globals}))")).unwrap();
            let compiled = engine.precompile_component(&component).unwrap();
            metadata_bytes(&file(&compiled)).unwrap()
        };
        let (few, many) = (bytes_with(1), bytes_with(1001));
        assert!((10..10_000).contains(&few), "{few}");
        assert!((4_000..20_000).contains(&(many - few)), "{few}, {many}");
    }

    #[test]
    fn other_files_are_refused() {
        let mut header = [0; HEADER_BYTES];
        assert!(metadata_bytes(&file(&[])).is_err());
        assert!(metadata_bytes(&file(&header)).is_err());
        header.fill(0xff);
        assert!(metadata_bytes(&file(&header)).is_err());
    }
}
