//! `gristmill dev`: a project on its own host, built and deployed again after each change.
//!
//! The program serves the host in this process, without keys and only on loopback. A new build is a
//! new version of the endpoint: running jobs finish on the old version, and waiting jobs run on the
//! new one. While a build fails, the host serves the last good build.

mod event_log;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::future::LocalBoxFuture;
use gristmill_client::{Client, Retries};
use gristmill_commands::arguments::parse;
use gristmill_commands::output;
use gristmill_core::signals::event_notice::JobListener;
use tempfile::TempDir;

use self::event_log::EventLog;
use self::watch::Changes;
use super::build::{self, BuildOptions, Built, Missing};
use super::deploy::{Deployable, is_http};
use super::project::Project;
use crate::temporary::temporary;

/// The default address.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Serve a project on this machine, and build and deploy it again after each change.
///
/// Serves the APIs of `gristmill serve` only on this machine, and needs no key; a handler of HTTP
/// answers below /http/NAME/. Shows the progress of each job and the log of the handler. Ends on
/// SIGINT or SIGTERM.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// The project [default: the current directory].
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Loopback address and port to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::address, default_value_t = LISTEN)]
    listen: SocketAddr,
    /// The directory for jobs and handlers [default: a temporary directory, removed at the end].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    options: BuildOptions,
}

/// A task beside the host in the same process, which observes it.
pub struct DevHook {
    /// Receives the events of jobs, with the stacks of handlers that trap.
    pub listener: Arc<dyn JobListener>,
    /// Starts when the host serves this address. The host stops when this ends, and this is dropped
    /// when the host stops.
    pub work: Box<dyn FnOnce(SocketAddr) -> LocalBoxFuture<'static, anyhow::Result<()>>>,
}

impl std::fmt::Debug for DevHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevHook").finish_non_exhaustive()
    }
}

/// Carries out `gristmill dev`. `serve` runs a host at a loopback address on a data directory,
/// until its hook or a signal ends it.
///
/// # Errors
/// Faults of the project that no change of it can remove, and those of `serve`.
pub fn dev(
    args: DevArgs,
    serve: impl FnOnce(SocketAddr, PathBuf, DevHook) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let dir = args.dir.unwrap_or_else(|| PathBuf::from("."));
    // Before anything is started, so that faults of the project are reported at once.
    build::open(Some(&dir))?;
    let data = Data::new(args.data_dir)?;
    let event_log = EventLog::start()?;
    let data_dir = data.dir.clone();
    let mut session = Session { dir, data_dir: data.dir, options: args.options, deployed: None };
    let dev_hook = DevHook {
        listener: event_log.listener(),
        work: Box::new(move |addr| Box::pin(async move { session.run(addr).await })),
    };
    let outcome = serve(args.listen, data_dir, dev_hook);
    event_log.finish();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// The directory of the host's data.
struct Data {
    dir: PathBuf,
    _temporary: Option<TempDir>,
}

impl Data {
    fn new(given: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(dir) = given {
            return Ok(Self { dir, _temporary: None });
        }
        let temporary = temporary("gristmill-dev-");
        let temporary = temporary.context("cannot create a directory for the host's data")?;
        Ok(Self { dir: temporary.path().to_owned(), _temporary: Some(temporary) })
    }
}

/// A project that is built and deployed repeatedly.
struct Session {
    dir: PathBuf,
    data_dir: PathBuf,
    options: BuildOptions,
    /// The endpoint's present deployment.
    deployed: Option<(Project, bytes::Bytes)>,
}

impl Session {
    async fn run(&mut self, addr: SocketAddr) -> anyhow::Result<()> {
        let url = format!("http://{addr}");
        let client = Client::builder(url.parse()?).retries(Retries::NONE).build()?;
        let mut changes = Changes::of(&self.dir, &self.data_dir)?;
        loop {
            let renewed = self.renew(&client, &url).await;
            let had_effect = matches!(renewed, Ok(true));
            if let Err(error) = renewed {
                // No change of the project installs a missing tool, so the developer must start
                // again.
                if self.deployed.is_none() && error.is::<Missing>() {
                    bail!(error);
                }
                output::error(format_args!("{error:#}"));
                output::note(match self.deployed {
                    Some(_) => "the last good build is served on; waiting for a change",
                    None => "nothing is served yet; waiting for a change",
                });
            }
            let changed = changes.next(had_effect).await?;
            output::note(format_args!("\nchanged: {}", changed.display()));
        }
    }

    /// Builds the project, and deploys it if it has changed; returns whether it has.
    async fn renew(&mut self, client: &Client, url: &str) -> anyhow::Result<bool> {
        let project = build::open(Some(&self.dir))?;
        let Built { component, took, .. } = build::build(&project, &self.options).await?;
        let (name, seconds) = (project.handler.name.clone(), took.as_secs_f64());
        let size = output::size(component.len() as u64);
        if self
            .deployed
            .as_ref()
            .is_some_and(|(last, bytes)| (last, bytes) == (&project, &component))
        {
            output::note(format_args!("built {name} in {seconds:.1} s: nothing is new"));
            return Ok(false);
        }
        let started = Instant::now();
        // No command line sets anything at this endpoint, so the project is all that it has.
        let whole = project.clone().with_all_tables();
        let (handler, _) = Deployable::of_project(&whole, component.clone()).put(client).await?;
        let swap = started.elapsed().as_millis();
        output::note(format_args!("built {name} in {seconds:.1} s, {size}; deployed in {swap} ms"));
        if self.deployed.is_none() {
            greet(&project, is_http(&handler), url)?;
        }
        self.deployed = Some((project, component));
        Ok(true)
    }
}

/// Prints the handler's address, and an example call.
fn greet(project: &Project, is_http: bool, url: &str) -> anyhow::Result<()> {
    let name = &project.handler.name;
    if is_http {
        let own = format!("{url}/http/{name}/");
        output::result(format_args!("serving {name} on {own}, no key needed"))?;
        output::note(format_args!(
            "  curl -i {own}\nwaiting for requests and changes; Ctrl-C ends it"
        ));
        return Ok(());
    }
    output::result(format_args!("serving {name} on {url}/v2/{name}, no key needed"))?;
    let input = example(&project.dir).unwrap_or_else(|| "{}".to_owned());
    let body = format!("{{\"input\":{input}}}").replace('\'', r"'\''");
    output::note(format_args!(
        "  curl -H 'Content-Type: application/json' -d '{body}' {url}/v2/{name}/runsync\n\
         waiting for jobs and changes; Ctrl-C ends it"
    ));
    Ok(())
}

/// The input in the project's test_input.json, on one line.
fn example(dir: &Path) -> Option<String> {
    let text = std::fs::read(dir.join("test_input.json")).ok()?;
    let document: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(document.get("input")?.to_string())
}
