//! `gristmill import`: moves the data of a host without a database into one that several hosts can
//! share.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use gristmill_commands::output;
use gristmill_store::{ImportStep, Imported};
use serde_json::json;

use crate::data_dir;
use crate::serve::Database;

/// The directory of network volumes in a data directory.
const VOLUMES: &str = "volumes";

/// The least time between two lines of progress.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);

/// Move the data of a host into an empty PostgreSQL database.
///
/// Moves jobs in every state with their ids, inputs and results, streams, webhooks, idempotency
/// keys, endpoints, templates, handlers, keys, secrets and usage. Network volumes, log lines and
/// charts are files, and are not moved. The host must be stopped. The database gets all of it or
/// nothing, and the files of the data directory stay as they are. A file `.imported` in it keeps
/// hosts from starting on it again, since they would run the same jobs.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// The database, as `postgres://USER:PASSWORD@HOST:PORT/NAME`.
    #[arg(long, value_name = "URL", env = "GRISTMILL_DATABASE", hide_env_values = true)]
    database: Database,

    /// The file with the key that stored secrets are encrypted with [default: secrets.key in the
    /// data directory].
    #[arg(long, value_name = "FILE")]
    secrets_key: Option<PathBuf>,

    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let ImportArgs { data_dir, database, secrets_key, json } = args;
    data_dir::check_exists(data_dir)?;
    let url = database.url();
    let mut noted_at = Instant::now();
    let mut on_step = |step: ImportStep| match step {
        ImportStep::Reading => output::note(format_args!("reading {}", data_dir.display())),
        ImportStep::Sending { jobs, all } => {
            if noted_at.elapsed() >= NOTE_INTERVAL {
                noted_at = Instant::now();
                let (jobs, all) = (output::grouped(jobs), output::grouped(all));
                output::note(format_args!("{jobs} of {all} jobs sent"));
            }
        }
        ImportStep::Committing => output::note("committing"),
    };
    let imported = gristmill_store::import(data_dir, secrets_key.as_deref(), url, &mut on_step);
    let imported =
        imported.with_context(|| format!("cannot import {} into {url}", data_dir.display()))?;
    match json {
        true => output::result(as_json(&imported))?,
        false => as_lines(&imported).into_iter().try_for_each(output::result)?,
    }
    output::note(format_args!(
        "start the hosts with --database and the same key file of stored secrets, each with a data directory of \
         its own; the file .imported keeps hosts from starting on {} again",
        data_dir.display()
    ));
    let volumes = data_dir.join(VOLUMES);
    if volumes.exists() {
        output::note(format_args!(
            "network volumes are not moved: copy {} to the data directories of the hosts",
            volumes.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(imported: &Imported) -> serde_json::Value {
    json!({
        "jobs": imported.jobs,
        "unfinishedJobs": imported.unfinished,
        "webhooks": imported.webhooks,
        "pendingWebhooks": imported.pending_webhooks,
        "idempotencyKeys": imported.idempotency_keys,
        "records": imported.records,
        "handlers": imported.components,
        "usageRows": imported.usage_rows,
        "jobActions": imported.job_actions,
    })
}

fn as_lines(imported: &Imported) -> Vec<String> {
    [
        (imported.jobs, format!("jobs, {} of them have not ended", imported.unfinished)),
        (imported.webhooks, format!("webhooks, {} of them wait", imported.pending_webhooks)),
        (imported.idempotency_keys, "idempotency keys".to_owned()),
        (
            imported.records,
            "records of endpoints, templates, handlers, keys and secrets".to_owned(),
        ),
        (imported.components, "handlers".to_owned()),
        (imported.usage_rows, "rows of usage".to_owned()),
        (imported.job_actions, "actions on many jobs".to_owned()),
    ]
    .map(|(count, name)| format!("{} {name}", output::grouped(count)))
    .into()
}
