//! Reads a backup: each file must match its checksum, no file may be missing, and no name may lead
//! out of the directory.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use data_encoding::HEXLOWER;
use gristmill_core::backup::{
    CHECKSUMS, COMPONENTS, DATABASE, JOURNAL, SECRETS_KEY, component_digest, is_name,
};
use sha2::{Digest as _, Sha256};
use tar::{Archive, Entry, EntryType};

/// Most bytes of the list of checksums: enough for half a million files.
const CHECKSUMS_BYTES_MAX: u64 = 64 << 20;

/// The fault of a file that does not begin as a backup does.
const NO_BACKUP: &str = "the file is not a backup: it is not an archive that `gristmill backup` has written, \
    or is incomplete";

/// The content of a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    pub(crate) has_secrets_key: bool,
}

/// Reads a backup to its end, and writes its files below `dir`, if one is given. They are on stable
/// storage when this returns.
///
/// # Errors
/// When the backup is incomplete or damaged; then the content of `dir` must not be used.
pub(crate) fn read(archive: impl Read, dir: Option<&Path>) -> anyhow::Result<Summary> {
    if let Some(dir) = dir {
        for part in [JOURNAL, COMPONENTS] {
            DirBuilder::new().mode(0o700).create(dir.join(part))?;
        }
    }
    let mut archive = Archive::new(archive);
    let mut entries = archive.entries()?;
    let mut found = BTreeMap::new();
    let mut summary = Summary::default();
    let expected = loop {
        let Some(entry) = entries.next() else {
            ensure!(!found.is_empty(), NO_BACKUP);
            bail!("the backup is incomplete: it ends before its {CHECKSUMS}");
        };
        let mut entry = entry.map_err(|error| explained(error, found.is_empty()))?;
        let name = name(&entry)?;
        if name == CHECKSUMS {
            break checksums(&mut entry)?;
        }
        let sum = match dir {
            Some(dir) => unpack(&mut entry, &dir.join(&name)),
            None => copy(&mut entry, io::sink()),
        };
        let sum = sum.with_context(|| format!("cannot read {name} from the backup"))?;
        summary.bytes += entry.size();
        summary.has_secrets_key |= name == SECRETS_KEY;
        ensure!(found.insert(name.clone(), sum).is_none(), "the backup has {name} twice");
    };
    ensure!(entries.next().is_none(), "the backup has data after its {CHECKSUMS}");
    for (name, sum) in &found {
        let is_right = expected.get(name) == Some(sum);
        ensure!(is_right, "{name} in the backup does not match its checksum");
        // A component is named by its own checksum; if they differ, it was damaged before the
        // backup.
        ensure!(
            component_digest(name).is_none_or(|digest| digest == sum),
            "{name} does not match the digest in its name"
        );
    }
    let missing = expected.keys().find(|name| !found.contains_key(*name));
    if let Some(missing) = missing {
        bail!("{missing} is missing in the backup");
    }
    ensure!(found.contains_key(DATABASE), "the backup has no {DATABASE}");
    if let Some(dir) = dir {
        for part in [&dir.join(JOURNAL), &dir.join(COMPONENTS), dir] {
            File::open(part)?.sync_all()?;
        }
    }
    summary.files = found.len();
    Ok(summary)
}

/// An error of the library in words: its own ones name blocks and headers of an archive. Errors of
/// the system stay as they are.
fn explained(error: io::Error, is_first: bool) -> anyhow::Error {
    let is_of_library = matches!(
        error.kind(),
        io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    );
    match (is_of_library, is_first) {
        (true, true) => anyhow!(NO_BACKUP),
        (true, false) => anyhow!("the backup is incomplete or damaged before its {CHECKSUMS}"),
        (false, _) => anyhow::Error::from(error).context("cannot read the backup"),
    }
}

/// The permitted name of a file of a backup.
fn name(entry: &Entry<'_, impl Read>) -> anyhow::Result<String> {
    let path = entry.path()?;
    let name = path.to_str().filter(|name| is_name(name));
    let is_file = entry.header().entry_type() == EntryType::Regular;
    match name.filter(|_| is_file) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("`{}` is not a file of a backup", path.display()),
    }
}

fn checksums(entry: &mut impl Read) -> anyhow::Result<BTreeMap<String, String>> {
    let mut text = String::new();
    let read = entry.take(CHECKSUMS_BYTES_MAX).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {CHECKSUMS} from the backup"))?;
    let pairs = text.lines().map(|line| {
        let (sum, name) =
            line.split_once("  ").with_context(|| format!("{CHECKSUMS}: `{line}`"))?;
        Ok((name.to_owned(), sum.to_owned()))
    });
    pairs.collect()
}

fn unpack(entry: &mut impl Read, path: &Path) -> io::Result<String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let sum = copy(entry, &file)?;
    file.sync_all()?;
    Ok(sum)
}

/// The SHA-256 of a file, in hexadecimal digits.
pub(crate) fn sum_of(file: &Path) -> io::Result<String> {
    copy(&mut File::open(file)?, io::sink())
}

/// Copies, and returns the SHA-256 of the copied bytes.
fn copy(from: &mut impl Read, mut to: impl Write) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        let count = from.read(&mut piece)?;
        let bytes = piece.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        hash.update(bytes);
        to.write_all(bytes)?;
    }
    Ok(HEXLOWER.encode(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const GRAIN: &str = "e10b2b8e";

    /// An archive of these files; the last one has the checksums of the others.
    fn archive(files: &[(&str, &str)], ending: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut sums = String::new();
        let mut add = |name: &str, text: &str| {
            let mut head = tar::Header::new_gnu();
            head.set_size(text.len() as u64);
            // Bypasses the checks of the library, since a backup may come from any program.
            head.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            head.set_entry_type(EntryType::Regular);
            head.set_cksum();
            archive.append(&head, text.as_bytes()).unwrap();
        };
        for (name, text) in files {
            add(name, text);
            let sum = copy(&mut text.as_bytes(), io::sink()).unwrap();
            writeln!(sums, "{sum}  {name}").unwrap();
        }
        add(CHECKSUMS, &sums);
        for (name, text) in ending {
            add(name, text);
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn a_written_archive_is_read_back() {
        let bytes = archive(&[("store.db", "tables"), ("journal/000001.seg", GRAIN)], &[]);
        let expected = Summary { files: 2, bytes: 14, has_secrets_key: false };
        assert_eq!(read(&bytes[..], None).unwrap(), expected);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&bytes[..], Some(dir.path())).unwrap(), expected);
        let text = std::fs::read_to_string(dir.path().join("journal/000001.seg")).unwrap();
        assert_eq!(text, GRAIN);
    }

    #[test]
    fn a_file_of_another_kind_is_reported_as_one() {
        for bytes in [&b""[..], b"{}", &[b'x'; 2_000], &[0; 1_024]] {
            assert_eq!(format!("{:#}", read(bytes, None).unwrap_err()), NO_BACKUP);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let whole = archive(&[("store.db", "tables"), ("journal/000001.seg", GRAIN)], &[]);
        let refusal = |bytes: &[u8]| format!("{:#}", read(bytes, None).unwrap_err());
        // The last blocks only mark the end of the archive.
        for cut in (0..=whole.len() - 1_536).step_by(64) {
            let said = refusal(&whole[..cut]);
            assert!(said.contains("backup"), "{cut}: {said}");
        }
        let at = whole.windows(6).position(|bytes| bytes == b"tables").unwrap();
        let mut flipped = whole;
        flipped[at] ^= 1;
        assert_eq!(refusal(&flipped), "store.db in the backup does not match its checksum");
        let component = format!("components/{}.wasm", "0f".repeat(32));
        let cases = [
            (archive(&[("../store.db", "x")], &[]), "is not a file of a backup"),
            (archive(&[("store.db", "x"), ("store.db", "x")], &[]), "twice"),
            (archive(&[("journal/000001.seg", "x")], &[]), "has no store.db"),
            (archive(&[("store.db", "x"), (&component, "x")], &[]), "digest in its name"),
            (archive(&[("store.db", "x")], &[("secrets.key", "x")]), "has data after"),
        ];
        for (bytes, words) in cases {
            let said = refusal(&bytes);
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
