//! Secrets on disk: the database holds them encrypted, and does not hold the key.
//!
//! XChaCha20-Poly1305 with a random nonce for each text, and the text's purpose as associated data,
//! so that no text can be moved to another row. A key is 32 random bytes. The keys are in a
//! separate file ([`key_file`]), readable only by its owner, which an operator may keep apart from
//! the data directory and its backups. Cost: 24 + 16 bytes and about a microsecond for each text.
//!
//! The first key encrypts; the others decrypt texts that [a rotation](crate::checkpoint::rotation)
//! has not encrypted again yet. A process keeps old keys in memory after a rotation: a reader may
//! have fetched a text that the old key encrypts.
//!
//! The tables hold one text that shows which keys a directory needs, [`Word`].

mod key_file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use gristmill_core::job::listing::{Cursor, CursorKey};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

pub use self::key_file::read as read_keys;
use self::key_file::{KEYS_MAX, KeyText};
use crate::error::OpenError;
use crate::sync::Mutex;

const NONCE_BYTES: usize = 24;

/// Bytes that each encryption adds: the nonce and the tag.
const SEAL_BYTES: usize = NONCE_BYTES + 16;

/// The purpose of the word.
const WORD_PURPOSE: &str = "meta";

/// Encrypts and decrypts texts on disk.
pub(crate) struct Seal {
    file: PathBuf,
    ring: Mutex<Arc<Ring>>,
}

/// The keys. The first one encrypts.
struct Ring {
    keys: Vec<SealKey>,
    /// Number of the first keys that are in the file; readers in this process may need the others.
    in_file: usize,
}

#[derive(Clone)]
struct SealKey {
    text: KeyText,
    cipher: XChaCha20Poly1305,
    cursors: CursorKey,
}

/// The text in the tables that shows which keys a directory needs, and whether a rotation is to be
/// completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    /// Whether the first key alone decrypts every text.
    pub(crate) is_current: bool,
    /// Whether a rotation was begun that changes the key file. Without it, an operator has edited
    /// the file, and its further keys stay in it.
    pub(crate) changes_file: bool,
}

/// A text on disk, seen by a rotation.
#[derive(Debug)]
pub(crate) enum Renewed {
    /// The first key has encrypted it.
    Current,
    /// The same text, encrypted with the first key.
    Again(Vec<u8>),
    /// No key decrypts it: it is damaged.
    Unreadable,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(redacted)")
    }
}

impl SealKey {
    fn new(text: KeyText) -> Self {
        let cursors = CursorKey::of_secret(&text);
        Self { text, cipher: XChaCha20Poly1305::new(&Key::from(text)), cursors }
    }

    fn seal(&self, text: &[u8], purpose: &str) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        // The cipher only fails for texts over 256 GiB.
        [&nonce[..], &sealed.expect("a text of the store is far below the cipher's bound")].concat()
    }

    fn open(&self, sealed: &[u8], purpose: &str) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

/// The fault of a missing key file, and its remedy. `gristmill restore` names the same one.
const MISSING: &str = "the file is missing, and the records of this data directory cannot be decrypted \
    without its key: put the file there, or name it with --secrets-key";

impl Ring {
    fn new(texts: impl IntoIterator<Item = KeyText>, in_file: usize) -> Arc<Self> {
        let keys = texts.into_iter().take(KEYS_MAX).map(SealKey::new).collect();
        Arc::new(Self { keys, in_file })
    }

    fn first(&self) -> &SealKey {
        self.keys.first().expect("a ring has a key")
    }

    /// The text, and whether the first key has encrypted it.
    fn open(&self, sealed: &[u8], purpose: &str) -> Option<(Vec<u8>, bool)> {
        let mut keys = self.keys.iter().enumerate();
        keys.find_map(|(index, key)| Some((key.open(sealed, purpose)?, index == 0)))
    }

    fn texts(&self) -> impl Iterator<Item = KeyText> {
        self.keys.iter().map(|key| key.text)
    }

    fn texts_in_file(&self) -> Vec<KeyText> {
        self.texts().take(self.in_file).collect()
    }
}

impl Seal {
    /// Reads the keys in `file`. If there is no such file, it is created if `may_create`.
    ///
    /// # Errors
    /// [`OpenError::SecretsKey`] when the file is missing, unreadable, or has no key.
    pub(crate) fn open(file: &Path, may_create: bool) -> Result<Self, OpenError> {
        let keys = match key_file::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_create => {
                key_file::create(file)
            }
            read => read,
        };
        let keys = keys.map_err(|error| OpenError::SecretsKey {
            file: file.to_owned(),
            details: match error.kind() {
                io::ErrorKind::NotFound => MISSING.to_owned(),
                _ => error.to_string(),
            },
        })?;
        let ring = Mutex::new(Ring::new(keys.iter().copied(), keys.len()));
        Ok(Self { file: file.to_owned(), ring })
    }

    /// A new key without a file.
    #[cfg(feature = "testing")]
    pub(crate) fn in_memory() -> Self {
        let ring = Mutex::new(Ring::new([rand::random()], 1));
        Self { file: PathBuf::new(), ring }
    }

    fn ring(&self) -> Arc<Ring> {
        self.ring.lock().clone()
    }

    /// The key file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Number of keys in the file.
    pub(crate) fn keys_in_file(&self) -> usize {
        self.ring().in_file
    }

    /// The cursor of a position. It is the same after a restart.
    pub(crate) fn hide(&self, position: u64) -> Cursor {
        self.ring().first().cursors.hide(position)
    }

    /// The key of [`hide`](Self::hide).
    pub(crate) fn cursor_key(&self) -> CursorKey {
        self.ring().first().cursors.clone()
    }

    /// The position of a cursor; `None` when no key of this process has made the cursor.
    pub(crate) fn reveal(&self, cursor: Cursor) -> Option<u64> {
        self.ring().keys.iter().find_map(|key| key.cursors.reveal(cursor))
    }

    /// Encrypts a text for `purpose`.
    pub(crate) fn seal(&self, text: &[u8], purpose: &str) -> Vec<u8> {
        self.ring().first().seal(text, purpose)
    }

    /// Decrypts a text that was encrypted for `purpose`; `None` when it was encrypted for another
    /// purpose or with another key.
    pub(crate) fn open_text(&self, sealed: &[u8], purpose: &str) -> Option<Vec<u8>> {
        self.ring().open(sealed, purpose).map(|(text, _)| text)
    }

    /// Encrypts a text again, unless the first key has encrypted it.
    pub(crate) fn renew(&self, sealed: &[u8], purpose: &str) -> Renewed {
        let ring = self.ring();
        match ring.open(sealed, purpose) {
            Some((_, true)) => Renewed::Current,
            Some((text, false)) => Renewed::Again(ring.first().seal(&text, purpose)),
            None => Renewed::Unreadable,
        }
    }

    /// A key for this purpose from each key of the file, which every holder of that one can derive.
    pub(crate) fn derived_keys(&self, purpose: &str) -> Vec<[u8; 32]> {
        let derived = |text: KeyText| {
            let mac = Hmac::<Sha256>::new_from_slice(&text);
            let mac = mac.expect("HMAC has keys of any length").chain_update(purpose);
            mac.finalize().into_bytes().into()
        };
        self.ring().texts_in_file().into_iter().map(derived).collect()
    }

    /// The word for the tables. If it is current, the first key decrypts it; otherwise every key of
    /// the file is needed, one after the other.
    pub(crate) fn seal_word(&self, word: Word) -> Vec<u8> {
        let ring = self.ring();
        let keys = if word.is_current { 1 } else { ring.in_file };
        let keys = ring.keys.iter().take(keys).rev();
        keys.fold(word.text().to_vec(), |text, key| key.seal(&text, WORD_PURPOSE))
    }

    /// Reads the word in the tables.
    ///
    /// # Errors
    /// [`OpenError::SecretsKey`] when the file does not have all keys that the directory needs.
    pub(crate) fn read_word(&self, sealed: &[u8]) -> Result<Word, OpenError> {
        let ring = self.ring();
        let refuse = |details: &str| {
            Err(OpenError::SecretsKey { file: self.file.clone(), details: details.to_owned() })
        };
        let Some((mut text, mut is_current)) = ring.open(sealed, WORD_PURPOSE) else {
            return refuse("it is not the key that this store's secrets were encrypted with");
        };
        for _ in 0..=KEYS_MAX {
            if let Some(changes_file) = Word::changes_file(&text) {
                return Ok(Word { is_current, changes_file });
            }
            let Some((inner, _)) = ring.open(&text, WORD_PURPOSE) else { break };
            (text, is_current) = (inner, false);
        }
        refuse(
            "a rotation of this key was not completed, and the previous key is missing: the file \
             needs both keys, the new one in its first line and the previous one in its second line",
        )
    }

    /// A word in place of one that no key decrypts, although a key decrypts other texts of the
    /// directory. `None` when the word is whole, or needs more keys than the file has: damage does
    /// not change its length, which shows their number.
    pub(crate) fn word_in_place_of(&self, damaged: &[u8]) -> Option<Vec<u8>> {
        let ring = self.ring();
        let is_whole = ring.open(damaged, WORD_PURPOSE).is_some();
        let has_all = Word::keys_of(damaged.len()).is_some_and(|keys| keys <= ring.in_file);
        let word = Word { is_current: ring.in_file == 1, changes_file: false };
        (has_all && !is_whole).then(|| self.seal_word(word))
    }

    /// Checks that the host may replace the key file.
    ///
    /// # Errors
    /// When the file cannot be replaced, or does not have the keys that this process has read or
    /// written: another host may use the same file.
    pub(crate) fn check_file(&self) -> io::Result<()> {
        key_file::check_replaceable(&self.file)?;
        if key_file::read(&self.file)? == self.ring().texts_in_file() {
            return Ok(());
        }
        let fault = "its keys have changed since this host read it; a key file may belong to one \
                     host only. Restart the host if its keys are right";
        Err(io::Error::new(io::ErrorKind::InvalidData, fault))
    }

    /// Makes a new key: writes it to the file, in front of the key that encrypts until now, and
    /// encrypts with it from now on. Every text on disk must be encrypted with that previous key.
    ///
    /// # Errors
    /// When the file cannot be replaced. Then this process continues with its keys.
    pub(crate) fn begin_rotation(&self) -> io::Result<()> {
        let ring = self.ring();
        let new: KeyText = rand::random();
        key_file::replace(&self.file, &[new, ring.first().text])?;
        *self.ring.lock() = Ring::new([new].into_iter().chain(ring.texts()), 2);
        Ok(())
    }

    /// Removes all keys except the first one from the file.
    ///
    /// # Errors
    /// When the file cannot be replaced.
    pub(crate) fn end_rotation(&self) -> io::Result<()> {
        let ring = self.ring();
        if ring.in_file > 1 {
            key_file::replace(&self.file, &[ring.first().text])?;
            *self.ring.lock() = Ring::new(ring.texts(), 1);
        }
        Ok(())
    }
}

impl Word {
    /// The state in which no rotation is to be completed.
    pub(crate) const SETTLED: Self = Self { is_current: true, changes_file: false };

    const TEXT: &[u8] = b"gristmill";
    const TEXT_IN_ROTATION: &[u8] = b"gristmill, in a rotation";

    fn text(self) -> &'static [u8] {
        if self.changes_file { Self::TEXT_IN_ROTATION } else { Self::TEXT }
    }

    /// The number of keys that have encrypted a word of this length, one after the other.
    fn keys_of(bytes: usize) -> Option<usize> {
        let keys = |text: &[u8]| {
            let added = bytes.checked_sub(text.len())?;
            (added > 0 && added % SEAL_BYTES == 0).then_some(added / SEAL_BYTES)
        };
        [Self::TEXT, Self::TEXT_IN_ROTATION].into_iter().find_map(keys)
    }

    fn changes_file(text: &[u8]) -> Option<bool> {
        let texts = [Self::TEXT, Self::TEXT_IN_ROTATION];
        texts.iter().position(|known| *known == text).map(|position| position == 1)
    }
}

#[cfg(test)]
mod tests;
