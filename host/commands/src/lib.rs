//! The commands that only call a host over HTTP ([`ClientCommand`]), and the parts that they share
//! with the other commands of `gristmill`: arguments, output, and calls that are repeated.
//!
//! **Promises.** They use `gristmill-client` and none of the host's own crates, so the program
//! `gristmill-client` needs neither wasmtime nor SQLite; a test checks the manifest
//! ([`structure.rs`](../../../tests/product/e2e/structure.rs)). Standard output carries only
//! results; progress, notes and errors are written to standard error ([`output`]). The exit code is
//! 0 when the command succeeded, 1 when it failed, and 2 when the command line itself is invalid.
//!
//! **Bounds.** Those of the client's answers; inputs and components are read up to the host's own
//! bounds.

pub mod arguments;
pub mod calls;
mod completions;
mod jobs;
mod management;
pub mod output;
mod resource;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;

pub use jobs::submit::{POLL_WAIT, Waiting};

use jobs::{health, job, logs, requests, stream, submit, timeline};
use management::{
    billing, cluster, console, endpoints, handlers, keys, registry_auths, schedules, secrets,
    templates, volumes,
};

/// The end of a program's help: where its commands find their host and their key.
pub const HOW_TO_CONNECT: &str = "Client commands find their host with --url or GRISTMILL_URL, and their key with \
     --api-key, GRISTMILL_API_KEY or the admin.key in the data directory.";

/// The commands that only `gristmill` has, since they need more than a host to call.
pub const COMMANDS_OF_GRISTMILL: [&str; 13] = [
    "serve",
    "deploy",
    "new",
    "upgrade-sdk",
    "build",
    "dev",
    "run",
    "test",
    "backup",
    "restore",
    "check",
    "repair",
    "import",
];

/// A command that only calls a host.
#[expect(missing_docs, reason = "the docs of a command are those of its arguments")]
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    Submit(Box<submit::SubmitArgs>),
    /// Show a job: its state, its times, and its result.
    Status(job::JobArgs),
    /// Show what happened to a job, and when: its attempts, and those to send its webhook.
    Timeline(job::JobArgs),
    Stream(stream::StreamArgs),
    /// Cancel a job: stop a running job, or remove a waiting job from the queue.
    Cancel(job::JobArgs),
    /// Queue a job that is FAILED or TIMED_OUT again, with its id and its input.
    Retry(job::JobArgs),
    /// Remove all waiting jobs of an endpoint; running jobs continue.
    Purge(health::EndpointArgs),
    /// Count an endpoint's jobs and workers, or ask whether the host is ready.
    Health(health::HealthArgs),
    Requests(requests::RequestsArgs),
    Jobs(jobs::list::JobsArgs),
    Logs(Box<logs::LogsArgs>),
    Console(console::ConsoleArgs),
    Templates(templates::TemplatesArgs),
    Endpoints(endpoints::EndpointsArgs),
    Handlers(Box<handlers::HandlersArgs>),
    RegistryAuths(registry_auths::RegistryAuthsArgs),
    Schedules(Box<schedules::SchedulesArgs>),
    Keys(keys::KeysArgs),
    Billing(Box<billing::BillingArgs>),
    Volumes(volumes::VolumesArgs),
    Secrets(secrets::SecretsArgs),
    Cluster(cluster::ClusterArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

impl ClientCommand {
    /// Calls the host, and writes the result to standard output. `program` makes the command line
    /// that it is a part of.
    ///
    /// # Errors
    /// When the arguments contradict each other, the call fails, or the output cannot be written.
    pub async fn execute(self, program: fn() -> clap::Command) -> anyhow::Result<ExitCode> {
        match self {
            Self::Submit(args) => submit::submit(*args).await,
            Self::Status(args) => job::status(args).await,
            Self::Timeline(args) => timeline::timeline(args).await,
            Self::Stream(args) => stream::stream(args).await,
            Self::Cancel(args) => job::cancel(args).await,
            Self::Retry(args) => job::retry(args).await,
            Self::Purge(args) => health::purge(args).await,
            Self::Health(args) => health::health(args).await,
            Self::Requests(args) => requests::requests(args).await,
            Self::Jobs(args) => jobs::list::jobs(args).await,
            Self::Logs(args) => logs::logs(*args).await,
            Self::Console(args) => console::console(args).await,
            Self::Templates(args) => templates::templates(args).await,
            Self::Endpoints(args) => endpoints::endpoints(args).await,
            Self::Handlers(args) => handlers::handlers(*args).await,
            Self::RegistryAuths(args) => registry_auths::registry_auths(args).await,
            Self::Schedules(args) => schedules::schedules(*args).await,
            Self::Keys(args) => keys::keys(args).await,
            Self::Billing(args) => billing::billing(*args).await,
            Self::Volumes(args) => volumes::volumes(args).await,
            Self::Secrets(args) => secrets::secrets(args).await,
            Self::Cluster(args) => cluster::cluster(args).await,
            Self::Completions(args) => completions::completions(&args, &program()),
            Self::Man(args) => completions::man(&args, program()),
        }
    }
}

/// Runs a command to its end on this thread.
///
/// # Errors
/// Those of the command, and when the async runtime cannot start.
pub fn block_on(
    command: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(command)
}

/// Shows the help, the version or the mistake of a command line, and returns the exit code.
pub fn show(answer: &clap::Error) -> ExitCode {
    let shown = answer.print().context("cannot write the help");
    match u8::try_from(answer.exit_code()) {
        Ok(0) => exit_code(shown.map(|()| ExitCode::SUCCESS)),
        code => code.map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

/// The exit code of a command that has ended; its error is written to standard error, with advice.
pub fn exit_code(ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        // The reader of our output has closed it, as `head` does.
        if !output::is_broken_pipe(&error) {
            output::error(calls::describe(&error));
        }
        ExitCode::FAILURE
    })
}
