//! Actions that a child tries under each layer of the confinement. The test program is the child.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use super::*;

/// The child's environment: which layers, the directory with its files, and a port that
/// listens.
const LAYERS: &str = "CONFINE_TEST_LAYERS";
const DIRECTORY: &str = "CONFINE_TEST_DIRECTORY";
const PORT: &str = "CONFINE_TEST_PORT";

/// Actions that a component would have the compiler do, if it could: each must fail.
fn attempts(directory: &Path, port: &str) -> Vec<(&'static str, bool)> {
    let secret = directory.join("secrets.key");
    let host = rustix::process::getppid().unwrap();
    let memory = PathBuf::from(format!("/proc/{host}/environ"));
    vec![
        ("read a secret", fs::read(&secret).is_ok()),
        ("write a file", fs::write(directory.join("new"), "x").is_ok()),
        ("overwrite a file", fs::OpenOptions::new().append(true).open(&secret).is_ok()),
        ("list a directory", fs::read_dir(directory).is_ok()),
        ("remove a file", fs::remove_file(directory.join("victim")).is_ok()),
        ("read the host's environment", fs::read(memory).is_ok()),
        ("connect", TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()),
        ("listen", TcpListener::bind("127.0.0.1:0").is_ok()),
        ("send a datagram", UdpSocket::bind("127.0.0.1:0").is_ok()),
        ("make a socket pair", UnixStream::pair().is_ok()),
        ("run a program", Command::new("/bin/true").status().is_ok()),
        ("signal the host", rustix::process::test_kill_process(host).is_ok()),
        ("change its priority", rustix::process::nice(1).is_ok()),
    ]
}

/// Not a test of its own: [`reached`] runs it in a child. Prints the actions that succeeded.
#[test]
#[ignore = "runs in the child processes of other tests"]
fn as_child() {
    let Some(layers) = std::env::var_os(LAYERS) else { return };
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let port = std::env::var_os(PORT).unwrap().into_string().unwrap();
    let cache = directory.join("cache");
    let missing = match layers.to_str().unwrap() {
        "none" => vec![],
        "all" => confine(None).missing,
        "cache" => confine(Some(&cache)).missing,
        "landlock" => forbid_privileges().and_then(|()| landlock(None)).err().into_iter().collect(),
        "seccomp" => seccomp(false).err().into_iter().collect(),
        other => panic!("{other}"),
    };
    if !missing.is_empty() {
        println!("skipped: {missing:?}");
        return;
    }
    let mut done: Vec<_> = attempts(&directory, &port)
        .into_iter()
        .filter_map(|(what, is_done)| is_done.then_some(what))
        .collect();
    // Compiling needs threads and memory.
    let threads = (0..4).map(|_| std::thread::spawn(|| vec![1_u8; 32 << 20].len()));
    let bytes: usize = threads.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(bytes, 128 << 20);
    let in_cache = cache.join("functions");
    if fs::write(&in_cache, "code").is_ok() && fs::read(&in_cache).is_ok() {
        done.push("use the cache");
    }
    println!("done: {}", done.join(", "));
    // Threads of the test program cannot end it in order any more.
    std::process::exit(0);
}

/// The actions that succeed under these layers; `None` when the kernel lacks them.
fn reached(layers: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("cache")).unwrap();
    for name in ["secrets.key", "victim"] {
        fs::write(directory.path().join(name), "x").unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "compile::confine::tests::as_child", "--nocapture"])
        .env(LAYERS, layers)
        .env(DIRECTORY, directory.path())
        .env(PORT, listener.local_addr().unwrap().port().to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(at) = text.find("skipped: ") {
        println!("{layers}: {}", &text[at..]);
        return None;
    }
    let line = text.lines().find_map(|line| Some(line.split_once("done: ")?.1.to_owned()));
    Some(line.unwrap_or_else(|| panic!("{layers}: {output:?}")))
}

#[test]
fn a_confined_process_reaches_no_file_no_network_and_no_program() {
    let all = reached("none").unwrap();
    assert_eq!(all.split(", ").count(), 14, "without layers everything succeeds: {all}");
    for (layers, expected) in [
        ("all", ""),
        ("cache", "use the cache"),
        ("seccomp", ""),
        // Landlock does not restrict datagrams, pairs of sockets and priorities.
        ("landlock", "send a datagram, make a socket pair, change its priority"),
    ] {
        if let Some(done) = reached(layers) {
            assert_eq!(done, expected, "{layers}");
        }
    }
}
