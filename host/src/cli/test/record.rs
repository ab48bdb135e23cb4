//! `--record`: writes actual outputs as expectations. The file keeps its formatting: only the new
//! keys are added.

use std::io::Write as _;

use anyhow::Context as _;
use gristmill_commands::output::NewFile;
use gristmill_commands::output::one_line;
use gristmill_core::job::payload::Json;

use super::cases::CaseFile;

/// Writes the outputs of cases, given by their indices in the file, into the file.
///
/// # Errors
/// Errors of the file system; then the file is unchanged.
pub(super) fn record(file: &CaseFile, outputs: &[(usize, Json)]) -> anyhow::Result<()> {
    let text = with_outputs(file, outputs);
    let write = || {
        let mut new = NewFile::begin(&file.path, 0o600)?.like_older()?;
        new.file().write_all(text.as_bytes())?;
        new.complete()
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
        std::fs::write(&path, text).unwrap();
        let file = CaseFile::read(Some(path.clone()), dir.path()).unwrap();
        let json =
            |(index, text): &(usize, &str)| (*index, Json::parse((*text).to_owned()).unwrap());
        record(&file, &outputs.iter().map(json).collect::<Vec<_>>()).unwrap();
        CaseFile::read(Some(path.clone()), dir.path()).unwrap();
        std::fs::read_to_string(path).unwrap()
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
    fn a_link_to_the_file_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("t.json"), dir.path().join("link.json"));
        std::fs::write(&path, "{\"tests\":[{\"input\":{}}]}").unwrap();
        std::os::unix::fs::symlink("t.json", &link).unwrap();
        let file = CaseFile::read(Some(link.clone()), dir.path()).unwrap();
        record(&file, &[(0, Json::parse("1".to_owned()).unwrap())]).unwrap();
        assert!(link.is_symlink());
        assert!(std::fs::read_to_string(path).unwrap().contains("expected_output"));
    }

    #[test]
    fn lines_that_end_as_elsewhere_stay_valid() {
        let text = "{\"tests\":[{\"input\":{}\r\n}]}";
        let json: serde_json::Value = serde_json::from_str(&recorded(text, &[(0, "[1]")])).unwrap();
        assert_eq!(json["tests"][0]["expected_output"], serde_json::json!([1]));
    }
}
