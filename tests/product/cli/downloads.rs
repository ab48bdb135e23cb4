//! Files that commands download: they appear once they are complete, whatever stops or overtakes
//! the command.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gristmill_tests::{PATIENCE, command, shared_host};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{on, run_args};
use crate::partial_server::PartialServer;

fn start(server: &PartialServer, arguments: &[&str]) -> Child {
    let mut command: Command = command();
    command.env("GRISTMILL_URL", &server.url).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Output {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    receive.recv_timeout(PATIENCE).expect("the command ends").unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_interrupted_download_leaves_no_file() {
    let server = PartialServer::start(&[7; 100_000]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let file = file.to_str().unwrap();
    let download: [&[&str]; 2] = [&["volumes", "cp", "v1:f", file], &["backup", "--output", file]];
    for (arguments, signal) in download.into_iter().zip([Signal::INT, Signal::TERM]) {
        let child = start(&server, arguments);
        let _paused = server.paused();
        let deadline = Instant::now() + PATIENCE;
        while names(dir.path()).is_empty() {
            assert!(Instant::now() < deadline, "{arguments:?} begins no file");
            thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = end(child);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {ended:?}");
        assert_eq!(said(&ended), "error: interrupted\n");
        assert!(names(dir.path()).is_empty(), "{arguments:?}: {:?}", names(dir.path()));
    }
}

#[tokio::test]
async fn two_backups_to_one_file_do_not_mix() {
    let host = shared_host();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("backup.tar.part"), "of somebody else").unwrap();
    let [real, file] = [path("real.tar"), path("backup.tar")];
    run_args(on(&host), ["backup", "--output", &real], "").succeeded();
    let bytes = fs::read(&real).unwrap();

    let server = PartialServer::start(&bytes);
    let first = start(&server, &["backup", "--output", &file]);
    let first_paused = server.paused();
    let second = start(&server, &["backup", "--output", &file]);
    let second_paused = server.paused();
    assert!(!fs::exists(&file).unwrap());
    first_paused.send(()).unwrap();
    let first = end(first);
    assert!(first.status.success(), "{}", said(&first));
    assert!(fs::read(&file).unwrap() == bytes);
    drop(second_paused);
    let second = end(second);
    assert_eq!(second.status.code(), Some(1), "{}", said(&second));
    assert!(fs::read(&file).unwrap() == bytes);
    assert_eq!(names(dir.path()), ["backup.tar", "backup.tar.part", "real.tar"]);
    assert_eq!(fs::read_to_string(path("backup.tar.part")).unwrap(), "of somebody else");

    // It is refused before the host reads all of its data.
    let pipe = path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for (target, words) in [(dir.path().to_str().unwrap(), "directory"), (&pipe, "pipe")] {
        run_args(on(&host), ["backup", "--output", target], "").failed(1, &[words]);
    }
}
