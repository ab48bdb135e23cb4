//! `gristmill cluster`: the hosts that share the jobs.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::wire::management::{Cluster, ClusterHost};

use crate::output;
use crate::resource::CallArgs;

/// Show the hosts of a database.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// List the hosts with their roles, and with the jobs that each of them runs.
    ///
    /// Any host of the database can be asked. A standby is listed once it has connected to the
    /// active host. Needs a key of the operator with the scope metrics.
    Status(CallArgs),
}

pub(crate) async fn cluster(args: ClusterArgs) -> anyhow::Result<ExitCode> {
    let ClusterCommand::Status(call) = args.command;
    call.print(async |client| client.cluster().await, |cluster| table(&cluster)).await?;
    Ok(ExitCode::SUCCESS)
}

fn table(Cluster { hosts }: &Cluster) -> Vec<String> {
    let headings = ["ADDRESS", "ROLE", "RUNNING", "CORES", "VERSION", "SINCE"];
    let rows = hosts.iter().map(|host| {
        let ClusterHost { role, address, version, since, running, max_running, cores } = host;
        [
            address.as_deref().unwrap_or("-").to_owned(),
            role.as_str().to_owned(),
            format!("{} of {}", output::grouped(*running), output::grouped(*max_running)),
            output::grouped(*cores),
            version.clone(),
            since.clone(),
        ]
    });
    output::table(headings, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_in_columns() {
        let cluster = r#"{"hosts":[
            {"role":"active","address":"10.0.0.1:7000","version":"0.1.0","since":"2026-11-25T10:00:00Z",
             "running":256,"maxRunning":256,"cores":8},
            {"role":"standby","address":"10.0.0.2:7000","version":"0.1.0","since":"2026-11-25T10:05:00Z",
             "running":3,"maxRunning":1024,"cores":16},
            {"role":"active","version":"0.1.0","since":"2026-11-25T10:00:00Z","running":0,"maxRunning":256,
             "cores":8}]}"#;
        let expected = [
            "ADDRESS        ROLE     RUNNING     CORES  VERSION  SINCE",
            "10.0.0.1:7000  active   256 of 256  8      0.1.0    2026-11-25T10:00:00Z",
            "10.0.0.2:7000  standby  3 of 1 024  16     0.1.0    2026-11-25T10:05:00Z",
            "-              active   0 of 256    8      0.1.0    2026-11-25T10:00:00Z",
        ];
        assert_eq!(table(&serde_json::from_str(cluster).unwrap()), expected);
    }
}
