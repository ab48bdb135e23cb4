//! Secrets on disk: the database holds them encrypted, and does not hold the key.
//!
//! XChaCha20-Poly1305 with a random nonce for each text, and the text's purpose as associated data,
//! so that no text can be moved to another row. The key is 32 random bytes in a separate file,
//! readable only by its owner, which an operator may keep apart from the data directory and its
//! backups. Cost: 24 + 16 bytes and about a microsecond for each text.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use gristmill_core::listing::CursorKey;

use crate::error::OpenError;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// Encrypts and decrypts texts on disk.
pub(crate) struct Seal {
    cipher: XChaCha20Poly1305,
    cursors: CursorKey,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(redacted)")
    }
}

impl Seal {
    /// Reads the key in `file`. If there is no such file, it is created if `may_create`.
    ///
    /// # Errors
    /// [`OpenError::SecretsKey`] when the file is missing, unreadable, or has no key.
    pub(crate) fn open(file: &Path, may_create: bool) -> Result<Self, OpenError> {
        let refuse = |details: String| OpenError::SecretsKey { file: file.to_owned(), details };
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_create => {
                create(file).map_err(|error| refuse(error.to_string()))?
            }
            Err(error) => return Err(refuse(error.to_string())),
        };
        let key = parse(text.trim())
            .ok_or_else(|| refuse(format!("it must hold {} hexadecimal digits", 2 * KEY_BYTES)))?;
        let cursors = CursorKey::of_secret(&key);
        Ok(Self { cipher: XChaCha20Poly1305::new(&Key::from(key)), cursors })
    }

    /// The key that encrypts the positions of jobs in cursors. It is the same after a restart.
    pub(crate) fn cursors(&self) -> &CursorKey {
        &self.cursors
    }

    /// Encrypts a text for `purpose`.
    pub(crate) fn seal(&self, text: &[u8], purpose: &str) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        // The cipher only fails for texts over 256 GiB.
        [&nonce[..], &sealed.expect("a text of the store is far below the cipher's bound")].concat()
    }

    /// Decrypts a text that was encrypted for `purpose`; `None` when it was encrypted for another
    /// purpose or with another key.
    pub(crate) fn open_text(&self, sealed: &[u8], purpose: &str) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let is_whole = text.len() == 2 * KEY_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    is_whole.then_some(key)
}

/// Creates a key and returns its text. The file exists completely or not at all, and is on stable
/// storage when this returns: an unreadable database would be worse than none.
fn create(file: &Path) -> io::Result<String> {
    let key: [u8; KEY_BYTES] = rand::random();
    let text = key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".tmp");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(&temporary)?;
    writeln!(out, "{text}")?;
    out.sync_all()?;
    // Unlike a rename, a link never replaces an existing key.
    let linked = fs::hard_link(&temporary, file);
    fs::remove_file(&temporary)?;
    linked?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    fs::File::open(dir.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_opens_in_its_place_with_its_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("a"), dir.path().join("b"));
        let seal = Seal::open(&file, true).unwrap();
        let sealed = seal.seal(b"secret", "here");
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_ne!(sealed, seal.seal(b"secret", "here"), "nonces are fresh");
        let again = Seal::open(&file, false).unwrap();
        assert_eq!(again.open_text(&sealed, "here").as_deref(), Some(&b"secret"[..]));
        assert_eq!(again.open_text(&sealed, "there"), None);
        assert_eq!(Seal::open(&other, true).unwrap().open_text(&sealed, "here"), None);
        for cut in 0..sealed.len() {
            assert_eq!(again.open_text(sealed.get(..cut).unwrap(), "here"), None);
        }
    }

    #[test]
    fn a_file_that_is_missing_or_no_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        assert!(Seal::open(&file, false).is_err());
        let too_long = "0".repeat(66);
        for text in ["", "00", "zz", &too_long, &"é".repeat(32), &"+f".repeat(32)] {
            fs::write(&file, text).unwrap();
            let refused = Seal::open(&file, true).unwrap_err().to_string();
            assert!(refused.contains("64 hexadecimal digits"), "{refused}");
        }
    }
}
