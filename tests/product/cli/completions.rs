//! The scripts of `gristmill completions`, as shells use them.

use std::process::Command;

use gristmill_tests::command;

use crate::command::{run, run_args};

/// What bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let script = run(command(), "completions bash").succeeded().stdout;
    let [.., before, last] = words else { panic!("{words:?}") };
    let line = words.join("' '");
    let asked = format!(
        "{script}\nCOMP_WORDS=('{line}')\nCOMP_CWORD={}\n_gristmill gristmill '{last}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.len() - 1
    );
    let offered = run_args(Command::new("bash"), ["-s"], &asked).succeeded();
    assert!(offered.stderr.is_empty(), "{offered:?}");
    offered.stdout.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(offered(&["gristmill", "dep"]), ["deploy"]);
    assert_eq!(offered(&["gristmill", "compile"]), [""; 0], "a command for the program itself");
    assert_eq!(offered(&["gristmill", "serve", "--adopt"]), ["--adopt-within"]);
    assert_eq!(offered(&["gristmill", "keys", "cre"]), ["create"]);
}

#[test]
fn each_shell_has_a_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(command(), &format!("completions {shell}")).succeeded().stdout;
        assert!(script.contains("adopt-within"), "{shell}: {script}");
    }
    run(command(), "completions tcsh").failed(2, &["bash", "fish", "zsh"]);
}
