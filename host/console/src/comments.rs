//! The comments of scripts, which a browser does not need.
//!
//! **Promise.** Only whole lines become empty, so that a line has the same number as in the repository, and errors
//! in a browser name it. Comments within a line of code stay.
//! **Why.** These comments are 12 of the 121 KB that a browser would load, compressed.
//! **Limit.** A line of a text that begins like a comment would become empty too; `tests/interop/console/files.test.js`
//! finds such a line.

/// The script without its comments.
pub(crate) fn without_comments(script: &str) -> String {
    let mut code = String::with_capacity(script.len());
    let mut is_in_block = false;
    for line in script.split_inclusive('\n') {
        let text = line.trim();
        let begins_block = !is_in_block && text.starts_with("/**");
        let ends_block = text.ends_with("*/");
        let is_comment = is_in_block
            || text.starts_with("//")
            || begins_block && (ends_block || !text.contains("*/"));
        is_in_block = (is_in_block || begins_block && is_comment) && !ends_block;
        code.push_str(match (is_comment, line.ends_with('\n')) {
            (false, _) => line,
            (true, true) => "\n",
            (true, false) => "",
        });
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_whole_lines_become_empty_lines() {
        let cases = [
            ("", ""),
            ("// What it is.\nimport './a.js';\n", "\nimport './a.js';\n"),
            ("  // Why.\n  f(); // here\n", "\n  f(); // here\n"),
            ("/** @param {number} n */\nf(n);\n", "\nf(n);\n"),
            ("/**\n * Text\n * with // signs.\n */\nf();\n", "\n\n\n\nf();\n"),
            ("/** @typedef {{ a: number,\n *   b: number }} T */\nf();", "\n\nf();"),
            ("/** @type {number} */ let n;\n", "/** @type {number} */ let n;\n"),
            ("const a = '// no comment';\n", "const a = '// no comment';\n"),
            ("f();\n// the end", "f();\n"),
        ];
        for (script, code) in cases {
            assert_eq!(without_comments(script), code, "{script:?}");
        }
    }
}
