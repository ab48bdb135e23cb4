//! `gristmill dev`: a project is served without a key, and so is each change of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_tests::{PATIENCE, command};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Finished, run, run_args};
use crate::new_project::{BUILD_PATIENCE, RustProjects};
use crate::project::{inside, project_with_a_scripted_toolchain};

/// A running `gristmill dev`, with all its output.
struct Dev {
    child: Child,
    said: Arc<Mutex<String>>,
    url: String,
}

impl Dev {
    fn start(projects: &RustProjects, project: &Path, temp: &Path) -> Self {
        let mut command = command();
        projects.prepare(&mut command);
        command.arg("dev").arg(project).args(["--listen", "127.0.0.1:0"]).env("TMPDIR", temp);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::default();
        keep(child.stdout.take().unwrap(), &said);
        keep(child.stderr.take().unwrap(), &said);
        let mut dev = Self { child, said, url: String::new() };
        let ready = dev.wait_for("no key needed", 0);
        let (_, rest) = ready.split_once(" on http://").unwrap();
        dev.url = format!("http://{}", rest.split_once('/').unwrap().0);
        dev
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits for a text in the output behind this many bytes; returns everything behind it.
    fn wait_for(&self, words: &str, after: usize) -> String {
        let deadline = Instant::now() + BUILD_PATIENCE;
        loop {
            let said = self.said();
            if said[after..].contains(words) {
                return said[after..].to_owned();
            }
            assert!(Instant::now() < deadline, "{words:?} was not said: {said}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn client(&self, words: &str) -> Finished {
        let mut client = command();
        client.env("GRISTMILL_URL", &self.url);
        run(client, words)
    }

    fn submit(&self, input: &str) -> Finished {
        let mut client = command();
        client.env("GRISTMILL_URL", &self.url);
        run_args(client, ["submit", "mill", "--wait", "--input", input], "")
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keep(from: impl Read + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = said.clone();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut said = said.lock().unwrap();
            said.push_str(&line);
            said.push('\n');
        }
    });
}

/// Replaces a text in a file.
fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn each_change_of_a_handler_of_http_is_served() {
    let projects = RustProjects::new("dev-http");
    run(inside(&projects.dir), "new dev-site --kind http --lang rust").succeeded();
    projects.pin("dev-site");
    let project = projects.dir.join("dev-site");
    let temp = tempfile::tempdir().unwrap();
    let dev = Dev::start(&projects, &project, temp.path());
    assert!(dev.said().contains(&format!("serving dev-site on {}/http/dev-site/", dev.url)));
    let test = || dev.client(&format!("test {} --endpoint dev-site", project.display()));
    assert!(test().succeeded().stdout.contains("4 passed"));
    let before = dev.said().len();
    let logs_first = r#"Ok(Response::new("hello\n".into()))"#;
    let logs_then = r#"{ println!("a guest"); Ok(Response::new("good morning\n".into())) }"#;
    edit(&project.join("src/lib.rs"), logs_first, logs_then);
    dev.wait_for("deployed in", before);
    test().failed(1, &[]);
    assert!(test().stdout.contains(r#"expected "hello\n", got "good morning\n""#));
    let said = dev.wait_for("info: a guest", before);
    let line = said.lines().find(|line| line.ends_with("info: a guest")).unwrap();
    assert!(line.starts_with("request "), "{line}");
}

/// Changes the project while a job of 30 pauses runs. Returns the job's id if it still ran after
/// the change.
fn job_across_a_change(dev: &Dev, project: &Path, pause_ms: u32, variable: &str) -> Option<String> {
    let long = format!(r#"{{"text":"{}","pause_ms":{pause_ms}}}"#, "a ".repeat(30));
    let mut client = command();
    client.env("GRISTMILL_URL", &dev.url);
    let job = run_args(client, ["submit", "mill", "--input", &long], "").succeeded();
    let job = job.line().to_owned();
    dev.wait_for(&format!("job {job} started"), 0);
    let before = dev.said().len();
    edit(&project.join("gristmill.toml"), "[env]", &format!("[env]\n{variable} = \"rye\""));
    dev.wait_for("deployed in", before);
    (!dev.said().contains(&format!("job {job} COMPLETED"))).then_some(job)
}

/// Deletes the table `[env]` of the project's file, which ends with an empty line.
fn delete_environment(project: &Path) {
    let path = project.join("gristmill.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (start, rest) = text.split_once("[env]").unwrap();
    let (_, end) = rest.split_once("\n\n").unwrap();
    fs::write(path, format!("{start}{end}")).unwrap();
}

const INPUT: &str = r#"{"text":"to be or not"}"#;

#[test]
fn each_change_is_served_and_no_job_is_lost() {
    let projects = RustProjects::new("dev");
    run(inside(&projects.dir), "new mill --lang rust").succeeded();
    projects.pin("mill");
    let project = projects.dir.join("mill");
    edit(&project.join("gristmill.toml"), "# [env]\n# NAME = \"value\"\n", "[env]\n");
    let source = project.join("src/lib.rs");
    let temp = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(&projects, &project, temp.path());
    assert!(dev.submit(INPUT).succeeded().stdout.ends_with("{\"words\":4}\n"));
    for words in ["submitted", "started", "info: 4 words", "COMPLETED (ran "] {
        let job = dev.wait_for(words, 0);
        assert!(job.contains("fuel") || words != "COMPLETED (ran ", "{job}");
    }
    dev.submit("{}").failed(1, &["missing field `text`"]);
    dev.wait_for("missing field `text`", 0);

    // A change of the code changes the answer.
    let before = dev.said().len();
    edit(&source, "words += 1", "words += 10");
    dev.wait_for("deployed in", before);
    assert!(dev.submit(INPUT).succeeded().stdout.ends_with("{\"words\":40}\n"));

    // The error of a failing build is shown, and the host serves the last good build.
    let before = dev.said().len();
    edit(&source, "words += 10", "words += ten");
    let said = dev.wait_for("the last good build is served on", before);
    assert!(said.contains("cannot find value `ten`"), "{said}");
    assert!(dev.submit(INPUT).succeeded().stdout.ends_with("{\"words\":40}\n"));
    let before = dev.said().len();
    edit(&source, "words += ten", "words += 10");
    dev.wait_for("nothing is new", before);

    // A running job ends on the version that it began with. On a loaded machine the change may take
    // longer than a job of 15 s; then a job of 45 s shows it, which is less than its timeout of 60
    // s.
    let job = [(500, "GRAIN"), (1_500, "FLOUR")]
        .into_iter()
        .find_map(|(pause_ms, variable)| job_across_a_change(&dev, &project, pause_ms, variable));
    let job = job.expect("a job runs across a change");
    assert!(dev.submit(INPUT).succeeded().stdout.ends_with("{\"words\":40}\n"));
    dev.wait_for(&format!("job {job} COMPLETED"), 0);
    let status = dev.client(&format!("status mill {job} --json")).succeeded().json();
    assert_eq!(status["output"]["words"], 300, "{status}");

    // The endpoint has no settings but the project's: a table that is deleted from the file is
    // empty.
    let settings = || dev.client("templates get mill --json").succeeded().json();
    assert_eq!(settings()["env"]["GRAIN"], "rye", "{}", settings());
    let before = dev.said().len();
    delete_environment(&project);
    dev.wait_for("deployed in", before);
    assert_eq!(settings()["env"], serde_json::json!({}), "{}", settings());

    only_this_machine_is_let_in(&dev.url);

    kill_process(Pid::from_child(&dev.child), Signal::INT).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = dev.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it did not end: {}", dev.said());
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}: {}", dev.said());
    let left: Vec<_> = fs::read_dir(temp.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Its output in a file of the project is a change of the project after each build.
#[test]
fn output_in_a_file_of_the_project_does_not_build_for_ever() {
    let project = project_with_a_scripted_toolchain();
    for name in ["dev.log", "output.txt"] {
        let path = project.path().join(name);
        let output = fs::File::create(&path).unwrap();
        let mut command = command();
        command.args(["dev", "--listen", "127.0.0.1:0"]).current_dir(project.path());
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut child = command.spawn().unwrap();
        let wait_for = |words: &str| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let said = fs::read_to_string(&path).unwrap();
                if said.contains(words) {
                    return said;
                }
                assert!(Instant::now() < deadline, "{words:?} was not said: {said}");
                thread::sleep(Duration::from_millis(50));
            }
        };
        let builds = |said: &str| said.matches("built player").count();
        wait_for("waiting for jobs and changes");
        // A further build would have begun within milliseconds after the last one; it takes 0.1 s.
        thread::sleep(Duration::from_secs(2));
        let before = builds(&fs::read_to_string(&path).unwrap());
        assert!(before <= 2, "{before} builds of one project");
        edit(&project.path().join("handler.py"), "sacks", "sacks of rye");
        let said = wait_for("changed: handler.py");
        child.kill().unwrap();
        child.wait().unwrap();
        edit(&project.path().join("handler.py"), "sacks of rye", "sacks");
        assert!(builds(&said) <= 3, "{said}");
    }
}

/// A browser on this machine may act for any website, so such calls are refused.
fn only_this_machine_is_let_in(url: &str) {
    let address = url.strip_prefix("http://").unwrap();
    let status = |headers: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let call = format!("GET /v2/mill/health HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(call.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let here = format!("Host: {address}\r\n");
    assert_eq!(status(&here), "200");
    assert_eq!(status(&format!("{here}Origin: http://localhost:3000\r\n")), "200");
    assert_eq!(status(&format!("{here}Origin: https://example.com\r\n")), "401");
    assert_eq!(status("Host: rebound.example.com\r\n"), "401");
}

#[test]
fn a_host_without_keys_stays_on_this_machine() {
    for line in ["serve --no-key --listen 0.0.0.0:0", "serve --no-key --listen [::]:0"] {
        run(command(), line).failed(1, &["no-key needs a loopback address"]);
    }
    let dir = tempfile::tempdir().unwrap();
    run(inside(dir.path()), "new count --lang js").succeeded();
    run(inside(dir.path()), "dev count --listen 0.0.0.0:0").failed(1, &["loopback address"]);
    run(inside(dir.path()), "dev nowhere").failed(1, &["no gristmill.toml in nowhere"]);
    // A missing tool is not a fault of the project that a change could fix.
    run(inside(dir.path()), "dev count --listen 127.0.0.1:0").failed(1, &["npm install"]);
}
