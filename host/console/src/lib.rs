//! The files of the web console. The binary contains them as they are in the repository: there is
//! no build step, and a host needs no file beside its binary.
//!
//! **Promise.** A path names a file of this crate or nothing; no path reaches the file system.
//! **Bounds.** The files are constants. Only files with a [known kind](KINDS) are served.

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets"]
struct Assets;

/// The page itself.
pub const INDEX: &str = "index.html";

/// The kinds of files that are served, by the end of their names.
const KINDS: [(&str, &str); 8] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("txt", "text/plain; charset=utf-8"),
];

/// A file of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Its content.
    pub content: Cow<'static, [u8]>,
    /// The value of the header `Content-Type`.
    pub content_type: &'static str,
    /// The value of the header `ETag`: a hash of the content.
    pub etag: String,
}

/// The file with this path below `assets`, such as `index.html`.
pub fn find(path: &str) -> Option<Asset> {
    let (_, extension) = path.rsplit_once('.')?;
    let (_, content_type) = KINDS.iter().find(|(known, _)| *known == extension)?;
    let file = Assets::get(path)?;
    let hash = file.metadata.sha256_hash();
    let etag = format!("\"{}\"", HEXLOWER.encode(hash.get(..16).unwrap_or(&hash)));
    Some(Asset { content: file.data, content_type, etag })
}

/// The paths of all files.
pub fn paths() -> impl Iterator<Item = Cow<'static, str>> {
    Assets::iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_embedded() {
        let page = find(INDEX).unwrap();
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        assert!(page.content.starts_with(b"<!doctype html>"));
        assert_eq!(page.etag.len(), 34, "{}", page.etag);
    }

    #[test]
    fn a_path_names_a_file_of_the_console_or_nothing() {
        for path in [
            "",
            "/",
            "index",
            "/index.html",
            "../Cargo.toml",
            "..%2fCargo.toml",
            "../src/lib.rs",
            "./index.html",
            "index.html\0",
            "assets/index.html",
            "/etc/passwd.txt",
        ] {
            assert_eq!(find(path), None, "{path:?}");
        }
    }

    #[test]
    fn every_file_is_of_a_known_kind() {
        // Without its kind a file would be embedded and answered with 404. Licences and notes have
        // `.txt` or none.
        for path in paths().filter(|path| path.contains('.') && !path.ends_with(".md")) {
            assert!(find(&path).is_some(), "{path}");
        }
    }

    #[test]
    fn no_page_has_inline_code() {
        // The policy of the pages forbids it, and a browser would leave it out without a word.
        for path in paths().filter(|path| path.ends_with(".html")) {
            let page = find(&path).unwrap();
            let text = String::from_utf8_lossy(&page.content).to_lowercase();
            for inline in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
                assert!(!text.contains(inline), "{path}: {inline}");
            }
            for script in text.split("<script").skip(1) {
                let head = script.split('>').next().unwrap_or_default();
                assert!(head.contains("src="), "{path}: a script without `src`");
            }
        }
    }
}
