//! A host with its own data directory, and helpers to deploy handlers on it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex as SyncMutex, OnceLock};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::built::binary;
use crate::process::{HostProcess, Start, spawn};
use crate::wait::PATIENCE;
use crate::{Answer, Client};

/// The process of a host.
#[derive(Debug)]
enum Process {
    Started(HostProcess),
    /// Another program has started it. The value has the fields of its ready line that tests read.
    Elsewhere(Value),
}

/// The real binary, with a temporary data directory.
#[derive(Debug)]
pub struct TestHost {
    process: Process,
    program: PathBuf,
    folder: TempDir,
    arguments: Vec<String>,
    admin_key: String,
    /// The authority of its certificates, as PEM, if it serves HTTPS.
    authority: Option<Vec<u8>>,
    uploaded: Mutex<HashSet<PathBuf>>,
}

/// A folder for the files of a host.
fn new_folder() -> TempDir {
    tempfile::Builder::new().prefix("gristmill-test-").tempdir().unwrap()
}

impl TestHost {
    /// Starts one.
    pub fn start() -> Self {
        Self::start_with::<&str>(&[])
    }

    /// Starts one with further arguments of `serve`.
    pub fn start_with<S: AsRef<str>>(arguments: &[S]) -> Self {
        Self::start_prepared(arguments, |_| ())
    }

    /// Starts one with this text as its configuration file.
    pub fn start_configured(config: &str) -> Self {
        let folder = new_folder();
        let file = folder.path().join("config.toml");
        fs::write(&file, config).unwrap();
        let arguments = ["--config", file.to_str().unwrap()];
        Self::launch_in(folder, &binary(), &arguments, |_| ()).with_own_admin_key()
    }

    /// Starts one beside others that share its database, whose admin key this is.
    pub fn join<S: AsRef<str>>(arguments: &[S], admin_key: &str) -> Self {
        Self::join_as(&binary(), arguments, admin_key)
    }

    /// Like [`join`](Self::join), with another program.
    pub fn join_as<S: AsRef<str>>(program: &Path, arguments: &[S], admin_key: &str) -> Self {
        Self::launch(program, arguments, |_| ()).with_admin_key(admin_key)
    }

    /// Like [`start_with`](Self::start_with), with another program.
    pub fn start_as<S: AsRef<str>>(program: &Path, arguments: &[S]) -> Self {
        Self::launch(program, arguments, |_| ()).with_own_admin_key()
    }

    /// Starts one with further arguments of `serve`, on a data directory that `prepare` may fill.
    pub fn start_prepared<S: AsRef<str>>(arguments: &[S], prepare: impl FnOnce(&Path)) -> Self {
        Self::launch(&binary(), arguments, prepare).with_own_admin_key()
    }

    fn with_own_admin_key(self) -> Self {
        let admin_key = fs::read_to_string(self.data_dir().join("admin.key")).unwrap();
        self.with_admin_key(admin_key.trim())
    }

    fn with_admin_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.admin_key);
        self
    }

    fn launch<S: AsRef<str>>(program: &Path, arguments: &[S], prepare: impl FnOnce(&Path)) -> Self {
        Self::launch_in(new_folder(), program, arguments, prepare)
    }

    fn launch_in<S: AsRef<str>>(
        folder: TempDir,
        program: &Path,
        arguments: &[S],
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let program = program.to_owned();
        let (data, log) = (folder.path().join("data"), folder.path().join("log"));
        prepare(&data);
        let arguments: Vec<_> = arguments.iter().map(|text| text.as_ref().to_owned()).collect();
        let start = Start {
            program: &program,
            environment: &[],
            data_dir: &data,
            log: &log,
            arguments: &arguments,
        };
        let process = Process::Started(HostProcess::start(start));
        let (admin_key, uploaded) = (String::new(), Mutex::default());
        Self { process, program, folder, arguments, admin_key, authority: None, uploaded }
    }

    /// The host that `GRISTMILL_TEST_URL` names, if it is set. Another program has started it; its
    /// connections of TCP are made to `GRISTMILL_TEST_ADDRESS`, and its admin key is
    /// `GRISTMILL_TEST_KEY`.
    fn elsewhere() -> Option<Self> {
        let url = std::env::var("GRISTMILL_TEST_URL").ok()?;
        let named = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let process = json!({ "url": url, "addr": named("GRISTMILL_TEST_ADDRESS") });
        Some(Self {
            process: Process::Elsewhere(process),
            program: binary(),
            folder: tempfile::tempdir().unwrap(),
            arguments: Vec::new(),
            admin_key: named("GRISTMILL_TEST_KEY"),
            authority: None,
            uploaded: Mutex::default(),
        })
    }

    /// # Panics
    /// When the test has not started the host.
    fn process(&self) -> &HostProcess {
        match &self.process {
            Process::Started(process) => process,
            Process::Elsewhere(ready) => panic!("another program has started the host {ready}"),
        }
    }

    /// As [`process`](Self::process).
    fn process_mut(&mut self) -> &mut HostProcess {
        match &mut self.process {
            Process::Started(process) => process,
            Process::Elsewhere(ready) => panic!("another program has started the host {ready}"),
        }
    }

    /// Starts one that serves HTTPS with a certificate that `authority` (PEM) has signed.
    pub fn start_with_tls(authority: &str, cert: &Path, key: &Path, more: &[&str]) -> Self {
        let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        let mut host = Self::start_with(&[&files, more].concat());
        host.authority = Some(authority.as_bytes().to_vec());
        host
    }

    /// Starts one with a stopped clock that only [`TestHost::advance`] moves, with further
    /// arguments of `serve`.
    pub fn start_with_clock<S: AsRef<str>>(arguments: &[S]) -> Self {
        let further = arguments.iter().map(AsRef::as_ref);
        Self::start_with(&std::iter::once("--manual-clock").chain(further).collect::<Vec<_>>())
    }

    /// Moves the clock by this many milliseconds and returns its new time, in milliseconds since
    /// the Unix epoch. Background work of the host that depends on it follows soon.
    pub fn advance(&self, ms: u64) -> u64 {
        self.process().advance(ms)
    }

    /// Ends it like a power cut.
    pub fn kill9(&mut self) {
        self.process_mut().kill9();
    }

    /// Sends SIGTERM.
    pub fn ask_to_end(&self) {
        self.process().ask_to_end();
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        self.process_mut().wait(patience)
    }

    /// Starts it again on the same data; it listens on another port then.
    pub fn start_again(&mut self) {
        self.start_again_in(&[]);
    }

    /// Like [`start_again`](Self::start_again), with further variables of its environment.
    pub fn start_again_in(&mut self, environment: &[(&str, &OsStr)]) {
        self.process_mut().kill9();
        *self.process_mut() = self.with_start(environment, HostProcess::start);
    }

    /// Like [`start_again_in`](Self::start_again_in), for a host that may be unable to start.
    ///
    /// # Errors
    /// The exit status of a host that has not become ready.
    pub fn try_start_again_in(&mut self, environment: &[(&str, &OsStr)]) -> Result<(), ExitStatus> {
        self.process_mut().kill9();
        *self.process_mut() = self.with_start(environment, HostProcess::try_start)?;
        Ok(())
    }

    /// Calls `start` with the command line of this host.
    fn with_start<R>(
        &self,
        environment: &[(&str, &OsStr)],
        start: impl FnOnce(Start<'_>) -> R,
    ) -> R {
        let (data_dir, log) = (self.data_dir(), self.log_path());
        start(Start {
            program: &self.program,
            environment,
            data_dir: &data_dir,
            log: &log,
            arguments: &self.arguments,
        })
    }

    /// Like [`start_again`](Self::start_again), with another program.
    pub fn start_again_as(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
        self.start_again();
    }

    /// Whether its process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process_mut().has_ended()
    }

    /// Like [`start_again`](Self::start_again), with these arguments of `serve` in place of those
    /// before.
    pub fn start_again_with<S: AsRef<str>>(&mut self, arguments: &[S]) {
        self.arguments = arguments.iter().map(|text| text.as_ref().to_owned()).collect();
        self.start_again();
    }

    /// Starts another process on the same data beside this one, which it takes the place of.
    /// Returns how this one ended, or how the other one did when it could not start.
    ///
    /// # Errors
    /// When the other one could not start: the reason is in the log.
    pub fn replace(&mut self) -> Result<ExitStatus, ExitStatus> {
        let next = self.with_start(&[], HostProcess::try_start)?;
        let mut last = std::mem::replace(self.process_mut(), next);
        Ok(last.wait(PATIENCE))
    }

    /// Kills it, starts it on the same data, and kills it after this time, ready or not.
    pub fn start_and_kill(&mut self, later: Duration) {
        self.process_mut().kill9();
        let mut child = self.with_start(&[], spawn);
        // The subject: the time of the kill.
        thread::sleep(later);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The value of `ready` in its ready line.
    pub fn ready(&self) -> &Value {
        match &self.process {
            Process::Started(process) => &process.ready,
            Process::Elsewhere(ready) => ready,
        }
    }

    /// The value of `ready` in its next ready line, which a host prints that has taken over.
    pub fn next_ready(&self) -> Value {
        self.process().next_ready()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// The present memory of its process, in bytes.
    pub fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The present memory of its process without that of files, in bytes.
    pub fn anonymous_memory(&self) -> u64 {
        self.memory("RssAnon:")
    }

    /// The peak memory of its process, in bytes, since its start or since
    /// [`TestHost::forget_peak_memory`].
    pub fn peak_memory(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Resets the peak.
    pub fn forget_peak_memory(&self) {
        const PEAK_ONLY: &str = "5";
        fs::write(format!("/proc/{}/clear_refs", self.pid()), PEAK_ONLY).unwrap();
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        self.ready()["url"].as_str().unwrap().trim_end_matches('/')
    }

    /// Its address, `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.ready()["addr"].as_str().unwrap()
    }

    /// The key that its first start created.
    pub fn admin_key(&self) -> &str {
        &self.admin_key
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A directory for the test's files, deleted with the host.
    pub fn scratch(&self) -> &Path {
        self.folder.path()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Its output on standard error.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|log| String::from_utf8_lossy(&log).into())
            .unwrap_or_default()
    }

    /// A client with the admin key.
    pub fn client(&self) -> Client {
        let client = Client::new(self.url(), &self.admin_key);
        match &self.authority {
            Some(authority) => client.trusting(authority),
            None => client,
        }
    }

    /// A client with a key of this owner that has every scope but `admin`.
    pub async fn client_of(&self, owner: &str) -> Client {
        let key = json!({ "name": owner, "owner": owner, "scopes": ["manage", "submit"] });
        let made = self.client().post("/v1/keys", &key).await.ok();
        self.client().with_key(made["key"].as_str().unwrap())
    }

    /// Uploads a component as `reference`.
    pub async fn upload(&self, reference: &str, component: impl Into<Vec<u8>>) -> Answer {
        self.client().upload(reference, component).await
    }

    /// Deploys a handler on its own endpoint, with the id `name`. `settings` are fields of the
    /// endpoint or its template; `templateEnv` is the template's `env`.
    pub async fn deploy(&self, component: &Path, name: &str, settings: Value) -> String {
        let image = component.file_stem().unwrap().to_str().unwrap();
        {
            let mut uploaded = self.uploaded.lock().await;
            if uploaded.insert(component.to_owned()) {
                let bytes = fs::read(component).unwrap();
                self.upload(&format!("{image}:latest"), bytes).await.ok();
            }
        }
        self.deploy_image(&format!("{image}:latest"), name, settings).await
    }

    /// The same with an uploaded handler.
    pub async fn deploy_image(&self, image: &str, name: &str, settings: Value) -> String {
        self.client().deploy_image(image, name, settings).await
    }

    fn show_log_when_panicking(&self) {
        if thread::panicking() {
            let log = self.log();
            let skipped = log.lines().count().saturating_sub(40);
            let tail: Vec<_> = log.lines().skip(skipped).collect();
            eprintln!("--- the end of the host's log ---\n{}\n---", tail.join("\n"));
        }
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        self.show_log_when_panicking();
    }
}

/// The shared host of a test binary, for tests that neither stop it nor check its totals. Each of
/// them deploys its own endpoints.
#[derive(Debug)]
pub struct Shared {
    host: &'static TestHost,
    /// With the admin key; created for this test.
    pub client: Client,
}

impl Deref for Shared {
    type Target = TestHost;
    fn deref(&self) -> &TestHost {
        self.host
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.host.show_log_when_panicking();
    }
}

/// The host that all tests of this binary share.
pub fn shared_host() -> Shared {
    static HOST: OnceLock<TestHost> = OnceLock::new();
    let host = HOST.get_or_init(|| TestHost::elsewhere().unwrap_or_else(TestHost::start));
    Shared { host, client: host.client() }
}

/// A host whose clock only one test moves. Later tests reuse the host, which saves its start and
/// the compilation of handlers; a test that fails drops its host.
#[derive(Debug)]
pub struct Clocked {
    host: Option<TestHost>,
    /// With the admin key; created for this test.
    pub client: Client,
}

static FREE_CLOCKED: SyncMutex<Vec<TestHost>> = SyncMutex::new(vec![]);

/// A host whose clock this test moves.
pub fn clocked_host() -> Clocked {
    let free = FREE_CLOCKED.lock().unwrap().pop();
    let host = free.unwrap_or_else(|| TestHost::start_with_clock::<&str>(&[]));
    Clocked { client: host.client(), host: Some(host) }
}

impl Deref for Clocked {
    type Target = TestHost;
    fn deref(&self) -> &TestHost {
        self.host.as_ref().unwrap()
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        let host = self.host.take();
        if !thread::panicking() {
            FREE_CLOCKED.lock().unwrap().extend(host);
        }
    }
}
