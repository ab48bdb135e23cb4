//! Reads a component from a file, and detects other files early.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use gristmill_client::wire::bounds::COMPONENT_BYTES_MAX;

/// The first bytes of every WebAssembly file.
const MAGIC: &[u8] = b"\0asm";
/// The next bytes of a component: its version and layer.
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];
/// The next bytes of a core module.
const CORE_MODULE: &[u8] = &[1, 0, 0, 0];

/// Reads the component.
///
/// # Errors
/// When the file cannot be read, is too large, or is not a component.
pub fn read(path: &Path) -> anyhow::Result<Bytes> {
    let name = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut bytes = Vec::new();
    let limit = COMPONENT_BYTES_MAX as u64;
    file.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    ensure!(bytes.len() as u64 <= limit, "{name} is larger than {} MiB", limit >> 20);
    check(&bytes).with_context(|| format!("cannot use {name}"))?;
    Ok(bytes.into())
}

fn check(bytes: &[u8]) -> anyhow::Result<()> {
    match bytes.strip_prefix(MAGIC) {
        Some(rest) if rest.starts_with(COMPONENT) => Ok(()),
        Some(rest) if rest.starts_with(CORE_MODULE) => bail!(
            "it is a core module, not a component; in Rust, build for the target wasm32-wasip2"
        ),
        Some(_) => bail!("it is WebAssembly of a version that this host does not know"),
        None => bail!("it is not WebAssembly"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_distinguished_from_other_files() {
        assert!(check(b"\0asm\x0d\0\x01\0rest").is_ok());
        let complaint = |bytes: &[u8]| check(bytes).unwrap_err().to_string();
        assert!(complaint(b"\0asm\x01\0\0\0").contains("core module"));
        assert!(complaint(b"\0asm\x0a\0\x01\0").contains("version"));
        assert_eq!(complaint(b""), "it is not WebAssembly");
        assert_eq!(complaint(b"\x7fELF"), "it is not WebAssembly");
    }
}
