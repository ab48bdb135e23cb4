//! A PostgreSQL server for the tests of one program, and a database for each test.
//!
//! The server runs as an ordinary user, with `fsync` on, below a temporary directory, and ends with
//! the program. `GRISTMILL_WITHOUT_POSTGRES=1` skips the tests on machines without PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

/// Every commit is synced.
const SETTINGS: &str = "listen_addresses = ''\nfsync = on\nsynchronous_commit = on\nmax_connections = 200\n\
    shared_buffers = 32MB\nautovacuum_naptime = 5s\n";

/// The beginning of the names of the servers' directories, before the number of the program's
/// process.
const PREFIX: &str = "gristmill-postgres-";

/// The directory of the server that most tests share.
static SHARED: OnceLock<Option<PathBuf>> = OnceLock::new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A running server.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    /// Absent while it is stopped.
    pub(crate) process: Option<Child>,
}

/// An empty database, which is dropped with this value.
pub(crate) struct Database {
    pub(crate) name: String,
    /// The directory of its server.
    pub(crate) server: PathBuf,
    /// The file of the key that its hosts share.
    key: TempDir,
}

impl Database {
    /// A new database on the common server; `None` where the tests may skip PostgreSQL.
    pub(crate) fn new() -> Option<Self> {
        let server = SHARED.get_or_init(start_shared).as_ref()?;
        Some(Self::on(server))
    }

    fn on(server: &Path) -> Self {
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        run(server, "createdb", &[&name]);
        Self { name, server: server.to_owned(), key: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        self.url_through(&self.server)
    }

    /// The URL for a socket in another directory, such as that of a [`Proxy`].
    pub(crate) fn url_through(&self, directory: &Path) -> String {
        let (name, port) = (&self.name, port(&self.server));
        format!("postgresql:///{name}?user=postgres&host={}&port={port}", directory.display())
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.key.path().join("secrets.key")
    }

    /// Runs SQL with the store's tables in view, and returns the rows without a header.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let sql = format!("SET search_path = gristmill; {sql}");
        let arguments = ["-d", &self.name, "-v", "ON_ERROR_STOP=1", "-qAtc", &sql];
        run(&self.server, "psql", &arguments)
    }

    /// Ends all connections of stores.
    pub(crate) fn cut_connections(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'gristmill' AND datname = current_database()",
        );
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.server.exists() {
            run(&self.server, "dropdb", &["--force", &self.name]);
        }
    }
}

/// A program of PostgreSQL: of the newest version below Debian's directory, or else of the path.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|program| program.exists());
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

/// The server refuses to run as root.
pub(crate) fn as_user(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    }
    command.arg("--").arg(program(name));
    command
}

/// Whether PostgreSQL is installed; false only where the tests may skip it.
pub(crate) fn is_installed() -> bool {
    let found = Command::new(program("initdb")).arg("--version").output();
    if found.is_ok_and(|found| found.status.success()) {
        return true;
    }
    let may_skip = std::env::var_os("GRISTMILL_WITHOUT_POSTGRES").is_some();
    assert!(
        may_skip,
        "PostgreSQL is not installed: install it (Debian: `apt install postgresql`), or skip its tests \
         with GRISTMILL_WITHOUT_POSTGRES=1"
    );
    println!("skipped: PostgreSQL is not installed");
    false
}

/// Removes the directories of programs that have ended: the common server outlives every test.
fn remove_leftovers() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let process = rest.and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn start_shared() -> Option<PathBuf> {
    if !is_installed() {
        return None;
    }
    remove_leftovers();
    let (ready, is_ready) = std::sync::mpsc::channel();
    // The server ends with the thread that started it, and this one ends with the program.
    std::thread::spawn(move || {
        let server = Server::spawn();
        ready.send(server.dir.path().to_owned()).unwrap();
        loop {
            std::thread::park();
        }
    });
    Some(is_ready.recv().expect("the server starts"))
}

impl Server {
    /// A server of one test; `None` where the tests may skip PostgreSQL.
    pub(crate) fn start() -> Option<Self> {
        is_installed().then(Self::spawn)
    }

    pub(crate) fn database(&self) -> Database {
        Database::on(self.dir.path())
    }

    fn spawn() -> Self {
        Self::spawn_with(|_| String::new())
    }

    /// `prepare` may write files to the directory of its data, and returns further lines of its
    /// settings.
    pub(crate) fn spawn_with(prepare: impl FnOnce(&Path) -> String) -> Self {
        Self::spawn_in(directory(), prepare)
    }

    /// The same in this directory.
    pub(crate) fn spawn_in(dir: TempDir, prepare: impl FnOnce(&Path) -> String) -> Self {
        let data = dir.path().join("data");
        done(as_user("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "postgres", "-N"]));
        let conf = data.join("postgresql.conf");
        let settings = format!(
            "{}{SETTINGS}unix_socket_directories = '{}'\n{}",
            fs::read_to_string(&conf).unwrap(),
            dir.path().display(),
            prepare(&data)
        );
        fs::write(&conf, settings).unwrap();
        if rustix::process::geteuid().is_root() {
            done(Command::new("chown").arg("-R").arg("postgres").arg(&data));
        }
        let process = Some(serve(dir.path()));
        Self { dir, process }
    }

    /// Ends the server as a loss of power of its machine would, except for the page cache.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let server = rustix::process::Pid::from_child(&process);
            rustix::process::kill_process(server, rustix::process::Signal::QUIT).unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn start_again(&mut self) {
        self.process = Some(serve(self.dir.path()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An empty directory of a server.
pub(crate) fn directory() -> TempDir {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap();
    if rustix::process::geteuid().is_root() {
        done(Command::new("chown").arg("postgres").arg(dir.path()));
    }
    dir
}

/// Starts a server, and waits until it is ready.
pub(crate) fn serve(dir: &Path) -> Child {
    let log = fs::File::options().append(true).create(true).open(dir.join("log")).unwrap();
    let mut server = as_user("postgres");
    server.arg("-D").arg(dir.join("data"));
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut server = server.spawn().unwrap();
    for _ in 0..600 {
        let mut ready = Command::new(program("pg_isready"));
        if ready
            .arg("-h")
            .arg(dir)
            .arg("-p")
            .arg(port(dir))
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
        {
            return server;
        }
        assert!(server.try_wait().unwrap().is_none(), "{}", log_of(dir));
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the server is not ready after a minute: {}", log_of(dir));
}

/// Runs SQL on a connection of its own.
pub(crate) fn sql_at(url: &str, sql: &str) {
    done(Command::new(program("psql")).arg(url).args(["-qAtc", sql]));
}

/// The port of a server, which also names its Unix socket.
pub(crate) fn port(server: &Path) -> String {
    let conf = fs::read_to_string(server.join("data/postgresql.conf")).unwrap_or_default();
    let port = conf.lines().filter_map(|line| line.strip_prefix("port = ")).next_back();
    port.unwrap_or("5432").to_owned()
}

pub(crate) fn run(server: &Path, name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program(name));
    command.env("PGPORT", port(server));
    // A test may have made its database read only.
    command.env("PGOPTIONS", "-c default_transaction_read_only=off");
    done(command.arg("-h").arg(server).args(["-U", "postgres"]).args(arguments))
}

fn log_of(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Runs a program, which must succeed, and returns what it printed.
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
