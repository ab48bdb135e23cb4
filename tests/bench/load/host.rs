//! The host under load: started on an empty directory, observed from outside, killed at the end.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::call::JobPaths;
use crate::connection::{Connection, request};

/// Every call is still counted and compared; the limits are only too high to matter.
const OUT_OF_REACH: &str = "calls-per-10s = 100000000\nconcurrent = 100000\ncalls-per-worker = 0\n";

pub(crate) struct Host {
    process: Process,
    ready: Value,
    pub(crate) addr: String,
    key: String,
    /// Time from the start of the process until it answered calls.
    pub(crate) ready_after: Duration,
    start: Start,
}

/// The command line of its start.
struct Start {
    binary: PathBuf,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    data: tempfile::TempDir,
}

/// Killed when it is dropped.
struct Process(Child);

impl Host {
    /// Starts the host on an empty directory, with `options` beside the limits, and with these
    /// variables beside the environment of this process.
    pub(crate) fn start(
        binary: &Path,
        options: &[&str],
        environment: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let private = fs::Permissions::from_mode(0o700);
        let start = Start {
            binary: binary.to_owned(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            environment: environment.to_vec(),
            data: tempfile::Builder::new().permissions(private).tempdir()?,
        };
        let limits = ["run", "runsync", "status", "stream"]
            .map(|operation| format!("[rate-limits.{operation}]\n{OUT_OF_REACH}"));
        fs::write(start.data.path().join("load.toml"), limits.concat())?;
        Self::start_on(start)
    }

    /// Kills the host and starts it on the same data.
    pub(crate) fn restart(self) -> anyhow::Result<Self> {
        drop(self.process);
        Self::start_on(self.start)
    }

    fn start_on(start: Start) -> anyhow::Result<Self> {
        let started = Instant::now();
        let data = start.data.path();
        let mut process = Process(
            Command::new(&start.binary)
                .args(["serve", "--listen", "127.0.0.1:0", "--json", "--log", "warn", "--data-dir"])
                .arg(data)
                .arg("--config")
                .arg(data.join("load.toml"))
                .args(&start.options)
                .envs(start.environment.iter().map(|(name, value)| (name, value)))
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .spawn()
                .with_context(|| format!("start {}", start.binary.display()))?,
        );
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().context("stdout")?).read_line(&mut line)?;
        let ready_after = started.elapsed();
        let mut ready: Value = serde_json::from_str(&line).context("the ready line is JSON")?;
        let ready = ready["ready"].take();
        let addr = ready["addr"].as_str().context("`addr`")?.to_owned();
        let key = fs::read_to_string(data.join("admin.key"))?.trim().to_owned();
        Ok(Self { process, ready, addr, key, ready_after, start })
    }

    /// Creates or changes the endpoint NAME with the options of `gristmill deploy`.
    pub(crate) fn deploy(
        &self,
        component: &Path,
        name: &str,
        options: &[&str],
    ) -> anyhow::Result<()> {
        let output = Command::new(&self.start.binary)
            .env("GRISTMILL_URL", format!("http://{}", self.addr))
            .env("GRISTMILL_API_KEY", &self.key)
            .args(["deploy", "--json", "--name", name])
            .args(options)
            .arg(component)
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The settings that the figures depend on.
    pub(crate) fn describe(&self) -> String {
        format!("gristmill {}, sandboxes: {}", self.ready["version"], self.ready["pool"])
    }

    /// Processor time that the host has used.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.0.id()))?;
        // The name may have spaces; the fields after it do not. utime and stime are 14 and 15.
        let fields: Vec<_> = stat.rsplit_once(')').context("stat")?.1.split(' ').collect();
        let ticks = fields[12].parse::<u64>()? + fields[13].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 10)) // 100 ticks a second on every Linux we know
    }

    /// Memory that the host holds.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        self.status("VmRSS:")
    }

    /// Threads of the host.
    pub(crate) fn threads(&self) -> anyhow::Result<u64> {
        self.status("Threads:")
    }

    fn status(&self, name: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id()))?;
        let line = status.lines().find(|line| line.starts_with(name)).context("a line")?;
        Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
    }

    /// Files that the host has open, connections among them.
    pub(crate) fn open_files(&self) -> anyhow::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.process.0.id()))?.count())
    }

    /// Its data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        self.start.data.path()
    }

    /// Transactions that the store has committed.
    pub(crate) async fn commits(&self) -> anyhow::Result<u64> {
        let text = self.call("GET", "/metrics", "").await?;
        let name = "gristmill_store_commits_total ";
        let value = text.lines().find_map(|line| line.strip_prefix(name)).context(name)?;
        Ok(value.parse()?)
    }

    /// The numbers of the endpoint's jobs.
    pub(crate) async fn jobs(&self, endpoint: &str) -> anyhow::Result<Value> {
        let health = self.call("GET", &format!("/v2/{endpoint}/health"), "").await?;
        Ok(serde_json::from_str::<Value>(&health)?["jobs"].take())
    }

    pub(crate) async fn wait_until_idle(&self, endpoint: &str) -> anyhow::Result<()> {
        loop {
            let jobs = self.jobs(endpoint).await?;
            if jobs["inQueue"] == 0 && jobs["inProgress"] == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// One call, which must succeed. Waits for the limit of management calls, 1,000 in 10 s.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<String> {
        let mut connection = Connection::open(&self.addr).await?;
        let request = self.request(method, path, body);
        loop {
            let answer = connection.call(&request).await?;
            if answer.status == 429 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            let text = String::from_utf8_lossy(answer.body).into_owned();
            ensure!(answer.status == 200, "{method} {path}: {} {text}", answer.status);
            return Ok(text);
        }
    }

    /// A request with the host's key, written out.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        request(method, path, &self.headers(), body)
    }

    /// The requests about an endpoint's jobs.
    pub(crate) fn job_paths(&self, endpoint: &str) -> JobPaths {
        JobPaths { endpoint: endpoint.to_owned(), headers: self.headers() }
    }

    fn headers(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.key)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended already cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the program's `serve` has this option.
pub(crate) fn has_option(program: &Path, option: &str) -> anyhow::Result<bool> {
    let help = Command::new(program).args(["serve", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains(option))
}

/// The machine of the figures.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} cores, {}, Linux {}", model.map_or("unknown", |m| m.1), kernel.trim())
}
