//! Command lines as clap reads them, help beside the reference and the README, and wrong values.

use clap::{Args as _, CommandFactory as _};
use gristmill_commands::arguments::ConnectionArgs;

use super::*;

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_is_found() {
    let lines = [
        "serve --listen 0.0.0.0:80 --lenient-policy --drain-timeout 5",
        "serve --registry-allow hub.lan,http://127.0.0.1:5000",
        "serve --egress-deny 93.184.216.0/24,2001:db8::/32",
        "deploy --sample word-count --name words",
        "deploy a.wasm --name a --env A=b --env C= --workers-max 3 --metering epoch",
        "new count --lang js --dir elsewhere/count",
        "new count --lang ts",
        "upgrade-sdk",
        "upgrade-sdk count --force",
        "build",
        "build dir --preinit --profile dev",
        "build --engine starlingmonkey",
        "dev dir --listen 127.0.0.1:0 --data-dir d",
        "serve --no-key",
        "deploy",
        "run a.wasm --input {} --max-fuel 10 --allow-host example.com",
        "run --trace --volume d --volume-gb 2 --mount-path /grain --metering epoch",
        "test",
        "test a.wasm --cases c.json --filter x -j 3 --junit o.xml --json --record --env A=1",
        "test --endpoint e --url http://h:1 --jobs 256",
        "submit a --input @f.json --wait --wait-timeout-ms 5",
        "submit a --input @f.json --wait --timeout-ms 5",
        "status a j",
        "cluster status --json",
        "completions zsh",
        "man share/man1",
        "health",
        "timeline a j --json",
        "stream a j --from 3",
        "cancel a j --url http://h:1",
        "retry a j --json",
        "purge a",
        "health a --json",
        "requests a --status failed --limit 3 --cursor 9",
        "jobs list --json",
        "volumes list --json",
        "volumes create grain --size 1",
        "volumes update v --size 2 --json",
        "volumes update v --name grain",
        "submit a --input {} --idempotency-key order-7",
        "keys create --name n --scope submit,read --endpoint a --endpoint b",
        "console --url http://h:1",
        "templates list --json",
        "templates create --name n --image a:b --env A=b --arg -x --public true",
        "templates update t --readme README.md --container-disk 2",
        "endpoints create --template t --id e --scaler queue-delay:4",
        "endpoints update e --max-waiting-jobs 0 --workers-max 0",
        "endpoints update e --keep-failed 7d --keep-completed default",
        "endpoints releases e",
        "endpoints rollback e --to 3",
        "endpoints deliveries e --json",
        "endpoints rotate-webhook-secret e",
        "logs e --job j --tail 5 -f --json",
        "handlers list --json",
        "handlers get mill:1",
        "handlers push a.wasm mill --json",
        "handlers delete mill:1",
        "registry-auths list",
        "registry-auths create --name hub --username mill --json",
        "registry-auths create --name ghcr --registry ghcr.io --username mill",
        "registry-auths delete a1",
        "templates update t --public true --platform false",
        "keys create --name k --owner wheat --scope manage,submit",
        "keys list",
        "keys revoke k",
        "billing",
        "billing --from 2026-01-01 --bucket week --group template --json",
        "backup --output b.tar --with-secrets-key --ca-cert ca.pem",
        "secrets rotate --json",
        "restore b.tar --data-dir d",
        "check --data-dir d --secrets-key k",
        "repair --data-dir d --output e",
        "import --data-dir d --database postgres://u:p@h/n --secrets-key k --json",
        "compile-component fuel a b --x",
    ];
    for line in lines {
        let words = std::iter::once("gristmill").chain(line.split(' '));
        assert!(Cli::try_parse_from(words).is_ok(), "{line}");
    }
}

/// `docs/reference/commands.md` is the help of all commands.
#[test]
fn the_reference_is_the_help_of_the_commands() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/commands.md");
    // The same lines in each terminal.
    let mut line = Cli::command().term_width(100);
    line.build();
    let mut reference = String::from(
        "# Commands\n\nThe help of each command, as `gristmill COMMAND -h` shows it.\nThe options of the \
         connection, which each client command has, stand here alone:\n",
    );
    let connection = clap::Command::new("gristmill COMMAND").term_width(100);
    let connection = ConnectionArgs::augment_args(connection.disable_help_flag(true));
    show_help(connection, &mut reference);
    describe(&line, "gristmill", &mut reference);
    if std::env::var_os("GRISTMILL_WRITE_DOCS").is_some() {
        std::fs::write(path, &reference).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == reference,
        "docs/reference/commands.md is out of date; `make references` writes it"
    );
}

/// Adds the help of a command, or that of its subcommands.
fn describe(command: &clap::Command, name: &str, reference: &mut String) {
    let mut below = command.get_subcommands().peekable();
    if below.peek().is_none() {
        *reference += &format!("\n## {name}\n");
        let is_shared = |arg: &clap::Arg| arg.get_help_heading() == Some("Connection");
        let own = command.clone().mut_args(|arg| {
            let is_shared = is_shared(&arg);
            arg.hide(is_shared)
        });
        return show_help(own, reference);
    }
    let is_shown = |it: &&clap::Command| !it.is_hide_set() && it.get_name() != "help";
    for command in below.filter(is_shown) {
        describe(command, &format!("{name} {}", command.get_name()), reference);
    }
}

fn show_help(mut command: clap::Command, reference: &mut String) {
    let help = command.render_help().to_string();
    let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    *reference += &format!("\n```text\n{}\n```\n", lines.join("\n"));
}

/// The program `gristmill-client` names them in its error.
#[test]
fn the_commands_that_only_this_program_has_are_listed() {
    let with_client = |name: &str| {
        ClientCommand::augment_subcommands(clap::Command::new("client"))
            .find_subcommand(name)
            .is_some()
    };
    let line = Cli::command();
    let shown = line.get_subcommands().filter(|command| !command.is_hide_set());
    let own: Vec<_> =
        shown.map(clap::Command::get_name).filter(|name| !with_client(name)).collect();
    assert_eq!(own, gristmill_commands::COMMANDS_OF_GRISTMILL);
}

#[test]
fn a_required_argument_is_shown_as_one() {
    let mut line = Cli::command();
    let volumes = line.find_subcommand_mut("volumes").unwrap();
    let help = volumes.find_subcommand_mut("create").unwrap().render_help().to_string();
    assert!(help.contains("<NAME>") && !help.contains("[NAME]"), "{help}");
}

#[test]
fn the_readme_names_each_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let names = [format!("`{name}`"), format!("`gristmill {name}")];
        assert!(names.iter().any(|name| readme.contains(name)), "README.md lacks `{name}`");
    }
}

#[test]
fn wrong_values_are_refused_before_anything_happens() {
    let lines = [
        "deploy a.wasm --name serverless",
        "deploy a.wasm --name a --workers-max 1001",
        "deploy a.wasm --name a --keep-failed 31d",
        "deploy a.wasm --name a --execution-timeout 4999",
        "deploy a.wasm --name a --memory-mib 0",
        "deploy a.wasm --name a --metering time",
        "deploy a.wasm --name a --env =x",
        "deploy a.wasm --name a --allow-host http://x",
        "run --volume-gb 2",
        "run --volume d --mount-path rel",
        "run --volume d --volume-gb 0",
        "run --timeout-ms 0",
        "test --jobs 0",
        "test --jobs 257",
        "test --endpoint e --env A=1",
        "test --endpoint e --memory-mib 5",
        "submit a/b --input {}",
        "submit a --input {} --ttl 1",
        "submit a --input {} --idempotency-key=",
        "volumes create --size 1",
        "volumes create --name grain --size 1",
        "volumes update v",
        "volumes update v --size 0",
        "submit a --input {} --wait-timeout-ms 5",
        "status a ../x",
        "health a --url ftp://x",
        "requests a --limit 0",
        "requests a --status DONE",
        "keys create --name n --scope root",
        "keys create --name n --scope read --owner a.b",
        "endpoints create --id e",
        "endpoints update e --scaler queue-delay:0",
        "endpoints update e --scaler often",
        "registry-auths create --name hub --username mill --password x",
        "registry-auths create --name hub --username mill --registry https://ghcr.io",
        "registry-auths delete a/b",
        "serve --registry-allow ftp://x",
        "serve --egress-deny 10.0.0.0/33",
        "serve --listen nowhere",
        "new",
        "new Count --lang rust",
        "new count",
        "new count --lang cobol",
        "build --engine v8",
        "dev --listen 8080",
        "serve --max-running-jobs 0",
        "serve --tls-cert a.pem",
        "serve --idle-timeout 0",
        "billing --bucket minute",
        "billing --group job",
        "backup",
        "secrets",
        "restore b.tar",
        "check",
        "repair --data-dir d",
        "import --database postgres://u:p@h/n",
        "import --data-dir d --database mysql://h/n",
    ];
    for line in lines {
        let words = std::iter::once("gristmill").chain(line.split(' '));
        assert!(Cli::try_parse_from(words).is_err(), "{line}");
    }
}
