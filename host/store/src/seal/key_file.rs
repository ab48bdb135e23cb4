//! The key file: one key for each line, as 64 hexadecimal digits. The first key encrypts, and each
//! key decrypts.
//!
//! A key file changes only as a whole: a new file is written and synced, and then takes its name.
//! **Bounds.** At most [`KEYS_MAX`] keys, and 4 KiB are read. Changing it costs two syncs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE;

const KEY_BYTES: usize = 32;

/// Most keys in a file, and most keys that a process keeps.
pub(super) const KEYS_MAX: usize = 8;

/// Most bytes of a key file that are read.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// The bytes of a key.
pub(super) type KeyText = [u8; KEY_BYTES];

/// The keys in a file, in their order. There is at least one.
///
/// # Errors
/// The system's error, and [`InvalidData`](io::ErrorKind::InvalidData) with the faulty line.
pub fn read(file: &Path) -> io::Result<Vec<KeyText>> {
    let mut text = String::new();
    File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    parse(&text).map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault))
}

fn parse(text: &str) -> Result<Vec<KeyText>, String> {
    const DIGITS: usize = 2 * KEY_BYTES;
    let lines: Vec<_> = text.trim().split('\n').map(str::trim).collect();
    if lines.len() > KEYS_MAX || text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it must hold at most {KEYS_MAX} keys, one for each line"));
    }
    let key = |(index, line): (usize, &&str)| {
        key(line).ok_or_else(|| match lines.len() {
            1 => format!("it must hold {DIGITS} hexadecimal digits"),
            _ => format!("line {} must hold {DIGITS} hexadecimal digits", index + 1),
        })
    };
    lines.iter().enumerate().map(key).collect()
}

fn key(text: &str) -> Option<KeyText> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Creates the file with a new key. The file exists completely or not at all, and is on stable
/// storage when this returns: an unreadable database would be worse than none.
pub(super) fn create(file: &Path) -> io::Result<Vec<KeyText>> {
    let key: KeyText = rand::random();
    let temporary = write_beside(file, &[key])?;
    // Unlike a rename, a link never replaces an existing key.
    let linked = fs::hard_link(&temporary, file);
    fs::remove_file(&temporary)?;
    linked?;
    sync_directory(file)?;
    Ok(vec![key])
}

/// Replaces the file by one with these keys. A crash leaves the old file or the new one; the new
/// file is on stable storage when this returns.
///
/// # Errors
/// When the file cannot be replaced; then it is unchanged, unless only its directory could not be
/// synced.
pub(super) fn replace(file: &Path, keys: &[KeyText]) -> io::Result<()> {
    check_replaceable(file)?;
    let replaced = write_beside(file, keys).and_then(|temporary| fs::rename(temporary, file));
    if replaced.is_err() {
        // The error matters more than the remains, which the next attempt removes too.
        let _ = fs::remove_file(beside(file));
    }
    replaced?;
    sync_directory(file)
}

/// Refuses files that an operator does not expect to change under this name.
///
/// # Errors
/// The system's error, and [`InvalidInput`](io::ErrorKind::InvalidInput) with the reason.
pub(super) fn check_replaceable(file: &Path) -> io::Result<()> {
    let refuse = |fault: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, fault.to_owned()));
    let found = fs::symlink_metadata(file)?;
    if found.is_symlink() {
        return refuse("it is a symbolic link, and the host replaces only a plain file");
    }
    if !found.is_file() {
        return refuse("it is not a plain file");
    }
    if found.permissions().readonly() {
        return refuse("it is read-only: allow its owner to write it (`chmod 600`)");
    }
    Ok(())
}

fn beside(file: &Path) -> PathBuf {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".tmp");
    temporary.into()
}

/// Writes the keys to a new file beside `file`, and syncs it.
fn write_beside(file: &Path, keys: &[KeyText]) -> io::Result<PathBuf> {
    let temporary = beside(file);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let lines = keys.iter().map(|key| HEXLOWER_PERMISSIVE.encode(key) + "\n");
    let text: String = lines.collect();
    let mut options = OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    Ok(temporary)
}

fn sync_directory(file: &Path) -> io::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn each_line_is_a_key_and_nothing_else() {
        let (one, two) = ("1f".repeat(32), "2E".repeat(32));
        let keys = |text: &str| parse(text).map(|keys| keys.iter().map(|key| key[0]).collect());
        assert_eq!(keys(&one), Ok(vec![0x1f]));
        assert_eq!(keys(&format!("{one}\n{two}\n")), Ok(vec![0x1f, 0x2e]));
        assert_eq!(keys(&format!(" {one}\r\n{two}\r\n\n")), Ok(vec![0x1f, 0x2e]));
        let faulty = [
            (String::new(), "it must hold 64"),
            (format!("{one}{two}"), "it must hold 64"),
            (format!("{one}\n\n{two}"), "line 2 must hold 64"),
            (format!("# the new key\n{one}"), "line 1 must hold 64"),
            (format!("{one}\n{two} # old"), "line 2 must hold 64"),
            (format!("{one}\n").repeat(KEYS_MAX + 1), "at most 8 keys"),
            (" ".repeat(5_000), "at most 8 keys"),
        ];
        for (text, fault) in faulty {
            let refused: Vec<u8> = match keys(&text) {
                Err(refused) if refused.contains(fault) => continue,
                Err(refused) => panic!("{text:?}: {refused}"),
                Ok(keys) => keys,
            };
            panic!("{text:?}: {refused:?}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let old = create(&file).unwrap();
        // The remains of a process that was killed.
        fs::write(beside(&file), "torn").unwrap();
        let keys = [[7; KEY_BYTES], old[0]];
        replace(&file, &keys).unwrap();
        assert_eq!(read(&file).unwrap(), keys);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);

        let text = fs::read(&file).unwrap();
        let (link, other) = (dir.path().join("link"), dir.path().join("other"));
        symlink(&file, &link).unwrap();
        let refused = |file: &Path| replace(file, &old).unwrap_err().to_string();
        assert!(refused(&link).contains("symbolic link"), "{}", refused(&link));
        assert!(refused(dir.path()).contains("not a plain file"));
        assert!(replace(&other, &old).is_err(), "a missing file is not made");
        fs::set_permissions(&file, PermissionsExt::from_mode(0o400)).unwrap();
        assert!(refused(&file).contains("read-only"));
        assert_eq!(fs::read(&file).unwrap(), text);
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
