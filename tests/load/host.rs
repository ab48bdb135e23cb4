//! The host under load: started on an empty directory, watched from outside, killed at the end.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::connection::{Connection, request};

pub(crate) struct Host {
    process: Child,
    ready: Value,
    pub(crate) addr: String,
    pub(crate) key: String,
    binary: std::path::PathBuf,
    _data: tempfile::TempDir,
}

impl Host {
    pub(crate) fn start(binary: &Path) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        // Every call is still counted and compared; the limit is only out of reach.
        let config = data.path().join("load.toml");
        let out_of_reach = "calls-per-10s = 100000000\ncalls-per-worker = 0\n";
        let limits = ["run", "runsync"].map(|name| format!("[rate-limits.{name}]\n{out_of_reach}"));
        fs::write(&config, limits.concat())?;
        let mut process = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--json", "--data-dir"])
            .arg(data.path())
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("stdout")?).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line).context("the ready line is JSON")?;
        let text = |name: &str| {
            ready["ready"][name].as_str().map(str::to_owned).with_context(|| format!("`{name}`"))
        };
        let (addr, key) = (text("addr")?, text("adminKey")?);
        Ok(Self { process, addr, key, binary: binary.to_owned(), _data: data, ready })
    }

    pub(crate) fn deploy(&self, component: &Path, name: &str) -> anyhow::Result<()> {
        let output = Command::new(&self.binary)
            .env("GRISTMILL_URL", format!("http://{}", self.addr))
            .env("GRISTMILL_API_KEY", &self.key)
            .args(["deploy", "--json", "--name", name])
            .arg(component)
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The settings that the figures depend on.
    pub(crate) fn describe(&self) -> String {
        let ready = &self.ready["ready"];
        format!("gristmill {}, sandboxes: {}", ready["version"], ready["pool"])
    }

    /// Processor time that the host has used.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name may have spaces; the fields after it do not. utime and stime are 14 and 15.
        let fields: Vec<_> = stat.rsplit_once(')').context("stat")?.1.split(' ').collect();
        let ticks = fields[12].parse::<u64>()? + fields[13].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 10)) // 100 ticks a second on every Linux we know
    }

    pub(crate) fn resident_mib(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        Ok(line.split_whitespace().nth(1).context("VmRSS")?.parse::<u64>()? / 1024)
    }

    /// Transactions that the store has committed.
    pub(crate) async fn commits(&self) -> anyhow::Result<u64> {
        let text = self.get("/metrics").await?;
        let name = "gristmill_store_commits_total ";
        let value = text.lines().find_map(|line| line.strip_prefix(name)).context(name)?;
        Ok(value.parse()?)
    }

    pub(crate) async fn wait_until_idle(&self, endpoint: &str) -> anyhow::Result<()> {
        loop {
            let health: Value =
                serde_json::from_str(&self.get(&format!("/v2/{endpoint}/health")).await?)?;
            if health["jobs"]["inQueue"] == 0 && health["jobs"]["inProgress"] == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut connection = Connection::open(&self.addr).await?;
        let answer = connection.call(&request("GET", path, &self.key, "")).await?;
        Ok(String::from_utf8_lossy(answer.body).into_owned())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Nothing to be done about a process that is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the figures were measured on.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} cores, {}, Linux {}", model.map_or("unknown", |m| m.1), kernel.trim())
}
