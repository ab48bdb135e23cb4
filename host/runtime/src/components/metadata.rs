//! The size of the metadata in a compiled file, which wasmtime decodes into the host's memory when
//! it loads the file. The rest of a file, code and data, is mapped, so the kernel can read it
//! again.
//!
//! **Cost.** Three small reads.

use std::fs::File;
use std::io;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// The section with the metadata.
const METADATA: &[u8] = b".wasmtime.info";

/// The bytes of a compiled file's metadata, before they are decoded.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a file that cannot be read, or is not a compiled one.
pub(crate) fn metadata_bytes(compiled: &File) -> io::Result<u64> {
    let cache = ReadCache::new(compiled);
    let find = || {
        let header = FileHeader64::<Endianness>::parse(&cache)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, &cache)?;
        let found = sections.section_by_name(endian, METADATA);
        object::Result::Ok(found.map(|(_, section)| section.sh_size(endian)))
    };
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let found = find().map_err(|error| invalid(error.to_string()))?;
    found.ok_or_else(|| invalid("the compiled file has no metadata".to_owned()))
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
        let mut header = [0; 64];
        assert!(metadata_bytes(&file(&[])).is_err());
        assert!(metadata_bytes(&file(&header)).is_err());
        header.fill(0xff);
        assert!(metadata_bytes(&file(&header)).is_err());
    }
}
