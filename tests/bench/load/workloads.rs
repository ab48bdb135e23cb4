//! The workloads of `make bench`. Each row of the table has its own host, so that no row is slowed
//! down by the data of another.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;

use crate::arguments::BenchArguments;
use crate::call::Call;
use crate::drive::Figures;
use crate::host::{self, Host};
use crate::stored_jobs;
use crate::table::{Row, print_head, print_row, print_waiting};

/// Bytes of a payload, unless the row has another size.
pub(crate) const PAYLOAD_BYTES: usize = 256;

/// Chunks of a stream.
const CHUNKS: usize = 1_000;

/// Concurrent waiting jobs of [`Work::Wait`].
const WAITING: usize = 1_000;

/// Endpoints of [`Work::Endpoints`].
const ENDPOINTS: usize = 1_000;

/// Connections of a row, unless the row is about another number.
pub(crate) const CONNECTIONS: usize = 64;

/// The repeated call of one row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// `/runsync` of the echo handler.
    Echo { connections: usize },
    /// The same with a larger payload.
    Payload { size: &'static str, bytes: usize, connections: usize },
    /// `/run`, while workers run the jobs.
    Run,
    /// `/run`, and `/status` until the job has ended.
    Polled,
    /// `/run`, and `/stream` to the end.
    Stream { form: &'static str, is_sse: bool },
    /// A handler that computes.
    Sha256,
    /// Handlers that wait.
    Wait,
    /// `/runsync` on many endpoints in turn.
    Endpoints,
    /// `/health`, while handlers use every core.
    Health,
    /// `/run` onto so many waiting jobs.
    Stored { waiting: usize },
}

/// Names for `--only`, each with the rows of the table, in the order in which they run.
const WORKLOADS: [(&str, &[Work]); 9] = [
    (
        "runsync",
        &[
            Work::Echo { connections: 1 },
            Work::Echo { connections: 16 },
            Work::Echo { connections: CONNECTIONS },
            Work::Echo { connections: 256 },
        ],
    ),
    (
        "payloads",
        &[
            Work::Payload { size: "64 KiB", bytes: 64 << 10, connections: 16 },
            Work::Payload { size: "10 MiB", bytes: 10 << 20, connections: 2 },
        ],
    ),
    ("run", &[Work::Run, Work::Polled]),
    (
        "stream",
        &[
            Work::Stream { form: "array", is_sse: false },
            Work::Stream { form: "SSE", is_sse: true },
        ],
    ),
    ("cpu", &[Work::Sha256]),
    ("wait", &[Work::Wait]),
    ("endpoints", &[Work::Endpoints]),
    ("health", &[Work::Health]),
    ("stored", &[Work::Stored { waiting: 0 }, Work::Stored { waiting: 10_000 }]),
];

/// The row that `--long` adds to the workload `stored`.
const LONG: Work = Work::Stored { waiting: 1_000_000 };

/// One host's program, and how it is measured.
pub(crate) struct Bench<'a> {
    pub(crate) host: &'a Path,
    /// The directory of the components.
    pub(crate) handlers: &'a Path,
    /// Variables of the host's environment, beside those of this process.
    pub(crate) environment: &'a [(String, String)],
}

/// A host that is ready for a work.
pub(crate) struct Prepared {
    pub(crate) host: Host,
    pub(crate) call: Call,
    /// The row of the table of waiting jobs, which only [`Work::Stored`] has.
    pub(crate) waiting: Option<String>,
}

impl Prepared {
    pub(crate) fn new(host: Host, call: Call) -> Self {
        Self { host, call, waiting: None }
    }
}

/// Runs the requested workloads, and prints the results of each when it has ended.
pub(crate) async fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    let bench = Bench::new(arguments);
    let works = asked_for(arguments)?;
    bench.introduce()?;
    println!("{} s each\n", arguments.measured.as_secs());
    print_head();
    let mut waiting = Vec::new();
    for work in works {
        let prepared = bench.prepare(work).await?;
        let mut figures = Figures::measure(
            &prepared.host,
            &prepared.call,
            work.connections(),
            arguments.measured,
        )
        .await?;
        if !work.has_cost() {
            figures.cost = None;
        }
        print_row(&Row { work: work.label(), connections: work.connections(), figures });
        waiting.extend(prepared.waiting);
    }
    print_waiting(&waiting);
    Ok(())
}

/// The rows of the workloads that `--only` names, or of all, which have the given number of
/// connections.
///
/// # Errors
/// A name is unknown, or no row has so many connections.
pub(crate) fn asked_for(arguments: &BenchArguments) -> anyhow::Result<Vec<Work>> {
    let BenchArguments { only, connections, is_long, .. } = arguments;
    let names = WORKLOADS.map(|(name, _)| name);
    for name in only {
        ensure!(names.contains(&name.as_str()), "--only takes one of {}", names.join(", "));
    }
    let is_asked_for = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let mut works = Vec::new();
    for (name, rows) in WORKLOADS {
        if is_asked_for(name) {
            works.extend(rows);
        }
    }
    if *is_long && is_asked_for("stored") {
        works.push(LONG);
    }
    if let Some(connections) = *connections {
        works.retain(|work| work.connections() == connections);
        ensure!(!works.is_empty(), "no row has {connections} connections");
    }
    Ok(works)
}

impl Work {
    /// The work in words, the same in every run.
    pub(crate) fn label(self) -> String {
        match self {
            Self::Echo { .. } => "`/runsync` echo".into(),
            Self::Payload { size, .. } => format!("`/runsync` echo, {size}"),
            Self::Run => "`/run` echo, workers draining".into(),
            Self::Polled => "`/run`, `/status` each 2 ms until COMPLETED".into(),
            Self::Stream { form, .. } => format!("`/stream`, {CHUNKS} chunks, {form}"),
            Self::Sha256 => "`/runsync`, 10,000 SHA-256 in the handler".into(),
            Self::Wait => "`/runsync`, the handler waits for 50 ms".into(),
            Self::Endpoints => "`/runsync` echo on 1,000 endpoints in turn".into(),
            Self::Health => "`/health` while a handler spins on each core".into(),
            Self::Stored { waiting } => format!("`/run` onto {waiting} waiting jobs, no worker"),
        }
    }

    pub(crate) fn connections(self) -> usize {
        match self {
            Self::Echo { connections } | Self::Payload { connections, .. } => connections,
            Self::Run | Self::Polled | Self::Endpoints | Self::Stored { .. } => CONNECTIONS,
            Self::Stream { .. } => 4,
            Self::Sha256 => 16,
            Self::Wait => WAITING,
            Self::Health => 1,
        }
    }

    /// Whether the host's processor time is a cost of the calls: that of spinning handlers is not.
    pub(crate) fn has_cost(self) -> bool {
        !matches!(self, Self::Health)
    }
}

impl<'a> Bench<'a> {
    pub(crate) fn new(arguments: &'a BenchArguments) -> Self {
        let BenchArguments { host, handlers, .. } = arguments;
        Self { host, handlers, environment: &[] }
    }

    /// Prints the measured machine and host.
    pub(crate) fn introduce(&self) -> anyhow::Result<()> {
        let host = self.host(&[])?;
        println!("{}\n{}", host::machine(), host.describe());
        println!("payload {PAYLOAD_BYTES} B unless said, load generator on the same cores");
        Ok(())
    }

    /// Starts a host for a work.
    pub(crate) async fn prepare(&self, work: Work) -> anyhow::Result<Prepared> {
        match work {
            Work::Echo { .. } => self.echo(PAYLOAD_BYTES),
            Work::Payload { bytes, .. } => self.echo(bytes),
            Work::Run => {
                let host = self.host(&[])?;
                let submit = host.request("POST", "/v2/echo/run", &echo_body(PAYLOAD_BYTES));
                Ok(Prepared::new(host, Call::once(submit, "\"IN_QUEUE\"")))
            }
            Work::Polled => {
                let host = self.host(&[])?;
                let submit = host.request("POST", "/v2/echo/run", &echo_body(PAYLOAD_BYTES)).into();
                let job = host.job_paths("echo");
                Ok(Prepared::new(host, Call::Polled { submit, job }))
            }
            Work::Stream { is_sse, .. } => self.stream(is_sse),
            Work::Sha256 => {
                let host = self.playground(&[], &[])?;
                let body = r#"{"input":{"op":"sha256","rounds":10000}}"#;
                let call = runsync(&host, "playground", body);
                Ok(Prepared::new(host, call))
            }
            Work::Wait => self.wait(),
            Work::Endpoints => self.endpoints().await,
            Work::Health => self.health().await,
            Work::Stored { waiting } => stored_jobs::prepare(self, waiting).await,
        }
    }

    /// A host with the echo handler as the endpoint `echo`.
    pub(crate) fn host(&self, options: &[&str]) -> anyhow::Result<Host> {
        let host = Host::start(self.host, options, self.environment)?;
        host.deploy(&self.handler("echo"), "echo", &[])?;
        Ok(host)
    }

    pub(crate) fn handler(&self, name: &str) -> PathBuf {
        self.handlers.join(name).with_extension("wasm")
    }

    fn echo(&self, bytes: usize) -> anyhow::Result<Prepared> {
        let host = self.host(&[])?;
        let call = runsync(&host, "echo", &echo_body(bytes));
        Ok(Prepared::new(host, call))
    }

    fn stream(&self, is_sse: bool) -> anyhow::Result<Prepared> {
        let body = format!(r#"{{"input":{{"op":"stream","count":{CHUNKS}}}}}"#);
        let host = self.playground(&[], &[])?;
        let submit = host.request("POST", "/v2/playground/run", &body).into();
        let job = host.job_paths("playground");
        Ok(Prepared::new(host, Call::Streamed { submit, job, is_sse, chunks: CHUNKS }))
    }

    fn wait(&self) -> anyhow::Result<Prepared> {
        let most = WAITING.to_string();
        // Room for all jobs; each uses a small part of its memoryMib.
        let mut serve = vec!["--max-running-jobs", &most];
        let memory = "--max-sandbox-memory-mib"; // hosts before 22 November 2026 lack it
        if host::has_option(self.host, memory)? {
            serve.extend([memory, "1048576"]);
        }
        let host = self.playground(&serve, &["--workers-max", &most])?;
        let call = runsync(&host, "playground", r#"{"input":{"op":"sleep","ms":50}}"#);
        Ok(Prepared::new(host, call))
    }

    async fn endpoints(&self) -> anyhow::Result<Prepared> {
        let host = self.host(&[])?;
        let mut requests = Vec::with_capacity(ENDPOINTS);
        for number in 0..ENDPOINTS {
            let endpoint = format!("echo-{number}");
            let body = format!(r#"{{"id":"{endpoint}","templateId":"echo"}}"#);
            host.call("POST", "/v1/endpoints", &body).await?;
            let path = format!("/v2/{endpoint}/runsync");
            requests.push(host.request("POST", &path, &echo_body(PAYLOAD_BYTES)));
        }
        let call = Call::Once { requests: requests.into(), expected: "\"COMPLETED\"".into() };
        Ok(Prepared::new(host, call))
    }

    async fn health(&self) -> anyhow::Result<Prepared> {
        let host = self.playground(&[], &[])?;
        let cores = std::thread::available_parallelism()?.get();
        for _ in 0..cores {
            host.call("POST", "/v2/playground/run", r#"{"input":{"op":"spin"}}"#).await?;
        }
        while host.jobs("playground").await?["inProgress"] != cores {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let health = host.request("GET", "/v2/playground/health", "");
        Ok(Prepared::new(host, Call::once(health, "\"inProgress\"")))
    }

    fn playground(&self, options: &[&str], deploy: &[&str]) -> anyhow::Result<Host> {
        let host = self.host(options)?;
        host.deploy(&self.handler("playground"), "playground", deploy)?;
        Ok(host)
    }
}

/// A job whose result the call waits for.
pub(crate) fn runsync(host: &Host, endpoint: &str, body: &str) -> Call {
    Call::once(host.request("POST", &format!("/v2/{endpoint}/runsync"), body), "\"COMPLETED\"")
}

/// A submission whose input has this many bytes.
pub(crate) fn echo_body(bytes: usize) -> String {
    let text = "x".repeat(bytes - r#"{"text":""}"#.len());
    format!(r#"{{"input":{{"text":"{text}"}}}}"#)
}
