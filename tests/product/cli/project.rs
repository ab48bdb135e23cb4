//! `gristmill.toml`: a directory is a project, and its settings apply to `run` and `test`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use gristmill_tests::{command, guests};
use tempfile::TempDir;

use crate::command::{Finished, run_args};

/// A project whose component is the playground.
pub(crate) fn project(more: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), more);
    fs::create_dir(dir.path().join("build")).unwrap();
    fs::copy(guests::playground(), dir.path().join("build/player.wasm")).unwrap();
    dir
}

/// Writes the project's file.
pub(crate) fn write(dir: &Path, more: &str) {
    let text = format!("[handler]\nname = \"player\"\nlanguage = \"rust\"\n{more}");
    fs::write(dir.join("gristmill.toml"), text).unwrap();
}

/// A command in a directory.
pub(crate) fn inside(dir: &Path) -> Command {
    let mut command = command();
    command.current_dir(dir);
    command
}

fn run_inside(dir: &Path, arguments: &[&str]) -> Finished {
    run_args(inside(dir), ["run"].iter().chain(arguments), "")
}

#[test]
fn a_project_is_run_from_within_and_from_elsewhere() {
    let project = project("");
    let dir = project.path();
    fs::write(dir.join("test_input.json"), r#"{"input":{"op":"echo","value":7},"id":"x"}"#)
        .unwrap();
    assert_eq!(run_inside(dir, &[]).succeeded().line(), r#"{"echo":7}"#);
    let elsewhere = tempfile::tempdir().unwrap();
    let named = [dir.to_str().unwrap()];
    assert_eq!(run_inside(elsewhere.path(), &named).succeeded().line(), r#"{"echo":7}"#);
    // An input on the command line wins over the file.
    let given = run_inside(dir, &["--input", r#"{"op":"echo","value":8}"#]).succeeded();
    assert_eq!(given.line(), r#"{"echo":8}"#);
}

#[test]
fn the_projects_settings_hold_and_options_win_over_them() {
    let limits =
        "[limits]\nmemory-mib = 8\ntimeout-ms = 5000\nscratch-gb = 1\nmax-fuel = 100000000\n";
    let project = project(&format!("{limits}[env]\nGRAIN = \"rye\"\n[network]\nallow = []\n"));
    let dir = project.path();
    let env = r#"{"op":"env","name":"GRAIN"}"#;
    assert_eq!(run_inside(dir, &["--input", env]).succeeded().line(), r#"{"env":"rye"}"#);
    let other = run_inside(dir, &["--input", env, "--env", "GRAIN=oat"]).succeeded();
    assert_eq!(other.line(), r#"{"env":"oat"}"#);
    let alloc = r#"{"op":"alloc","mib":16}"#;
    run_inside(dir, &["--input", alloc]).failed(1, &["memory limit of 8 mib"]);
    run_inside(dir, &["--input", alloc, "--memory-mib", "64"]).succeeded();
    run_inside(dir, &["--input", r#"{"op":"spin"}"#]).failed(1, &["fuel limit of 100000000"]);
    let write = r#"{"op":"file","file":{"do":"write","path":"/tmp/a","text":"rye"}}"#;
    run_inside(dir, &["--input", write]).succeeded();
    // No project file is read for a named component.
    let file = ["build/player.wasm", "--input", env];
    assert_eq!(run_inside(dir, &file).succeeded().line(), r#"{"env":null}"#);
}

#[test]
fn mistakes_in_a_project_are_named() {
    let empty = tempfile::tempdir().unwrap();
    run_inside(empty.path(), &["--input", "{}"]).failed(1, &["no gristmill.toml", "file.wasm"]);
    run_inside(empty.path(), &[".", "--input", "{}"]).failed(1, &["no gristmill.toml in ."]);
    write(empty.path(), "");
    let unbuilt = run_inside(empty.path(), &["--input", "{}"]);
    unbuilt.failed(1, &["build/player.wasm does not exist", "cannot be built"]);
    let unbuilt = run_inside(empty.path(), &["--input", "{}", "--no-build"]);
    unbuilt.failed(1, &["cannot read", "build/player.wasm"]);
    for (more, words) in [
        ("[limit]\n", ["unknown field `limit`", "`limits`"]),
        ("[limits]\nmemory-mib = 5000\n", ["`memory-mib` must be 1 to 4096", "not 5000"]),
        ("[limits]\nmemory = 5\n", ["unknown field `memory`", "`memory-mib`"]),
    ] {
        write(empty.path(), more);
        run_inside(empty.path(), &["--input", "{}"]).failed(1, &words);
    }
}

/// A project in Python whose toolchain is a script. It writes the playground, and edits the handler
/// during the build if the file `.edit` exists.
pub(crate) fn project_with_a_scripted_toolchain() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = "[handler]\nname = \"player\"\nlanguage = \"python\"\n";
    fs::write(dir.path().join("gristmill.toml"), text).unwrap();
    fs::write(dir.path().join("handler.py"), "# sacks\n").unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -m ] || exit 0\nsleep 0.1\n\
         if [ -e .edit ]; then rm .edit; echo '# flour' >> handler.py; sleep 0.1; fi\n\
         cp '{}' \"$5\"\n",
        guests::playground().display()
    );
    let bin = dir.path().join(".venv/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("python"), script).unwrap();
    fs::set_permissions(bin.join("python"), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn a_source_that_changes_during_a_build_is_newer_than_the_component() {
    let project = project_with_a_scripted_toolchain();
    let dir = project.path();
    run_args(inside(dir), ["build"], "").succeeded();
    fs::write(dir.join(".edit"), "").unwrap();
    run_args(inside(dir), ["build"], "").succeeded();
    assert!(!dir.join(".edit").exists(), "the handler was edited");
    let run = || run_inside(dir, &["--input", r#"{"op":"echo","value":7}"#]).succeeded();
    let first = run();
    assert!(first.stderr.contains("build/player.wasm is older than handler.py"), "{first:?}");
    assert_eq!(first.line(), r#"{"echo":7}"#);
    let second = run();
    assert!(!second.stderr.contains("building"), "no source has changed since: {second:?}");
}

#[test]
fn a_component_loses_the_schema_that_its_project_no_longer_names() {
    let project = project_with_a_scripted_toolchain();
    let dir = project.path();
    let toml = dir.join("gristmill.toml");
    let without = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, format!("{without}input-schema = \"schema.json\"\n")).unwrap();
    fs::write(dir.join("schema.json"), r#"{"required":["grain"]}"#).unwrap();
    run_args(inside(dir), ["build"], "").succeeded();
    let run = || run_inside(dir, &["--input", r#"{"op":"echo","value":7}"#]);
    run().failed(1, &["grain"]);
    fs::write(&toml, without).unwrap();
    let first = run().succeeded();
    assert!(first.stderr.contains("gristmill.toml has no `input-schema`"), "{first:?}");
    assert_eq!(first.line(), r#"{"echo":7}"#);
    let second = run().succeeded();
    assert!(!second.stderr.contains("building"), "the schema is removed: {second:?}");
}

#[test]
fn a_run_without_input_lists_all_ways_to_give_one() {
    let project = project("");
    let ways = ["--input json", "--input @file", "--input -", "test_input.json"];
    run_inside(project.path(), &[]).failed(1, &ways);
    fs::write(project.path().join("test_input.json"), r#"{"inputs":{}}"#).unwrap();
    run_inside(project.path(), &[]).failed(1, &["test_input.json has no `input`"]);
}
