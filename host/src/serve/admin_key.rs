//! The first key. A new data directory has none, so the first start creates one with every
//! permission, stores it in a file that only its owner can read, and prints it if standard output
//! is a terminal.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use gristmill_client::ADMIN_KEY_FILE;
use gristmill_core::access::key::{ApiKey, KeyText, NewKey, Scope};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry};
use gristmill_core::id::OwnerId;
use gristmill_core::store::StoreError;
use gristmill_core::time::Timestamp;

/// Creates the admin key if there is no key at all.
///
/// # Errors
/// When the key cannot be stored or the file cannot be written.
pub(crate) async fn ensure(
    catalog: &Catalog,
    data_dir: &Path,
    now: Timestamp,
) -> anyhow::Result<Option<KeyText>> {
    if !catalog.view().keys.is_empty() {
        return Ok(None);
    }
    let (key, text) = ApiKey::generate(
        NewKey {
            name: "admin".into(),
            owner: OwnerId::operator(),
            scopes: vec![Scope::Admin],
            endpoints: None,
            expires_at: None,
        },
        now,
    );
    // The file first: a stored key that is shown nowhere would lock all users out.
    write_private(&data_dir.join(ADMIN_KEY_FILE), text.reveal())?;
    catalog
        .change(|_| Ok::<_, StoreError>((vec![CatalogChange::Put(CatalogEntry::Key(key))], ())))
        .await?;
    Ok(Some(text))
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let context = || format!("cannot write the admin key to {}", path.display());
    // A file from an earlier start that did not store its key is replaced, with its mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(context);
        }
        Ok(()) | Err(_) => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(context)?;
    writeln!(file, "{text}").and_then(|()| file.sync_all()).with_context(context)
}
