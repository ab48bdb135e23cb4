//! Every relative link of a Markdown file leads to a file or a folder of the repository, and its
//! anchor to a heading there. Links to other sites are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The Markdown files, without those that git ignores.
fn pages() -> Vec<PathBuf> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"];
    let listed = Command::new("git").args(list).current_dir(repository()).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let names = String::from_utf8(listed.stdout).unwrap();
    let names = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    names.filter(|name| repository().join(name).is_file()).collect()
}

/// The lines of a page with their numbers, without blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, u32>::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let anchor = |title: &str| -> String {
        // Of a link in a heading only the label counts.
        let title: String = title.split("](").enumerate().fold(String::new(), |text, (i, part)| {
            text + if i == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) }
        });
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings
        .map(|title| {
            let name = anchor(title);
            let earlier = seen.entry(name.clone()).or_default();
            *earlier += 1;
            if *earlier == 1 { name } else { format!("{name}-{}", *earlier - 1) }
        })
        .collect()
}

/// The targets of the links and pictures in a line, without code.
fn targets(line: &str) -> Vec<&str> {
    let text = line.split('`').step_by(2);
    let mut found = Vec::new();
    // The label may contain code, so that `](` is in the part behind it.
    for part in text {
        let ends = part.split("](").skip(1);
        found.extend(ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target));
    }
    found
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Where a file of this path lies in the repository. `gristmill new` writes the SDKs into the
/// folder `vendor` of a project, beside the page of its template.
fn place(path: &Path) -> PathBuf {
    let sdk = path.to_str().and_then(|path| path.split_once("/vendor/gristmill-sdk/"));
    sdk.map_or_else(|| path.to_owned(), |(_, rest)| Path::new("guest-sdk").join(rest))
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let pages = pages();
    assert!(pages.len() > 30, "{pages:?}");
    let (mut links, mut broken) = (0, Vec::new());
    for page in &pages {
        let text = fs::read_to_string(repository().join(page)).unwrap();
        for (number, line) in prose(&text) {
            for target in targets(line) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                if path.contains(':') {
                    continue;
                }
                links += 1;
                let file = match path {
                    "" => page.clone(),
                    path => place(&plain(&page.parent().unwrap().join(path))),
                };
                let file = repository().join(file);
                let leads = file.exists()
                    && (anchor.is_empty()
                        || anchors(&fs::read_to_string(&file).unwrap_or_default())
                            .contains(anchor));
                if !leads {
                    broken.push(format!("{}:{number}: {target}", page.display()));
                }
            }
        }
    }
    assert!(links > 300, "only {links} links were found");
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn anchors_are_those_of_the_web() {
    let page = "# The `--help` of [a page](x.md)\n```sh\n# no heading\n```\n## Twice\n## Twice\n";
    let expected = ["the---help-of-a-page", "twice", "twice-1"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
    assert_eq!(targets("[`a`](b.md#c) and `[d](e)` and ![f](g.png)"), ["b.md#c", "g.png"]);
}
