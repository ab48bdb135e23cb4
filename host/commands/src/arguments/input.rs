//! Reads a job's input: from the command line, a file, or standard input.

use std::convert::Infallible;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, ensure};
use gristmill_client::wire::bounds::RUN_BODY_BYTES_MAX;
use serde_json::value::RawValue;

/// What an input must be.
const EXPECTED: &str = "a JSON object, such as {\"text\":\"to be\"}";

/// The source of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputSource {
    /// On the command line.
    Text(String),
    /// In a file.
    File(PathBuf),
    /// On standard input.
    Stdin,
}

impl FromStr for InputSource {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match (text, text.strip_prefix('@')) {
            ("-" | "@-", _) => Self::Stdin,
            (_, Some(path)) => Self::File(path.into()),
            (text, None) => Self::Text(text.to_owned()),
        })
    }
}

impl InputSource {
    /// Reads the bytes, at most [`RUN_BODY_BYTES_MAX`].
    ///
    /// # Errors
    /// When they cannot be read, or are too many.
    pub fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        Ok(match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::File(path) => {
                let name = path.display();
                let file = std::fs::File::open(path);
                let file = file.with_context(|| format!("cannot read the input file {name}"))?;
                read_bounded(file).with_context(|| format!("cannot use the input file {name}"))?
            }
            Self::Stdin => {
                read_bounded(io::stdin().lock()).context("cannot use the input on stdin")?
            }
        })
    }

    /// Reads the input, which must be a JSON object of at most [`RUN_BODY_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// When it cannot be read, or is not such an object.
    pub fn read(&self) -> anyhow::Result<Box<RawValue>> {
        let bytes = self.bytes()?;
        let input = match self {
            Self::Text(_) => "the input".to_owned(),
            Self::File(path) => format!("the input file {}", path.display()),
            Self::Stdin => "the input on stdin".to_owned(),
        };
        ensure!(!bytes.trim_ascii().is_empty(), "{input} is empty; it must be {EXPECTED}");
        let json: Box<RawValue> = serde_json::from_slice(&bytes).map_err(|error| {
            let hint = match self {
                Self::Text(_) => "; `@FILE` reads a file, and `-` reads stdin",
                Self::File(_) | Self::Stdin => "",
            };
            anyhow::anyhow!("{input} is not JSON ({error}); it must be {EXPECTED}{hint}")
        })?;
        ensure!(json.get().starts_with('{'), "{input} must be a JSON object");
        Ok(json)
    }
}

fn read_bounded(from: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = RUN_BODY_BYTES_MAX as u64;
    from.take(limit + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= limit, "it is larger than {} MiB", limit >> 20);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> InputSource {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_character_says_where_the_input_is() {
        assert_eq!(source("-"), InputSource::Stdin);
        assert_eq!(source("@-"), InputSource::Stdin);
        assert_eq!(source("@dir/a.json"), InputSource::File("dir/a.json".into()));
        assert_eq!(source("{}"), InputSource::Text("{}".into()));
    }

    #[test]
    fn the_input_is_a_json_object_kept_as_written() {
        let text = r#"{"b":9007199254740993,"a":1.0}"#;
        assert_eq!(source(&format!(" {text}\n")).read().unwrap().get(), text);

        let complaint = |text: &str| format!("{:#}", source(text).read().unwrap_err());
        assert!(complaint("{").starts_with("the input is not JSON (EOF"), "{}", complaint("{"));
        let word = complaint("nope");
        assert!(word.contains("it must be a JSON object, such as {\"text\""), "{word}");
        assert!(word.contains("`@FILE` reads a file"), "{word}");
        assert!(complaint(" ").starts_with("the input is empty; it must be"), "{}", complaint(" "));
        assert_eq!(complaint("[1]"), "the input must be a JSON object");
        let missing = complaint("@/no/such/file");
        assert!(missing.starts_with("cannot read the input file /no/such/file: "), "{missing}");
    }

    #[test]
    fn a_wrong_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input.json");
        for (text, expected) in [
            ("", "is empty; it must be a JSON object"),
            ("\n", "is empty; it must be a JSON object"),
            ("nope", "is not JSON (expected"),
            ("[1]", "must be a JSON object"),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = InputSource::File(path.clone()).read().unwrap_err().to_string();
            assert!(said.starts_with("the input file "), "{said}");
            assert!(said.contains("input.json ") && said.contains(expected), "{said}");
        }
    }

    #[test]
    fn reading_stops_at_the_bound() {
        let error = read_bounded(io::repeat(b' ')).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 10 MiB");
    }
}
