//! `--record`: writes actual outputs as expectations. The file keeps its formatting: only the new
//! keys are added. A file that was edited during the run stays as it is.

use std::fs;
use std::io::Write as _;

use anyhow::{Context as _, ensure};
use gristmill_commands::output::OutputFile;
use gristmill_commands::output::one_line;
use gristmill_core::job::payload::Json;
use serde_json::Value;

use super::cases::CaseFile;

/// Checks that a file of cases with this output can be read. The host passes an output on without
/// parsing it, while an expectation is parsed.
///
/// # Errors
/// The reason why not: a lone surrogate, a number beyond the range of a double, or more than 126
/// levels.
pub(super) fn check(output: &Json) -> Result<(), serde_json::Error> {
    // In the file it is one level deeper than alone, as in this list.
    serde_json::from_str::<Value>(&format!("[{}]", output.as_str())).map(drop)
}

/// Writes the outputs of cases, given by their indices in the file, into the file. Without outputs
/// nothing is written. Each output must have passed [`check`].
///
/// # Errors
/// When the file was changed since it was read, and errors of the file system; then the file is
/// unchanged.
pub(super) fn record(file: &CaseFile, outputs: &[(usize, Json)]) -> anyhow::Result<()> {
    if outputs.is_empty() {
        return Ok(());
    }
    let text = with_outputs(file, outputs);
    let write = || -> anyhow::Result<()> {
        let present = fs::read_to_string(&file.path)?;
        ensure!(present == file.text, "the file was changed during the run; run the command again");
        let mut new = OutputFile::begin(&file.path, 0o600)?.like_older()?;
        new.file().write_all(text.as_bytes())?;
        Ok(new.complete()?)
    };
    write().with_context(|| format!("cannot record into {}", file.path.display()))
}

fn with_outputs(file: &CaseFile, outputs: &[(usize, Json)]) -> String {
    let mut text = file.text.clone();
    // From the last to the first, so that earlier positions stay valid.
    let mut outputs: Vec<_> = outputs
        .iter()
        .filter_map(|(index, output)| Some((file.cases.get(*index)?, output)))
        .collect();
    outputs.sort_by_key(|(case, _)| std::cmp::Reverse(case.end));
    for (case, output) in outputs {
        let before = text.get(..case.end).unwrap_or_default();
        let members = before.trim_end();
        // If the closing brace is on its own line, so are the members.
        let last_line = members.rsplit('\n').next().unwrap_or_default();
        let divider = match before.get(members.len()..) {
            Some(space) if space.contains('\n') => {
                let indent = last_line.len() - last_line.trim_start().len();
                format!(",\n{}", last_line.get(..indent).unwrap_or_default())
            }
            _ => ", ".to_owned(),
        };
        let member = format!("{divider}\"expected_output\": {}", one_line(output.as_str()));
        text.insert_str(members.len(), &member);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(text: &str, outputs: &[(usize, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        fs::write(&path, text).unwrap();
        let file = CaseFile::read(Some(path.clone()), dir.path()).unwrap();
        let json =
            |(index, text): &(usize, &str)| (*index, Json::parse((*text).to_owned()).unwrap());
        record(&file, &outputs.iter().map(json).collect::<Vec<_>>()).unwrap();
        CaseFile::read(Some(path.clone()), dir.path()).unwrap();
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_file_keeps_its_form() {
        let text = "{\n  \"tests\": [\n    {\n      \"input\": {\"z\": 1, \"a\": 2}\n    },\n    \
                    {\"input\": {}, \"name\": \"b\"},\n    {\"input\": {}}\n  ]\n}\n";
        let expected = "{\n  \"tests\": [\n    {\n      \"input\": {\"z\": 1, \"a\": 2},\n      \
                        \"expected_output\": {\"n\":9007199254740993}\n    },\n    {\"input\": {}, \
                        \"name\": \"b\"},\n    {\"input\": {}, \"expected_output\": null}\n  ]\n}\n";
        assert_eq!(recorded(text, &[(0, "{\"n\":9007199254740993}"), (2, "null")]), expected);
        assert_eq!(recorded(text, &[]), text);
    }

    #[test]
    fn outputs_that_a_file_of_cases_cannot_have_are_found() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let checked = |text: &str| check(&Json::parse(text.to_owned()).unwrap());
        for wrong in [r#""\ud800""#, r#"{"a":[1e999]}"#, &nested(127)] {
            assert!(checked(wrong).is_err(), "{wrong}");
        }
        let file = r#"{"tests":[{"input":{}}]}"#;
        for right in [r#""\ud83d\ude00""#, "1e99", "18446744073709551616", &nested(126)] {
            assert!(checked(right).is_ok(), "{right}");
            // It reads the file again.
            assert!(recorded(file, &[(0, right)]).contains("expected_output"), "{right}");
        }
    }

    #[test]
    fn a_file_that_was_changed_during_the_run_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        fs::write(&path, r#"{"tests":[{"input":{}}]}"#).unwrap();
        let file = CaseFile::read(Some(path.clone()), dir.path()).unwrap();
        let edited = r#"{"tests":[{"input":{"n":1}}]}"#;
        fs::write(&path, edited).unwrap();
        let error = record(&file, &[(0, Json::null())]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("t.json") && error.contains("changed during the run"), "{error}");
        record(&file, &[]).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), edited);
    }

    #[test]
    fn a_link_to_the_file_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("t.json"), dir.path().join("link.json"));
        fs::write(&path, "{\"tests\":[{\"input\":{}}]}").unwrap();
        std::os::unix::fs::symlink("t.json", &link).unwrap();
        let file = CaseFile::read(Some(link.clone()), dir.path()).unwrap();
        record(&file, &[(0, Json::parse("1".to_owned()).unwrap())]).unwrap();
        assert!(link.is_symlink());
        assert!(fs::read_to_string(path).unwrap().contains("expected_output"));
    }

    #[test]
    fn lines_that_end_as_elsewhere_stay_valid() {
        let text = "{\"tests\":[{\"input\":{}\r\n}]}";
        let json: Value = serde_json::from_str(&recorded(text, &[(0, "[1]")])).unwrap();
        assert_eq!(json["tests"][0]["expected_output"], serde_json::json!([1]));
    }
}
