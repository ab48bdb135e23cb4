//! `gristmill keys`: creates, lists and revokes API keys.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::Client;
use gristmill_client::wire::Scope;
use gristmill_client::wire::bounds::KEY_LIFETIME_S;
use gristmill_client::wire::id::{EndpointId, KeyId, OwnerId};
use gristmill_client::wire::management::{Key, NewKey};

use crate::arguments::ConnectionArgs;
use crate::arguments::parse;
use crate::output;
use crate::resource::CallArgs;

/// Create, list and revoke API keys.
#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    Create(CreateArgs),
    /// List all keys.
    List(CallArgs),
    Revoke(RevokeArgs),
}

/// Create a key and print it. The host does not keep its text, so it is shown only now.
#[derive(Debug, Args)]
struct CreateArgs {
    /// A display name.
    #[arg(long)]
    name: String,
    /// The permissions of the key, separated by commas. submit includes read, manage includes
    /// metrics, and admin includes all others.
    #[arg(
        long = "scope",
        value_name = "SCOPE",
        value_delimiter = ',',
        required = true,
        value_parser = parse::scope()
    )]
    scopes: Vec<Scope>,
    /// The owner of the key: it reaches only this owner's objects. Only keys of the operator,
    /// `default`, may have the scopes admin and metrics [default: the operator].
    #[arg(long, value_name = "NAME")]
    owner: Option<OwnerId>,
    /// An endpoint that the key is valid for; may be repeated [default: all endpoints of its
    /// owner].
    #[arg(long = "endpoint", value_name = "ENDPOINT")]
    endpoints: Vec<EndpointId>,
    /// The key is refused after this many seconds [default: never].
    #[arg(long, value_name = "SECONDS", value_parser = parse::bounded::<u64>(KEY_LIFETIME_S))]
    expires_in: Option<u64>,
    #[command(flatten)]
    call: CallArgs,
}

/// Revoke a key: it is refused from now on.
#[derive(Debug, Args)]
struct RevokeArgs {
    /// The key's id: the part of its text between the first and the second `_`.
    id: KeyId,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn keys(args: KeysArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        KeysCommand::Create(args) => create(args).await?,
        KeysCommand::List(args) => {
            args.print(async |client| client.keys().await, |all| table(&all)).await?;
        }
        KeysCommand::Revoke(args) => revoke(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let new = NewKey {
        name: args.name,
        owner: args.owner,
        scopes: args.scopes,
        endpoints: (!args.endpoints.is_empty()).then_some(args.endpoints),
        expires_in_seconds: args.expires_in,
    };
    let client = args.call.connection.client()?;
    let answer = client.create_key(&new).await?;
    let made = answer.read()?;
    if args.call.json {
        output::result(answer.text())?;
    } else {
        output::note(format_args!("made key `{}`; it is not shown again", made.key.id));
        output::result(made.text)?;
        output::next(
            "export GRISTMILL_API_KEY with this key, or send it as `Authorization: Bearer KEY`",
        );
    }
    for id in made.key.endpoints.into_iter().flatten() {
        if !is_owned(&client, &id, &made.key.owner).await {
            output::note(format_args!(
                "the owner `{}` has no endpoint `{id}` yet; the key is for it once there is one",
                made.key.owner
            ));
        }
    }
    Ok(())
}

/// Whether the endpoint is this owner's. Without an answer it counts as one.
async fn is_owned(client: &Client, id: &EndpointId, owner: &OwnerId) -> bool {
    match client.endpoint(id.as_str()).await.and_then(|answer| answer.read()) {
        Ok(endpoint) => endpoint.user_id == *owner,
        Err(error) => !error.is_not_found(),
    }
}

fn table(keys: &[Key]) -> Vec<String> {
    let headings = ["ID", "OWNER", "SCOPES", "ENDPOINTS", "CREATED", "EXPIRES", "NAME"];
    let rows = keys.iter().map(|key| {
        [
            key.id.to_string(),
            key.owner.to_string(),
            joined(&key.scopes, |scope| scope.as_str()),
            key.endpoints
                .as_ref()
                .map_or_else(|| "all".to_owned(), |list| joined(list, EndpointId::as_str)),
            key.created_at.clone(),
            key.expires_at.clone().unwrap_or_else(|| "never".to_owned()),
            output::plain(&key.name),
        ]
    });
    output::table(headings, rows)
}

fn joined<T>(list: &[T], text: impl Fn(&T) -> &str) -> String {
    list.iter().map(text).collect::<Vec<_>>().join(",")
}

async fn revoke(args: RevokeArgs) -> anyhow::Result<()> {
    args.connection.client()?.revoke_key(args.id.as_str()).await?;
    output::note(format_args!("revoked key `{}`", args.id));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_columns() {
        let keys = r#"[
            {"id":"abc","name":"admin","owner":"default","scopes":["admin"],"createdAt":"2026-01-01T00:00:00Z"},
            {"id":"defghi","name":"ci","owner":"wheat","scopes":["submit","read"],"endpoints":["echo"],
             "createdAt":"2026-01-02T00:00:00Z","expiresAt":"2026-02-01T00:00:00Z"}]"#;
        let expected = [
            "ID      OWNER    SCOPES       ENDPOINTS  CREATED               EXPIRES               NAME",
            "abc     default  admin        all        2026-01-01T00:00:00Z  never                 admin",
            "defghi  wheat    submit,read  echo       2026-01-02T00:00:00Z  2026-02-01T00:00:00Z  ci",
        ];
        assert_eq!(table(&serde_json::from_str::<Vec<_>>(keys).unwrap()), expected);
    }
}
