//! The output of the command line: results to standard output, everything else to standard error.

pub(crate) mod output_file;
pub mod progress;

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

pub use output_file::OutputFile;

/// Writes one line of the result to standard output: to a terminal without control characters, to a
/// file or a pipe unchanged.
///
/// # Errors
/// When the reader has closed it, or it cannot be written.
pub fn result(line: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        writeln!(out, "{}", plain(&line.to_string()))?;
    } else {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

/// Writes one line of the result after a label. On a terminal the label is bold, in the colour with
/// this ANSI number.
///
/// # Errors
/// When the reader has closed it, or it cannot be written.
pub fn result_labelled(label: &str, colour: &str, line: impl Display) -> anyhow::Result<()> {
    if io::stdout().is_terminal() && wants_colours() {
        let mut out = io::stdout().lock();
        writeln!(out, "\x1b[1;{colour}m{label}\x1b[0m {}", plain(&line.to_string()))?;
        Ok(out.flush()?)
    } else {
        result(format_args!("{label} {line}"))
    }
}

/// Writes a piece of a body to standard output at once: to a terminal as text without control
/// characters, to a file or a pipe unchanged.
///
/// # Errors
/// When the reader has closed it, or it cannot be written.
pub fn piece(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        out.write_all(plain(&String::from_utf8_lossy(bytes)).as_bytes())?;
    } else {
        out.write_all(bytes)?;
    }
    out.flush()
}

/// Writes one line for the user to standard error.
pub fn note(line: impl Display) {
    // If standard error is closed, there is no place to report this.
    let _ = writeln!(io::stderr().lock(), "{}", plain(&line.to_string()));
}

/// Names the next command to a person at a terminal.
pub fn next(command: impl Display) {
    if is_terminal() {
        note(format_args!("next: {command}"));
    }
}

/// Writes an error to standard error.
pub fn error(line: impl Display) {
    note_labelled("error", "31", line);
}

/// Writes a line to standard error after a label in bold and the colour with this ANSI number.
pub fn note_labelled(label: &str, colour: &str, line: impl Display) {
    let line = plain(&line.to_string());
    let mut err = io::stderr().lock();
    let _ = if has_colours() {
        writeln!(err, "\x1b[1;{colour}m{label}:\x1b[0m {line}")
    } else {
        writeln!(err, "{label}: {line}")
    };
}

/// Whether standard error is a terminal that shows progress and colours.
pub fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

fn has_colours() -> bool {
    is_terminal() && wants_colours()
}

fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text without control characters, and without marks that change the direction of text: texts
/// of a handler or a server must not control the terminal.
pub fn plain(text: &str) -> String {
    let is_shown = |c: &char| match c {
        '\n' | '\t' => true,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            false
        }
        c => !c.is_control(),
    };
    text.chars().filter(is_shown).collect()
}

/// Quotes a word for a shell's command line.
pub fn in_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// JSON on one line. Line breaks outside strings have no meaning, and strings cannot contain them.
pub fn one_line(json: &str) -> String {
    json.chars().filter(|c| !matches!(c, '\n' | '\r')).collect()
}

/// Rows in columns, under their headings. A line break or a tab in a cell, such as in the error of
/// a handler, becomes a blank: each row is one line.
pub fn table<const N: usize>(
    headings: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let rows = rows.map(|row| row.map(|cell| cell.replace(['\n', '\r', '\t'], " ")));
    let rows: Vec<_> = std::iter::once(headings.map(str::to_owned)).chain(rows).collect();
    let widths = rows.iter().fold([0; N], |mut widths, row| {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
        widths
    });
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

/// A size in readable form, rounded as the SDKs' own builds round theirs.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = bytes.saturating_mul(10).saturating_add(unit / 2) / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

/// A time in milliseconds, with more digits if it is short.
pub fn millis(us: u64) -> String {
    if us < 10_000 {
        format!("{}.{:03} ms", us / 1_000, us % 1_000)
    } else {
        format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
    }
}

/// A number with a space between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// Whether an error only means that the reader has closed our output.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handlers_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\r\tc\u{9b}31m\nd"), "a[2Jb\tc31m\nd");
        assert_eq!(plain("exe.\u{202e}gnp\u{2066}\u{61c}\u{7f}"), "exe.gnp");
    }

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(in_shell("a/b-c.d"), "a/b-c.d");
        assert_eq!(in_shell("a b's"), r"'a b'\''s'");
        assert_eq!(in_shell(""), "''");
    }

    #[test]
    fn json_fits_on_one_line() {
        assert_eq!(one_line("{\n  \"a\": \"b\\n\"\r\n}"), r#"{  "a": "b\n"}"#);
    }

    #[test]
    fn each_row_of_a_table_is_one_line() {
        let rows = [["a", "no\nflour"], ["b\tc", "-"]].map(|row| row.map(str::to_owned));
        assert_eq!(
            table(["ID", "ERROR"], rows.into_iter()),
            ["ID   ERROR", "a    no flour", "b c  -"]
        );
    }

    #[test]
    fn numbers_are_readable() {
        for (bytes, text) in
            [(0, "0 bytes"), (1_023, "1023 bytes"), (1_536, "1.5 KiB"), (24_326_000, "23.2 MiB")]
        {
            assert_eq!(size(bytes), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1 000"), (12_345_678, "12 345 678")]
        {
            assert_eq!(grouped(number), text);
        }
        for (us, text) in [(7, "0.007 ms"), (9_999, "9.999 ms"), (12_345, "12.3 ms")] {
            assert_eq!(millis(us), text);
        }
    }

    #[test]
    fn a_reader_that_closed_the_pipe_is_no_error() {
        let left = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&left.context("cannot show the result")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}
