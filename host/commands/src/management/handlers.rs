//! `gristmill handlers`: uploaded handlers and their names.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::Client;
use gristmill_client::wire::management::{Handler, Producer};

use crate::arguments::ConnectionArgs;
use crate::arguments::component_file;
use crate::calls::upload;
use crate::output;
use crate::resource::{self, CallArgs, print};

/// List, show, upload and delete handlers.
#[derive(Debug, Args)]
pub struct HandlersArgs {
    #[command(subcommand)]
    command: HandlersCommand,
}

#[derive(Debug, Subcommand)]
enum HandlersCommand {
    /// List all handlers.
    List(CallArgs),
    Get(GetArgs),
    Push(PushArgs),
    Delete(DeleteArgs),
}

/// Show the handler with this name.
#[derive(Debug, Args)]
struct GetArgs {
    /// `NAME:TAG`, or `NAME` for `NAME:latest`.
    handler: String,
    #[command(flatten)]
    call: CallArgs,
}

/// Upload a handler; endpoints that run this name run it from their next job on.
#[derive(Debug, Args)]
struct PushArgs {
    /// The handler: a WebAssembly component.
    file: PathBuf,
    /// `NAME:TAG`, or `NAME` for `NAME:latest`.
    handler: String,
    #[command(flatten)]
    call: CallArgs,
}

/// Delete a name; refused while an endpoint runs its handler.
#[derive(Debug, Args)]
struct DeleteArgs {
    /// `NAME:TAG`, or `NAME` for `NAME:latest`.
    handler: String,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn handlers(args: HandlersArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        HandlersCommand::List(args) => {
            args.print(async |client| client.handlers().await, |all| table(&all)).await?;
        }
        HandlersCommand::Get(GetArgs { handler, call }) => {
            call.print(async |client| client.handler(&handler).await, |one| report(&one)).await?;
        }
        HandlersCommand::Push(args) => push(args).await?,
        HandlersCommand::Delete(args) => delete(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(handlers: &[Handler]) -> Vec<String> {
    let headings = ["HANDLER", "SHA256", "SIZE", "LANGUAGE", "UPDATED"];
    let rows = handlers.iter().map(|handler| {
        let languages = handler.language.iter().map(|language| output::plain(&language.name));
        [
            handler.image.clone(),
            handler.sha256.get(..12).unwrap_or(&handler.sha256).to_owned(),
            output::size(handler.size_in_bytes),
            languages.collect::<Vec<_>>().join(","),
            handler.updated_at.clone(),
        ]
    });
    output::table(headings, rows)
}

fn report(handler: &Handler) -> Vec<String> {
    let row = |name: &str, value: String| format!("{name:<9}  {value}").trim_end().to_owned();
    let names = |list: &[String]| output::plain(&list.join(", "));
    vec![
        row("handler", handler.image.clone()),
        row("sha256", handler.sha256.clone()),
        row("size", output::size(handler.size_in_bytes)),
        row("language", producers(&handler.language)),
        row("toolchain", producers(&handler.toolchain)),
        row("imports", names(&handler.imports)),
        row("exports", names(&handler.exports)),
        row("compiled", format!("in {} ms", handler.compile_ms)),
        row("updated", handler.updated_at.clone()),
    ]
}

/// `Rust 2024, C11`.
fn producers(list: &[Producer]) -> String {
    let texts = list.iter().map(|producer| format!("{} {}", producer.name, producer.version));
    output::plain(&texts.map(|text| text.trim_end().to_owned()).collect::<Vec<_>>().join(", "))
}

async fn push(args: PushArgs) -> anyhow::Result<()> {
    let component = component_file::read(&args.file)?;
    let answer = upload(&args.call.connection.client()?, &args.handler, component).await?;
    print(&answer, args.call.json, |one| report(&one))?;
    if !args.call.json {
        let Handler { name, image, .. } = answer.read()?;
        output::next(format_args!("gristmill templates create --name {name} --image {image}"));
    }
    Ok(())
}

async fn delete(args: DeleteArgs) -> anyhow::Result<()> {
    let DeleteArgs { handler, connection } = args;
    let call = async |client: &Client| client.delete_handler(&handler).await;
    resource::delete(connection, format_args!("handler `{handler}`"), call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLER: &str = r#"{"name":"mill","tag":"1.2","image":"mill:1.2","sha256":"00112233445566778899","sizeInBytes":15028,
        "language":[{"name":"Rust","version":"2024"},{"name":"C11","version":""}],
        "toolchain":[{"name":"rustc","version":"1.95.0"}],"imports":["a:b/c@1.0.0"],
        "exports":["d:e/f@1.0.0"],"compileMs":78,"updatedAt":"2026-01-01T00:00:00Z"}"#;

    #[test]
    fn handlers_stand_in_columns() {
        let handlers: Vec<_> = serde_json::from_str(&format!("[{HANDLER}]")).unwrap();
        let expected = [
            "HANDLER   SHA256        SIZE      LANGUAGE  UPDATED",
            "mill:1.2  001122334455  14.7 KiB  Rust,C11  2026-01-01T00:00:00Z",
        ];
        assert_eq!(table(&handlers), expected);
    }

    #[test]
    fn a_handler_is_shown_row_by_row() {
        let expected = [
            "handler    mill:1.2",
            "sha256     00112233445566778899",
            "size       14.7 KiB",
            "language   Rust 2024, C11",
            "toolchain  rustc 1.95.0",
            "imports    a:b/c@1.0.0",
            "exports    d:e/f@1.0.0",
            "compiled   in 78 ms",
            "updated    2026-01-01T00:00:00Z",
        ];
        assert_eq!(report(&serde_json::from_str(HANDLER).unwrap()), expected);
    }
}
