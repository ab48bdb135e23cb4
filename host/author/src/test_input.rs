//! The default input of `run`, and the input that `deploy` suggests: `test_input.json`, which has
//! `{"input": …}` like a submission. Its other fields are for other tools.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, bail};
use gristmill_core::job::payload::Json;
use serde::Deserialize;
use serde_json::value::RawValue;

use gristmill_commands::arguments::InputSource;

/// The name of the file.
const FILE_NAME: &str = "test_input.json";

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Reads the file in `dir`.
///
/// # Errors
/// When the file is missing, with all ways to pass an input; or when it has no input.
pub(crate) fn beside(dir: &Path) -> anyhow::Result<Json> {
    let path = dir.join(FILE_NAME);
    let name = path.display();
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "the job has no input: give it as text (--input JSON), in a file (--input @FILE), on \
             stdin (--input -), or as {{\"input\": …}} in {name}"
        ),
        text => text.with_context(|| format!("cannot read {name}"))?,
    };
    let document: Document<'_> =
        serde_json::from_str(&text).with_context(|| format!("{name} is not JSON of this kind"))?;
    let Some(input) = document.input else { bail!("{name} has no `input`") };
    let input = InputSource::Text(input.get().to_owned()).read();
    input.map(|input| Json::from_value(&input)).with_context(|| format!("cannot use {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_is_found_beside_the_handler() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(dir.path().join(FILE_NAME), text).unwrap();
            beside(dir.path()).map_err(|error| format!("{error:#}"))
        };
        let input = read(r#"{"id":"x","input":{"n": 9007199254740993}}"#).unwrap();
        assert_eq!(input.as_str(), r#"{"n": 9007199254740993}"#);
        for (text, expected) in [
            ("{}", "test_input.json has no `input`"),
            (r#"{"input":null}"#, "test_input.json has no `input`"),
            (r#"{"input":[1]}"#, "the input must be a JSON object"),
            ("[", "is not JSON of this kind"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
