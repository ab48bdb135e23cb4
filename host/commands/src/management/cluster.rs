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
    let headings = ["ADDRESS", "ROLE", "RUNNING", "MEMORY", "CORES", "VERSION", "SINCE"];
    let rows = hosts.iter().map(|host| {
        let ClusterHost { role, address, version, since, running, max_running, cores, .. } = host;
        let [memory, max] = [host.memory_bytes, host.max_memory_bytes].map(output::size);
        [
            address.as_deref().unwrap_or("-").to_owned(),
            role.as_str().to_owned(),
            format!("{} of {}", output::grouped(*running), output::grouped(*max_running)),
            format!("{memory} of {max}"),
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
             "running":256,"maxRunning":256,"memoryBytes":1610612736,"maxMemoryBytes":16106127360,"cores":8},
            {"role":"standby","address":"10.0.0.2:7000","version":"0.1.0","since":"2026-11-25T10:05:00Z",
             "running":3,"maxRunning":1024,"memoryBytes":9437184,"maxMemoryBytes":32212254720,"cores":16},
            {"role":"active","version":"0.1.0","since":"2026-11-25T10:00:00Z","running":0,"maxRunning":256,
             "memoryBytes":0,"maxMemoryBytes":16106127360,"cores":8}]}"#;
        let expected = [
            "ADDRESS        ROLE     RUNNING     MEMORY               CORES  VERSION  SINCE",
            "10.0.0.1:7000  active   256 of 256  1.5 GiB of 15.0 GiB  8      0.1.0    2026-11-25T10:00:00Z",
            "10.0.0.2:7000  standby  3 of 1 024  9.0 MiB of 30.0 GiB  16     0.1.0    2026-11-25T10:05:00Z",
            "-              active   0 of 256    0 bytes of 15.0 GiB  8      0.1.0    2026-11-25T10:00:00Z",
        ];
        assert_eq!(table(&serde_json::from_str(cluster).unwrap()), expected);
    }
}
