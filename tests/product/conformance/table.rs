//! Writes the tables of docs/internals/conformance.md from the comments of the tests.

use std::fmt::Write as _;
use std::path::Path;
use std::{fmt, fs};

use gristmill_tests::reference;

const PAGE: &str = "docs/internals/conformance.md";

/// The heading behind which the tables are; people write the text before it.
const HEADING: &str = "## The rules and their tests\n";

const ABOUT: &str = "
A row is the comment of its test, or the test's name if that is the rule.
`make references` writes these tables from [the tests](../../tests/product/conformance).
";

/// The tests of a file.
struct Suite {
    name: String,
    /// The first paragraph of the file.
    about: String,
    /// The name of each test with its comment.
    tests: Vec<(String, String)>,
}

/// The comments with a prefix at the end of some lines, as one line.
fn comment(lines: &[&str], prefix: &str) -> String {
    let mut found: Vec<_> =
        lines.iter().rev().map_while(|line| line.strip_prefix(prefix)).collect();
    found.reverse();
    found.concat().trim().to_owned()
}

impl Suite {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let end = lines.iter().position(|line| line.strip_prefix("//!").is_none_or(str::is_empty));
        let mut suite = Self {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            about: comment(&lines[..end.unwrap()], "//!"),
            tests: vec![],
        };
        for (i, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[tokio::test]") {
            let test = lines[i + 1].strip_prefix("async fn ").and_then(|rest| rest.split_once('('));
            let (name, _) = test.expect("a test follows its attribute");
            suite.tests.push((name.to_owned(), comment(&lines[..i], "///")));
        }
        suite
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n### `{}`\n\n{}\n\n| Rule | Test |\n|---|---|", self.name, self.about)?;
        for (name, rule) in &self.tests {
            let sentence = name.replace('_', " ");
            let rule = if rule.is_empty() { &sentence } else { rule };
            writeln!(f, "| {} | `{name}` |", rule.replace('|', "\\|"))?;
        }
        Ok(())
    }
}

#[test]
fn the_reference_of_the_contract_is_the_comments_of_its_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("product/conformance");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut suites: Vec<_> = files.map(|path| Suite::read(&path)).collect();
    suites.retain(|suite| !suite.tests.is_empty());
    suites.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let page = reference::read(PAGE);
    let (written, _) = page.split_once(HEADING).expect("the heading of the tables");
    for test in written.split('`').filter(|code| code.contains("::")) {
        let is_its = |suite: &Suite, name| suite.tests.iter().any(|(its, _)| its == name);
        let (file, name) = test.split_once("::").unwrap();
        let exists = suites.iter().any(|suite| suite.name == file && is_its(suite, name));
        assert!(exists, "{PAGE} names `{test}`, which does not exist");
    }
    let mut text = format!("{written}{HEADING}{ABOUT}");
    for suite in &suites {
        write!(text, "{suite}").unwrap();
    }
    reference::check(PAGE, &text);
}
