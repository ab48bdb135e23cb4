//! `gristmill run`: one job without a server, in the same sandbox.

use gristmill_tests::{command, guests};

use crate::command::{Finished, run_args};

fn play(input: &str, options: &[&str]) -> Finished {
    let playground = guests::playground().display().to_string();
    let arguments =
        ["run", &playground, "--input", input].into_iter().chain(options.iter().copied());
    run_args(command(), arguments, "")
}

#[test]
fn run_prints_the_output_and_what_it_took() {
    let shown = play(r#"{"op":"echo","value":9007199254740993}"#, &[]).succeeded();
    assert!(shown.stdout.contains(r#"{"echo":9007199254740993}"#), "{shown:?}");
    let said = shown.stderr.to_lowercase();
    assert!(said.contains("ms") && said.contains("fuel") && said.contains("mi"), "{shown:?}");
}

#[test]
fn run_prints_one_json_value_a_line_the_chunks_first() {
    let shown = play(r#"{"op":"stream","count":3}"#, &[]).succeeded();
    assert_eq!(shown.stdout, "{\"i\":0}\n{\"i\":1}\n{\"i\":2}\n");
    // What the handler prints is its log, not a result.
    let shown = play(r#"{"op":"stdout","bytes":130}"#, &[]).succeeded();
    assert_eq!(shown.line(), r#"{"printed":130}"#);
    let shown = play(r#"{"op":"progress","steps":2}"#, &[]).succeeded();
    assert_eq!(shown.line(), r#"{"done":2}"#);
}

#[test]
fn run_gives_scratch_space_when_asked() {
    let write = r#"{"op":"file","file":{"do":"write","path":"/tmp/a","text":"rye"}}"#;
    assert_eq!(play(write, &["--scratch-gb", "1"]).succeeded().line(), r#"{"done":1}"#);
    play(write, &[]).failed(1, &["/tmp/a"]);
}

#[test]
fn a_handler_that_fails_makes_run_fail_with_its_reason() {
    play(r#"{"op":"fail","message":"no flour"}"#, &[]).failed(1, &["no flour"]);
    play(r#"{"op":"trap"}"#, &[]).failed(1, &["unreachable"]);
    play(r#"{"op":"alloc","mib":512}"#, &[]).failed(1, &["memory"]);
    play(r#"{"op":"spin"}"#, &["--max-fuel", "10000000"]).failed(1, &["fuel"]);
}

#[test]
fn run_refuses_a_file_that_is_no_handler_and_input_that_is_no_json() {
    let missing = ["run", "not-there.wasm", "--input", "{}"];
    run_args(command(), missing, "").failed(1, &["not-there.wasm"]);
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.wasm");
    std::fs::write(&text, "fn main() {}").unwrap();
    let text = text.display().to_string();
    run_args(command(), ["run", &text, "--input", "{}"], "").failed(1, &["webassembly"]);
    play("{\"op\":", &[]).failed_with_any_code(&["json"]);
}
