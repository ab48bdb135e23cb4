//! `gristmill run`: one job without a server, in the same sandbox.

use gristmill_tests::{LocalServer, command, guests};

use crate::command::{Finished, run_args};

fn play(input: &str, options: &[&str]) -> Finished {
    let playground = guests::playground().display().to_string();
    let arguments =
        ["run", &playground, "--input", input].into_iter().chain(options.iter().copied());
    run_args(command(), arguments, "")
}

#[test]
fn run_prints_the_output_and_the_usage() {
    let shown = play(r#"{"op":"echo","value":9007199254740993}"#, &[]).succeeded();
    assert!(shown.stdout.contains(r#"{"echo":9007199254740993}"#), "{shown:?}");
    let said = shown.stderr.to_lowercase();
    assert!(said.contains("ms") && said.contains("fuel") && said.contains("mi"), "{shown:?}");
}

#[test]
fn run_prints_one_json_value_a_line_the_chunks_first() {
    let shown = play(r#"{"op":"stream","count":3}"#, &[]).succeeded();
    assert_eq!(shown.stdout, "{\"i\":0}\n{\"i\":1}\n{\"i\":2}\n");
    // The handler's standard output is its log, not a result.
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

#[test]
fn run_mounts_a_directory_as_the_network_volume() {
    let grain = tempfile::tempdir().unwrap();
    std::fs::write(grain.path().join("a"), "rye").unwrap();
    let dir = grain.path().to_str().unwrap();
    let file = |what: &str, path: &str| {
        format!(r#"{{"op":"file","file":{{"do":"{what}","path":"{path}","text":"oat"}}}}"#)
    };
    let read = play(&file("read", "/workspace/a"), &["--volume", dir]).succeeded();
    assert_eq!(read.line(), r#""rye""#);
    let elsewhere = ["--volume", dir, "--mount-path", "/grain"];
    play(&file("write", "/grain/b"), &elsewhere).succeeded();
    assert_eq!(std::fs::read_to_string(grain.path().join("b")).unwrap(), "oat");
    play(&file("write", "/workspace/b"), &elsewhere).failed(1, &["/workspace/b"]);

    // The size is enforced, and existing files count. The file is sparse: it takes no space here.
    let large = std::fs::File::create(grain.path().join("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    play(&file("write", "/workspace/c"), &["--volume", dir]).failed(1, &["no space"]);
    play(&file("write", "/workspace/c"), &["--volume", dir, "--volume-gb", "2"]).succeeded();

    play("{}", &["--volume", "not-there"]).failed(1, &["not-there", "not a directory"]);
    play("{}", &["--volume-gb", "2"]).failed(2, &["--volume"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_shows_the_calls_to_the_host() {
    let traced = |input: &str, options: &[&str]| {
        let shown = play(input, &[&["--trace"], options].concat());
        let lines = shown.stderr.lines().filter_map(|line| line.strip_prefix("trace: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |lines: &[String], words: &[&str]| {
        assert!(
            lines.iter().any(|line| words.iter().all(|w| line.contains(w))),
            "{words:?} {lines:#?}"
        );
    };
    let stream = traced(r#"{"op":"stream","count":2}"#, &[]);
    has(&stream, &["gristmill:handler/output.emit(output: \"{\\\"i\\\":1}\"", "Ok(())", " ms"]);
    let logged = traced(r#"{"op":"log","message":"rye"}"#, &[]);
    has(&logged, &["gristmill:handler/log.write(", "Info", "\"rye\""]);
    let env = traced(r#"{"op":"env","name":"A"}"#, &[]);
    has(&env, &["wasi:cli/environment.get-environment()"]);
    let write = r#"{"op":"file","file":{"do":"write","path":"/tmp/a","text":"rye"}}"#;
    let written = traced(write, &["--scratch-gb", "1"]);
    has(&written, &["wasi:filesystem/types.descriptor.open-at(", "\"a\""]);
    has(&written, &["wasi:io/streams.output-stream.", "contents: …"]);

    let server = LocalServer::start().await;
    let (url, host) = (server.url("/rye"), server.host());
    let fetch = format!(r#"{{"op":"fetch","url":"{url}"}}"#);
    let fetched = traced(&fetch, &["--allow-host", &host]);
    has(&fetched, &["request(", "GET", &url, "200"]);
    play(&fetch, &[])
        .failed(1, &[&format!("not allowed; allow them with --allow-host {host}, or")]);
    // A long argument is cut.
    let long = format!(r#"{{"op":"log","message":"{}"}}"#, "x".repeat(5_000));
    let lines = traced(&long, &[]);
    assert!(lines.iter().all(|line| line.len() < 600), "{lines:#?}");
    // Without the option nothing is traced.
    let untraced = play(r#"{"op":"stream"}"#, &[]).succeeded();
    assert!(!untraced.stderr.contains("trace:"), "{untraced:?}");
}
