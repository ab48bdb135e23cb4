//! The scripts of `gristmill completions`, as shells use them, and the pages of `gristmill man`.

use std::ffi::OsStr;
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

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("share/man1");
    run_args(command(), [OsStr::new("man"), man.as_os_str()], "").succeeded();
    let page = |name: &str| std::fs::read_to_string(man.join(name)).unwrap();
    assert!(page("gristmill.1").contains("gristmill\\-deploy(1)"));
    assert!(page("gristmill-serve.1").contains("adopt\\-within"));
    assert!(page("gristmill-keys-create.1").contains(".TH"));
    assert!(!man.join("gristmill-compile.1").exists(), "a command for the program itself");
    let file = man.join("gristmill.1");
    let refused = run_args(command(), [OsStr::new("man"), file.as_os_str()], "");
    refused.failed(1, &["cannot write to", "gristmill.1"]);
}
