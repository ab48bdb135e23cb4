//! The workloads of `make bench`. Each has its own host, so that none pays for another one's data.

#![expect(clippy::print_stdout, reason = "the figures are for the terminal")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;

use crate::arguments::BenchArguments;
use crate::call::Call;
use crate::drive::Figures;
use crate::host::{self, Host};
use crate::stored_jobs;
use crate::table::{print_head, print_row};

/// Names for `--only`, in the order in which they run.
const WORKS: [&str; 9] =
    ["runsync", "payloads", "run", "stream", "cpu", "wait", "endpoints", "health", "stored"];

/// Bytes of a payload, unless the row has another size.
pub(crate) const PAYLOAD_BYTES: usize = 256;

/// Chunks of a stream.
const CHUNKS: usize = 1_000;

/// Concurrent waiting jobs of the workload `wait`.
const WAITING: usize = 1_000;

/// Endpoints of the workload `endpoints`.
const ENDPOINTS: usize = 1_000;

/// The inputs of the workloads.
pub(crate) struct Bench<'a> {
    pub(crate) arguments: &'a BenchArguments,
}

/// Runs the selected workloads.
pub(crate) async fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    for name in &arguments.only {
        ensure!(WORKS.contains(&name.as_str()), "--only takes one of {}", WORKS.join(", "));
    }
    let bench = Bench { arguments };
    let host = bench.host(&[])?;
    println!("{}\n{}", host::machine(), host.describe());
    drop(host);
    println!(
        "payload {PAYLOAD_BYTES} B unless said, {} s each, load generator on the same cores\n",
        arguments.measured.as_secs()
    );
    print_head();
    for name in WORKS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        match name {
            "runsync" => bench.runsync().await?,
            "payloads" => bench.payloads().await?,
            "run" => bench.run().await?,
            "stream" => bench.stream().await?,
            "cpu" => bench.cpu().await?,
            "wait" => bench.wait().await?,
            "endpoints" => bench.endpoints().await?,
            "health" => bench.health().await?,
            _ => stored_jobs::measure(&bench).await?,
        }
    }
    Ok(())
}

impl Bench<'_> {
    /// A host with the echo handler as the endpoint `echo`.
    pub(crate) fn host(&self, options: &[&str]) -> anyhow::Result<Host> {
        let host = Host::start(&self.arguments.host, options)?;
        host.deploy(&self.handler("echo"), "echo", &[])?;
        Ok(host)
    }

    pub(crate) fn handler(&self, name: &str) -> PathBuf {
        self.arguments.handlers.join(name).with_extension("wasm")
    }

    /// Measures a call and prints its row.
    pub(crate) async fn row(
        &self,
        host: &Host,
        work: &str,
        connections: usize,
        call: &Call,
    ) -> anyhow::Result<()> {
        let figures = Figures::measure(host, call, connections, self.arguments.measured).await?;
        print_row(work, connections, &figures);
        Ok(())
    }

    async fn runsync(&self) -> anyhow::Result<()> {
        for connections in [1, 16, 64, 256] {
            let host = self.host(&[])?;
            let call = runsync(&host, "echo", &echo_body(PAYLOAD_BYTES));
            self.row(&host, "`/runsync` echo", connections, &call).await?;
        }
        Ok(())
    }

    async fn payloads(&self) -> anyhow::Result<()> {
        for (label, bytes, connections) in [("64 KiB", 64 << 10, 16), ("10 MiB", 10 << 20, 2)] {
            let host = self.host(&[])?;
            let call = runsync(&host, "echo", &echo_body(bytes));
            self.row(&host, &format!("`/runsync` echo, {label}"), connections, &call).await?;
        }
        Ok(())
    }

    async fn run(&self) -> anyhow::Result<()> {
        let host = self.host(&[])?;
        let submit = host.request("POST", "/v2/echo/run", &echo_body(PAYLOAD_BYTES));
        let call = Call::once(submit.clone(), "\"IN_QUEUE\"");
        self.row(&host, "`/run` echo, workers draining", 64, &call).await?;
        host.wait_until_idle("echo").await?;
        let call = Call::Polled { submit: submit.into(), job: host.job_paths("echo") };
        self.row(&host, "`/run`, `/status` each 2 ms until COMPLETED", 64, &call).await
    }

    async fn stream(&self) -> anyhow::Result<()> {
        let body = format!(r#"{{"input":{{"op":"stream","count":{CHUNKS}}}}}"#);
        for (label, is_sse) in [("array", false), ("SSE", true)] {
            let host = self.playground(&[], &[])?;
            let submit = host.request("POST", "/v2/playground/run", &body).into();
            let job = host.job_paths("playground");
            let call = Call::Streamed { submit, job, is_sse, chunks: CHUNKS };
            let figures = Figures::measure(&host, &call, 4, self.arguments.measured).await?;
            #[expect(clippy::cast_precision_loss, reason = "figures for people")]
            let chunks_per_s = figures.jobs_per_s * CHUNKS as f64;
            let work = format!("`/stream`, {CHUNKS} chunks, {label}: {chunks_per_s:.0} chunks/s");
            print_row(&work, 4, &figures);
        }
        Ok(())
    }

    async fn cpu(&self) -> anyhow::Result<()> {
        let host = self.playground(&[], &[])?;
        let call = runsync(&host, "playground", r#"{"input":{"op":"sha256","rounds":10000}}"#);
        self.row(&host, "`/runsync`, 10,000 SHA-256 in the handler", 16, &call).await
    }

    async fn wait(&self) -> anyhow::Result<()> {
        let most = WAITING.to_string();
        // Room for all jobs; each uses a small part of its memoryMib.
        let serve = ["--max-running-jobs", &most, "--max-sandbox-memory-mib", "1048576"];
        let host = self.playground(&serve, &["--workers-max", &most])?;
        let call = runsync(&host, "playground", r#"{"input":{"op":"sleep","ms":50}}"#);
        self.row(&host, "`/runsync`, the handler waits for 50 ms", WAITING, &call).await
    }

    async fn endpoints(&self) -> anyhow::Result<()> {
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

    async fn health(&self) -> anyhow::Result<()> {
        let host = self.playground(&[], &[])?;
        let cores = std::thread::available_parallelism()?.get();
        for _ in 0..cores {
            host.call("POST", "/v2/playground/run", r#"{"input":{"op":"spin"}}"#).await?;
        }
        while host.jobs("playground").await?["inProgress"] != cores {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let health = host.request("GET", "/v2/playground/health", "");
        let figures = Figures::measure(
            &host,
            &Call::once(health, "\"inProgress\""),
            1,
            self.arguments.measured,
        )
        .await?;
        // The handlers' processor time is not a cost of these calls.
        let figures = Figures { cost: None, ..figures };
        print_row("`/health` while a handler spins on each core", 1, &figures);
        Ok(())
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
