//! `gristmill registry-auths`: credentials for fetching images.

use std::io::{self, IsTerminal as _, Read as _};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use gristmill_client::Client;
use gristmill_client::wire::bounds::REGISTRY_SECRET_BYTES_MAX;
use gristmill_client::wire::id::RegistryAuthId;
use gristmill_client::wire::management::{NewRegistryAuth, RegistryAuth};

use crate::arguments::{ConnectionArgs, parse};
use crate::output;
use crate::resource::{self, CallArgs};

/// The variable with the password; otherwise standard input is read.
const PASSWORD_VARIABLE: &str = "GRISTMILL_REGISTRY_PASSWORD";

/// List, store and delete credentials for registries.
#[derive(Debug, Args)]
pub struct RegistryAuthsArgs {
    #[command(subcommand)]
    command: RegistryAuthsCommand,
}

#[derive(Debug, Subcommand)]
enum RegistryAuthsCommand {
    /// List all credentials, without their passwords.
    List(CallArgs),
    Create(CreateArgs),
    Delete(DeleteArgs),
}

/// Store credentials and print their id, which templates name. The password is read from
/// GRISTMILL_REGISTRY_PASSWORD or, without it, from standard input, since other users can read
/// command lines.
#[derive(Debug, Args)]
struct CreateArgs {
    /// A display name.
    #[arg(long)]
    name: String,
    /// The only registry that receives them, as images name it: HOST or HOST:PORT [default:
    /// docker.io].
    #[arg(long, value_name = "HOST", value_parser = parse::registry_host)]
    registry: Option<String>,
    /// The user at the registry.
    #[arg(long)]
    username: String,
    #[command(flatten)]
    call: CallArgs,
}

/// Delete credentials that no template names.
#[derive(Debug, Args)]
struct DeleteArgs {
    /// The id of the credentials.
    id: RegistryAuthId,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn registry_auths(args: RegistryAuthsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        RegistryAuthsCommand::List(args) => {
            args.print(async |client| client.registry_auths().await, |all| table(&all)).await?;
        }
        RegistryAuthsCommand::Create(args) => create(args).await?,
        RegistryAuthsCommand::Delete(args) => delete(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(auths: &[RegistryAuth]) -> Vec<String> {
    let rows = auths.iter().map(|auth| {
        let [username, name] = [&auth.username, &auth.name].map(|text| output::plain(text));
        let registry = auth.registry.clone().unwrap_or_default();
        [auth.id.to_string(), registry, username, auth.created_at.clone(), name]
    });
    output::table(["ID", "REGISTRY", "USERNAME", "CREATED", "NAME"], rows)
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let password = password()?;
    let CreateArgs { name, registry, username, call: CallArgs { json, connection } } = args;
    let new = NewRegistryAuth { name, registry, username, password };
    let answer = connection.client()?.create_registry_auth(&new).await?;
    if json {
        return output::result(answer.text());
    }
    let auth = answer.read()?;
    output::note(format_args!("stored the credentials `{}`", output::plain(&auth.name)));
    output::result(&auth.id)?;
    output::next(format_args!("gristmill templates create --registry-auth {}", auth.id));
    Ok(())
}

fn password() -> anyhow::Result<String> {
    if let Some(password) = std::env::var_os(PASSWORD_VARIABLE).filter(|text| !text.is_empty()) {
        let password = password.into_string().ok();
        return password.with_context(|| format!("{PASSWORD_VARIABLE} is not UTF-8"));
    }
    ensure!(
        !io::stdin().is_terminal(),
        "there is no password: set {PASSWORD_VARIABLE}, or write it to standard input"
    );
    let mut password = String::new();
    let limit = REGISTRY_SECRET_BYTES_MAX as u64 + 2;
    io::stdin()
        .lock()
        .take(limit)
        .read_to_string(&mut password)
        .context("cannot read the password from standard input")?;
    let end = password.trim_end_matches(['\r', '\n']).len();
    password.truncate(end);
    ensure!(!password.is_empty(), "the password on standard input is empty");
    Ok(password)
}

async fn delete(args: DeleteArgs) -> anyhow::Result<()> {
    let DeleteArgs { id, connection } = args;
    let call = async |client: &Client| client.delete_registry_auth(id.as_str()).await;
    resource::delete(connection, format_args!("credentials `{id}`"), call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stand_in_columns() {
        let auths = r#"[{"id":"a1","name":"our hub","registry":"ghcr.io","username":"mill",
            "createdAt":"2026-01-01T00:00:00Z"}]"#;
        let expected = [
            "ID  REGISTRY  USERNAME  CREATED               NAME",
            "a1  ghcr.io   mill      2026-01-01T00:00:00Z  our hub",
        ];
        assert_eq!(table(&serde_json::from_str::<Vec<_>>(auths).unwrap()), expected);
    }
}
