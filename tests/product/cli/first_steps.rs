//! The first hours with Gristmill: mistakes that a new user makes get a message that names the
//! remedy, and leave nothing behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use gristmill_tests::{PATIENCE, TestHost, binary, command, eventually, guests, shared_host};
use serde_json::{Value, json};

use crate::command::{on, run, run_args};

#[tokio::test]
async fn a_refused_deploy_of_a_new_endpoint_leaves_no_template() {
    let host = shared_host();
    let template = "/v1/templates/cli-leftover?includeEndpointBoundTemplates=true";
    let playground = guests::playground().display().to_string();
    let line = format!("deploy {playground} --name cli-leftover --volume no-such-volume");
    run(on(&host), &line).failed(1, &["volume"]);
    host.client.get(template).await.refused(404);

    // The settings are right, and the host refuses the component.
    let foreign = host.scratch().join("foreign.wasm");
    let component = wat::parse_str("(component (import \"grain:mill/stone\" (instance)))").unwrap();
    fs::write(&foreign, component).unwrap();
    let line = format!("deploy {} --name cli-leftover", foreign.display());
    run(on(&host), &line).failed(1, &[]);
    host.client.get(template).await.refused(404);

    run(on(&host), &format!("deploy {playground} --name cli-leftover")).succeeded();
    run(on(&host), &line).failed(1, &[]);
    host.client.get(template).await.ok();
}

#[tokio::test]
async fn submissions_with_the_same_key_make_one_job() {
    let host = shared_host();
    host.deploy(&guests::echo(), "cli-keyed", json!({ "workersMax": 0 })).await;
    let submit = |key: &str| {
        let words = ["submit", "cli-keyed", "--input", "{}", "--idempotency-key", key];
        run_args(on(&host), words, "").succeeded().line().to_owned()
    };
    let first = submit("order 7");
    assert_eq!(submit("order 7"), first);
    assert_ne!(submit("order 8"), first);
    let wrong = ["submit", "cli-keyed", "--input", "{}", "--idempotency-key", "ä"];
    run_args(on(&host), wrong, "").failed(2, &["printable"]);
}

#[tokio::test]
async fn a_volume_gets_another_name_and_a_larger_size() {
    let host = shared_host();
    let id = run(on(&host), "volumes create growing --size 1").succeeded();
    let id = id.line();
    let shown = run(on(&host), &format!("volumes update {id} --size 2")).succeeded();
    assert!(shown.stdout.contains("2 GB") && shown.stdout.contains("growing"), "{shown:?}");
    let shown = run(on(&host), &format!("volumes update {id} --name grown --json")).succeeded();
    let shown = shown.json();
    assert_eq!((&shown["name"], &shown["size"]), (&"grown".into(), &2.into()));
    run(on(&host), &format!("volumes update {id}")).failed(2, &["--name", "--size"]);
    run(on(&host), &format!("volumes update {id} --size 1")).failed(1, &["size"]);
}

#[tokio::test]
async fn a_missing_key_is_no_damage() {
    let mut host = TestHost::start();
    host.deploy(&guests::echo(), "e", json!({ "workersMax": 0 })).await;
    for number in 0..3 {
        host.client().submit("e", json!({ "number": number })).await;
    }
    host.ask_to_end();
    host.wait(PATIENCE);
    let data = host.data_dir().display().to_string();
    let check = || run_args(command(), ["check", "--data-dir", &data], "");
    let whole = check().succeeded();
    assert!(whole.stderr.contains("read 3 jobs"), "{whole:?}");

    let (key, away) = (host.data_dir().join("secrets.key"), host.scratch().join("away.key"));
    fs::rename(&key, &away).unwrap();
    let without = check().failed(3, &["read 3 jobs", "nothing is damaged", "--secrets-key"]);
    assert!(without.stdout.is_empty(), "{without:?}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    run_args(command(), serve, "").failed(1, &["the file is missing", "--secrets-key"]);
    let away = away.display().to_string();
    let named = ["check", "--data-dir", &data, "--secrets-key", &away];
    run_args(command(), named, "").succeeded();
}

#[test]
fn a_directory_without_a_hosts_data_is_refused_with_one_cause() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("handler.py"), "").unwrap();
    let data = dir.path().display().to_string();
    let shown = run_args(command(), ["check", "--data-dir", &data], "");
    let shown = shown.failed(1, &["holds no data of a host"]);
    assert!(!shown.stderr.contains("os error"), "{shown:?}");
}

/// With a user of its own, since root may use each directory.
#[test]
fn a_directory_of_another_user_is_refused_with_the_remedy() {
    let of_root = tempfile::tempdir().unwrap();
    let data = of_root.path().join("data").display().to_string();
    let is_root = rustix::process::geteuid().is_root();
    let data = if is_root { data.as_str() } else { "/gristmill-data" };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data];
    let mut serve_as_user = command();
    if is_root {
        serve_as_user = Command::new("setpriv");
        let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        serve_as_user.args(user).arg(binary());
    }
    let shown = run_args(serve_as_user, serve, "");
    if shown.stderr.contains("setpriv: failed to execute") {
        println!("skipped: another user cannot start {}", binary().display());
        return;
    }
    shown.failed(1, &["may not use", &data.to_lowercase(), "--data-dir", "install -d -m 0700"]);
}

#[tokio::test]
async fn backups_name_the_file_and_the_directory_that_are_wrong() {
    let host = shared_host();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (missing, output) = (path("missing"), path("missing/b.tar"));
    let shown = run_args(on(&host), ["backup", "--output", &output], "");
    let shown =
        shown.failed(1, &[&format!("the directory {missing} does not exist").to_lowercase()]);
    assert!(!shown.stderr.contains(".gristmill-"), "{shown:?}");

    fs::write(path("count.wasm"), "this is a handler").unwrap();
    let (wrong, data) = (path("count.wasm"), path("data"));
    run_args(command(), ["restore", &wrong, "--data-dir", &data], "")
        .failed(1, &["count.wasm", "is not a backup"]);
}

#[tokio::test]
async fn an_empty_file_is_named() {
    let host = shared_host();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("empty.json");
    fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    let input = format!("@{file}");
    run_args(on(&host), ["submit", "none", "--input", &input], "")
        .failed(1, &["empty.json is empty", "a json object"]);
    run_args(on(&host), ["submit", "none", "--input", "nope"], "")
        .failed(1, &["is not json", "a json object"]);
    let echo = guests::echo().display().to_string();
    run_args(command(), ["test", &echo, "--cases", &file], "")
        .failed(1, &["empty.json", "the file is empty", "\"tests\""]);
}

/// A command on a terminal of its own. When it is killed, its terminal closes and ends the program.
fn on_terminal(line: &str) -> Command {
    let mut script = Command::new("script");
    // A host ends with its terminal, unless the tests were started by `nohup`.
    let line = format!("env --default-signal=HUP {line}");
    script.args(["--quiet", "--command", &line, "/dev/null"]);
    script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("GRISTMILL_")) {
            script.env_remove(&name);
        }
    }
    script
}

/// A running host. The test reads what it says.
struct Said {
    child: Child,
    lines: Receiver<String>,
}

impl Said {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|it| send.send(it)));
        Self { child, lines }
    }

    /// All lines to the first one with this text.
    fn until(&self, text: &str) -> String {
        let mut said = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("no {text:?}, {error}: {said}"));
            said += line.trim_end();
            said.push('\n');
            if line.contains(text) {
                return said;
            }
        }
    }

    /// Ends it, and returns the other lines.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn between<'a>(text: &'a str, before: &str, after: char) -> &'a str {
    text.split_once(before).and_then(|(_, rest)| rest.split(after).next()).unwrap()
}

#[tokio::test]
async fn a_host_on_a_terminal_greets_a_new_user() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    let program = binary().display().to_string();
    let serve = format!("{program} serve --listen 127.0.0.1:0 --data-dir {data}");
    let host = Said::start(on_terminal(&serve));
    let said = host.until("gristmill new");
    let url = between(&said, "ready on ", ' ').to_owned();
    for line in [
        format!("  export GRISTMILL_URL={url}\n"),
        format!("  export GRISTMILL_DATA_DIR={data}\n"),
        "  gristmill deploy --sample word-count\n".to_owned(),
        "  gristmill submit word-count --input '{\"text\":\"to be or not to be\"}' --wait\n".into(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let link = between(&said, &format!("  {url}/console/#/enter/"), '\n');
    let login = reqwest::Client::new().post(format!("{url}/console/session"));
    let login = login.header("x-gristmill-console", "1").json(&json!({ "link": link }));
    let session: Value = login.send().await.unwrap().json().await.unwrap();
    assert_eq!(session["key"]["scopes"], json!(["admin"]), "{session}");
    let deploy = ["deploy", "--sample", "echo", "--url", &url, "--data-dir", &data];
    run_args(command(), deploy, "").succeeded();
    host.end();

    // The store is free when the program of the terminal has ended.
    let again = eventually("the data directory is free", async || {
        let host = Said::start(on_terminal(&serve));
        let first = host.lines.recv_timeout(PATIENCE).unwrap();
        first.contains("ready on").then_some(host)
    });
    let again = again.await;
    let said = again.until("#/enter/");
    assert!(said.contains("this link logs in"), "{said}");
    let rest = again.end();
    assert!(!rest.contains("deploy --sample"), "there is an endpoint: {rest}");
}

#[tokio::test]
async fn commands_name_the_next_one_on_a_terminal_alone() {
    let host = shared_host();
    host.deploy(&guests::echo(), "cli-next", json!({ "workersMax": 0 })).await;
    let program = binary().display().to_string();
    for (words, next) in [
        ("submit cli-next --input {}", "next: gristmill status cli-next "),
        ("keys create --name next --scope read", "next: export GRISTMILL_API_KEY"),
        ("volumes create next --size 1", "next: gristmill volumes cp FILE "),
    ] {
        let mut shown = on_terminal(&format!("{program} {words}"));
        shown.env("GRISTMILL_URL", host.url()).env("GRISTMILL_API_KEY", host.admin_key());
        let shown = run_args(shown, [""; 0], "").succeeded().stdout;
        let last = shown.trim_end().lines().last().unwrap();
        assert!(last.starts_with(next), "{words}: {shown}");
        let piped = run(on(&host), words).succeeded();
        assert!(!piped.stderr.contains("next:"), "{piped:?}");
        piped.line();
    }
}

#[tokio::test]
async fn a_host_without_a_terminal_prints_no_link_and_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log = dir.path().join("log");
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    serve.stdin(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let host = Said::start(serve);
    let said = host.until("the admin key is in");
    // It answers, so it has said all.
    let url = between(&said, "ready on ", ' ');
    reqwest::get(format!("{url}/console/")).await.unwrap();
    let said = said.clone() + &host.end() + &fs::read_to_string(log).unwrap();
    assert!(!said.contains("/enter/") && !said.contains("gm_"), "{said}");
    assert!(!said.contains("deploy --sample"), "{said}");
}
