//! `gristmill handlers` and `gristmill registry-auths`.

use gristmill_tests::{guests, shared_host};

use crate::command::{on, run, run_args};

#[tokio::test]
async fn a_handler_is_pushed_listed_shown_and_deleted() {
    let host = shared_host();
    let echo = guests::echo().display().to_string();
    let pushed = run(on(&host), &format!("handlers push {echo} cli-echo:v1")).succeeded();
    assert!(
        pushed.stdout.contains("cli-echo:v1") && pushed.stdout.contains("sha256"),
        "{pushed:?}"
    );
    let json = run(on(&host), "handlers get cli-echo:v1 --json").succeeded().json();
    let shown = run(on(&host), "handlers get cli-echo:v1").succeeded();
    assert_eq!(shown.stdout, pushed.stdout);
    assert!(shown.stdout.contains(json["sha256"].as_str().unwrap()), "{shown:?}");
    let table = run(on(&host), "handlers list").succeeded();
    let row = table.stdout.lines().find(|line| line.starts_with("cli-echo:v1 ")).unwrap();
    assert!(row.contains(&json["sha256"].as_str().unwrap()[..12]), "{row}");
    assert!(row.contains("Rust"), "the sample is stripped, and still shows its language: {row}");
    let listed = run(on(&host), "handlers list --json").succeeded().json();
    assert!(listed.as_array().unwrap().contains(&json), "{listed}");
    run(on(&host), &format!("deploy {echo} --name cli-used")).succeeded();
    run(on(&host), "handlers delete cli-used").failed(1, &["cli-used", "in use"]);
    run(on(&host), "handlers delete cli-echo:v1").succeeded();
    run(on(&host), "handlers get cli-echo:v1").failed(1, &["not found"]);
    run(on(&host), "handlers push /no/such/file x").failed(1, &["cannot read"]);
}

#[tokio::test]
async fn credentials_come_from_the_environment_or_from_standard_input() {
    let host = shared_host();
    let create = |name: &str| format!("registry-auths create --name {name} --username mill");
    let words = create("cli-piped");
    let id = run_args(on(&host), words.split(' '), "pa55 word\n").succeeded();
    let id = id.line().to_owned();
    let mut command = on(&host);
    command.env("GRISTMILL_REGISTRY_PASSWORD", "other");
    let made = run(command, &format!("{} --json", create("cli-env"))).succeeded();
    assert!(!made.stdout.contains("other"), "{made:?}");
    run_args(on(&host), create("cli-empty").split(' '), "\n").failed(1, &["password", "empty"]);
    run_args(on(&host), create("cli-piped").split(' '), "x").failed(1, &["exist"]);
    let table = run(on(&host), "registry-auths list").succeeded();
    assert!(table.stdout.contains(&id) && table.stdout.contains("cli-env"), "{table:?}");
    assert!(!table.stdout.contains("pa55"), "{table:?}");
    run(on(&host), &format!("registry-auths delete {id}")).succeeded();
    run(on(&host), &format!("registry-auths delete {id}")).failed(1, &["not found"]);
}
