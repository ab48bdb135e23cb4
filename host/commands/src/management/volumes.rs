//! `gristmill volumes`: creates, lists, shows, changes and deletes network volumes, and copies
//! their files.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use gristmill_client::Client;
use gristmill_client::wire::bounds::VOLUME_GB;
use gristmill_client::wire::id::VolumeId;
use gristmill_client::wire::management::{NetworkVolume, NetworkVolumeInput, NewNetworkVolume};

use super::volume_files::{self, CpArgs, LsArgs, RmArgs};
use crate::arguments::ConnectionArgs;
use crate::arguments::parse;
use crate::output;
use crate::resource::{self, CallArgs};

/// Create, list, show, change and delete network volumes: persistent directories for handlers; copy
/// files to them and from them.
#[derive(Debug, Args)]
pub struct VolumesArgs {
    #[command(subcommand)]
    command: VolumesCommand,
}

#[derive(Debug, Subcommand)]
enum VolumesCommand {
    Create(CreateArgs),
    /// List all network volumes.
    List(CallArgs),
    Get(GetArgs),
    Update(UpdateArgs),
    Delete(DeleteArgs),
    Ls(LsArgs),
    Cp(CpArgs),
    Rm(RmArgs),
}

/// Create a network volume and print its id. An endpoint uses it with `deploy --volume`.
#[derive(Debug, Args)]
struct CreateArgs {
    /// A display name.
    name: String,
    /// The size limit, in gigabytes.
    #[arg(long, value_name = "GB", value_parser = parse::bounded::<u32>(VOLUME_GB))]
    size: u32,
    #[command(flatten)]
    call: CallArgs,
}

/// Show a network volume.
#[derive(Debug, Args)]
struct GetArgs {
    /// The volume's id.
    id: VolumeId,
    #[command(flatten)]
    call: CallArgs,
}

/// Change the name of a network volume, or make it larger.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("changes").required(true).multiple(true).args(["name", "size"]))]
struct UpdateArgs {
    /// The volume's id.
    id: VolumeId,
    /// A new display name.
    #[arg(long)]
    name: Option<String>,
    /// The new size limit, in gigabytes; at least the present one.
    #[arg(long, value_name = "GB", value_parser = parse::bounded::<u32>(VOLUME_GB))]
    size: Option<u32>,
    #[command(flatten)]
    call: CallArgs,
}

/// Delete a network volume that no endpoint uses, with all its files.
#[derive(Debug, Args)]
struct DeleteArgs {
    /// The volume's id.
    id: VolumeId,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn volumes(args: VolumesArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        VolumesCommand::Create(args) => create(args).await?,
        VolumesCommand::List(args) => {
            args.print(async |client| client.volumes().await, |all| table(&all)).await?;
        }
        VolumesCommand::Get(GetArgs { id, call }) => {
            let get = async |client: &Client| client.volume(id.as_str()).await;
            call.print(get, |one| table(&[one])).await?;
        }
        VolumesCommand::Update(args) => update(args).await?,
        VolumesCommand::Delete(args) => delete(args).await?,
        VolumesCommand::Ls(args) => volume_files::ls(args).await?,
        VolumesCommand::Cp(args) => volume_files::cp(args).await?,
        VolumesCommand::Rm(args) => volume_files::rm(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let new = NewNetworkVolume { name: args.name, size: args.size.into(), data_center_id: None };
    let answer = args.call.connection.client()?.create_volume(&new).await?;
    if args.call.json {
        return output::result(answer.text());
    }
    let volume = answer.read()?;
    output::note(format_args!("made network volume `{}`", volume.id));
    output::result(&volume.id)?;
    output::next(format_args!("gristmill volumes cp FILE {0}:, or deploy --volume {0}", volume.id));
    Ok(())
}

async fn update(args: UpdateArgs) -> anyhow::Result<()> {
    let UpdateArgs { id, name, size, call } = args;
    let fields = NetworkVolumeInput { name, size: size.map(Into::into) };
    let update = async |client: &Client| client.update_volume(id.as_str(), &fields).await;
    call.print(update, |one| table(&[one])).await
}

fn table(volumes: &[NetworkVolume]) -> Vec<String> {
    let rows = volumes.iter().map(|volume| {
        [volume.id.to_string(), format!("{} GB", volume.size), output::plain(&volume.name)]
    });
    output::table(["ID", "SIZE", "NAME"], rows)
}

async fn delete(args: DeleteArgs) -> anyhow::Result<()> {
    let DeleteArgs { id, connection } = args;
    let call = async |client: &Client| client.delete_volume(id.as_str()).await;
    resource::delete(connection, format_args!("network volume `{id}`"), call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_stand_in_columns() {
        let volumes = r#"[
            {"id":"0123456789abcdef","name":"grain","size":10,"dataCenterId":"local"},
            {"id":"f","name":"flour","size":4000,"dataCenterId":"local"}]"#;
        let expected = [
            "ID                SIZE     NAME",
            "0123456789abcdef  10 GB    grain",
            "f                 4000 GB  flour",
        ];
        assert_eq!(table(&serde_json::from_str::<Vec<_>>(volumes).unwrap()), expected);
    }
}
