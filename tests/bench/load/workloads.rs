//! The workloads of `make bench`. Each has its own host, so that no workload is slowed down by the
//! data of another.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;

use crate::arguments::BenchArguments;
use crate::call::Call;
use crate::drive::Figures;
use crate::host::{self, Host};
use crate::stored_jobs;
use crate::table::{Measured, Row, print_head, print_row, print_waiting};

/// Names for `--only`, in the order in which they run.
const WORKLOADS: [&str; 9] =
    ["runsync", "payloads", "run", "stream", "cpu", "wait", "endpoints", "health", "stored"];

/// Bytes of a payload, unless the row has another size.
pub(crate) const PAYLOAD_BYTES: usize = 256;

/// Chunks of a stream.
const CHUNKS: usize = 1_000;

/// Concurrent waiting jobs of the workload `wait`.
const WAITING: usize = 1_000;

/// Endpoints of the workload `endpoints`.
const ENDPOINTS: usize = 1_000;

/// One host's program, and how it is measured.
pub(crate) struct Bench<'a> {
    pub(crate) host: &'a Path,
    pub(crate) arguments: &'a BenchArguments,
}

/// Runs the requested workloads, and prints the results of each when it has ended.
pub(crate) async fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    let bench = Bench { host: &arguments.host, arguments };
    let works = asked_for(arguments)?;
    bench.introduce()?;
    print_head();
    let mut waiting = Vec::new();
    for work in works {
        let measured = bench.perform(work).await?;
        measured.rows.iter().for_each(print_row);
        waiting.extend(measured.waiting);
    }
    print_waiting(&waiting);
    Ok(())
}

/// The workloads that `--only` names, or all.
///
/// # Errors
/// A name is unknown.
pub(crate) fn asked_for(arguments: &BenchArguments) -> anyhow::Result<Vec<&'static str>> {
    let only = &arguments.only;
    for name in only {
        ensure!(WORKLOADS.contains(&name.as_str()), "--only takes one of {}", WORKLOADS.join(", "));
    }
    let is_asked_for = |name: &&str| only.is_empty() || only.iter().any(|only| only == name);
    Ok(WORKLOADS.into_iter().filter(is_asked_for).collect())
}

impl Bench<'_> {
    /// Prints the measured machine and host.
    pub(crate) fn introduce(&self) -> anyhow::Result<()> {
        let host = self.host(&[])?;
        println!("{}\n{}", host::machine(), host.describe());
        println!(
            "payload {PAYLOAD_BYTES} B unless said, {} s each, load generator on the same cores\n",
            self.arguments.measured.as_secs()
        );
        Ok(())
    }

    /// Runs one of [`WORKLOADS`].
    pub(crate) async fn perform(&self, work: &str) -> anyhow::Result<Measured> {
        let rows = match work {
            "runsync" => self.runsync().await?,
            "payloads" => self.payloads().await?,
            "run" => self.run().await?,
            "stream" => self.stream().await?,
            "cpu" => vec![self.cpu().await?],
            "wait" => vec![self.wait().await?],
            "endpoints" => vec![self.endpoints().await?],
            "health" => vec![self.health().await?],
            _ => return stored_jobs::measure(self).await,
        };
        Ok(Measured { rows, waiting: Vec::new() })
    }

    /// A host with the echo handler as the endpoint `echo`.
    pub(crate) fn host(&self, options: &[&str]) -> anyhow::Result<Host> {
        let host = Host::start(self.host, options)?;
        host.deploy(&self.handler("echo"), "echo", &[])?;
        Ok(host)
    }

    pub(crate) fn handler(&self, name: &str) -> PathBuf {
        self.arguments.handlers.join(name).with_extension("wasm")
    }

    /// Measures a call.
    pub(crate) async fn row(
        &self,
        host: &Host,
        work: &str,
        connections: usize,
        call: &Call,
    ) -> anyhow::Result<Row> {
        let figures = Figures::measure(host, call, connections, self.arguments.measured).await?;
        Ok(Row { work: work.to_owned(), connections, figures })
    }

    async fn runsync(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for connections in [1, 16, 64, 256] {
            let host = self.host(&[])?;
            let call = runsync(&host, "echo", &echo_body(PAYLOAD_BYTES));
            rows.push(self.row(&host, "`/runsync` echo", connections, &call).await?);
        }
        Ok(rows)
    }

    async fn payloads(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (label, bytes, connections) in [("64 KiB", 64 << 10, 16), ("10 MiB", 10 << 20, 2)] {
            let host = self.host(&[])?;
            let call = runsync(&host, "echo", &echo_body(bytes));
            let work = format!("`/runsync` echo, {label}");
            rows.push(self.row(&host, &work, connections, &call).await?);
        }
        Ok(rows)
    }

    async fn run(&self) -> anyhow::Result<Vec<Row>> {
        let host = self.host(&[])?;
        let submit = host.request("POST", "/v2/echo/run", &echo_body(PAYLOAD_BYTES));
        let call = Call::once(submit.clone(), "\"IN_QUEUE\"");
        let submitted = self.row(&host, "`/run` echo, workers draining", 64, &call).await?;
        host.wait_until_idle("echo").await?;
        let call = Call::Polled { submit: submit.into(), job: host.job_paths("echo") };
        let polled = "`/run`, `/status` each 2 ms until COMPLETED";
        Ok(vec![submitted, self.row(&host, polled, 64, &call).await?])
    }

    async fn stream(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        let body = format!(r#"{{"input":{{"op":"stream","count":{CHUNKS}}}}}"#);
        for (label, is_sse) in [("array", false), ("SSE", true)] {
            let host = self.playground(&[], &[])?;
            let submit = host.request("POST", "/v2/playground/run", &body).into();
            let job = host.job_paths("playground");
            let call = Call::Streamed { submit, job, is_sse, chunks: CHUNKS };
            let work = format!("`/stream`, {CHUNKS} chunks, {label}");
            rows.push(self.row(&host, &work, 4, &call).await?);
        }
        Ok(rows)
    }

    async fn cpu(&self) -> anyhow::Result<Row> {
        let host = self.playground(&[], &[])?;
        let call = runsync(&host, "playground", r#"{"input":{"op":"sha256","rounds":10000}}"#);
        self.row(&host, "`/runsync`, 10,000 SHA-256 in the handler", 16, &call).await
    }

    async fn wait(&self) -> anyhow::Result<Row> {
        let most = WAITING.to_string();
        // Room for all jobs; each uses a small part of its memoryMib.
        let mut serve = vec!["--max-running-jobs", &most];
        let memory = "--max-sandbox-memory-mib"; // hosts before 22 November 2026 lack it
        if host::has_option(self.host, memory)? {
            serve.extend([memory, "1048576"]);
        }
        let host = self.playground(&serve, &["--workers-max", &most])?;
        let call = runsync(&host, "playground", r#"{"input":{"op":"sleep","ms":50}}"#);
        self.row(&host, "`/runsync`, the handler waits for 50 ms", WAITING, &call).await
    }

    async fn endpoints(&self) -> anyhow::Result<Row> {
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
        self.row(&host, "`/runsync` echo on 1,000 endpoints in turn", 64, &call).await
    }

    async fn health(&self) -> anyhow::Result<Row> {
        let host = self.playground(&[], &[])?;
        let cores = std::thread::available_parallelism()?.get();
        for _ in 0..cores {
            host.call("POST", "/v2/playground/run", r#"{"input":{"op":"spin"}}"#).await?;
        }
        while host.jobs("playground").await?["inProgress"] != cores {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let health = host.request("GET", "/v2/playground/health", "");
        let call = Call::once(health, "\"inProgress\"");
        let mut row =
            self.row(&host, "`/health` while a handler spins on each core", 1, &call).await?;
        // The spinning handlers' processor time is no cost of these calls.
        row.figures.cost = None;
        Ok(row)
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
