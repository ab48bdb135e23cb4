//! The name of a component: the digest of its bytes.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

/// SHA-256 of an uploaded component; its permanent name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComponentDigest([u8; 32]);

/// The error for a text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl ComponentDigest {
    /// The digest of a component's bytes.
    pub fn of(component: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(component).into())
    }

    /// A digest that was computed elsewhere: the 32 bytes of a SHA-256.
    pub fn from_sha256(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// As registries and image names write it: `sha256:` and 64 hexadecimal digits.
    pub fn oci(&self) -> String {
        format!("sha256:{self}")
    }
}

impl fmt::Display for ComponentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl fmt::Debug for ComponentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.oci())
    }
}

impl FromStr for ComponentDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let mut digest = [0; 32];
        // The library panics on a text of another length.
        if text.len() != 2 * digest.len() {
            return Err(InvalidDigest);
        }
        HEXLOWER.decode_mut(text.as_bytes(), &mut digest).map_err(|_| InvalidDigest)?;
        Ok(Self(digest))
    }
}

impl TryFrom<String> for ComponentDigest {
    type Error = InvalidDigest;
    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<ComponentDigest> for String {
    fn from(digest: ComponentDigest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_survive_text() {
        let digest = ComponentDigest::of(b"abc");
        let text = digest.to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(format!("{digest:?}"), format!("sha256:{text}"));
        let wrong = [
            String::new(),
            text[1..].to_owned(),
            text.to_uppercase(),
            format!("{text}00"),
            format!("{}g", &text[1..]),
            format!(" {}", &text[1..]),
            format!("é{}", &text[2..]),
            "é".repeat(64),
            "0".repeat(10 << 20),
        ];
        for wrong in wrong {
            assert_eq!(
                wrong.parse::<ComponentDigest>(),
                Err(InvalidDigest),
                "{} bytes",
                wrong.len()
            );
        }
    }
}
