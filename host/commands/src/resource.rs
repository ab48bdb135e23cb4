//! Shared parts of the commands about one kind of object: their arguments, and the output of an
//! object.

use std::fmt::Display;

use clap::Args;
use gristmill_client::{Answer, Client, ClientError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arguments::ConnectionArgs;
use crate::output;

/// Arguments of the commands that list all objects of a kind.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the host's answer as it is.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl ListArgs {
    /// Prints all objects of a kind, which `call` reads.
    ///
    /// # Errors
    /// Those of the call, and when the list cannot be written.
    pub(crate) async fn print<T: DeserializeOwned>(
        self,
        call: impl AsyncFnOnce(&Client) -> Result<Answer<Vec<T>>, ClientError>,
        table: impl FnOnce(Vec<T>) -> Vec<String>,
    ) -> anyhow::Result<()> {
        let Self { json, connection } = self;
        let answer = call(&connection.client()?).await?;
        print(&answer, json, table)
    }
}

/// Deletes an object by `call`, and notes it.
///
/// # Errors
/// Those of the call.
pub(crate) async fn delete(
    connection: ConnectionArgs,
    object: impl Display,
    call: impl AsyncFnOnce(&Client) -> Result<(), ClientError>,
) -> anyhow::Result<()> {
    call(&connection.client()?).await?;
    output::note(format_args!("deleted {object}"));
    Ok(())
}

/// Arguments of the commands about one object.
#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Its id.
    pub(crate) id: String,
    /// Print the host's answer as it is.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Prints the host's answer unchanged, or the lines that `describe` makes of it.
///
/// # Errors
/// When `describe` cannot parse the answer, or it cannot be written.
pub(crate) fn print<T: DeserializeOwned, L: Display>(
    answer: &Answer<T>,
    as_json: bool,
    describe: impl FnOnce(T) -> Vec<L>,
) -> anyhow::Result<()> {
    if as_json {
        return output::result(answer.text());
    }
    describe(answer.read()?).into_iter().try_for_each(output::result)
}

/// Prints one object: each field on its own line, or the host's answer unchanged.
///
/// # Errors
/// When the answer is not an object, or cannot be written.
pub(crate) fn show<T>(answer: &Answer<T>, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::result(answer.text());
    }
    // All fields, also those of a later version.
    fields(&answer.read_as()?).into_iter().try_for_each(output::result)
}

fn fields(thing: &serde_json::Map<String, Value>) -> Vec<String> {
    let width = thing.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => output::plain(text),
            other => output::plain(&other.to_string()),
        };
        format!("{name:<width$}  {value}").trim_end().to_owned()
    };
    thing.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_two_columns() {
        let thing = serde_json::json!({ "id": "a", "name": "b\u{1b}[2J", "env": { "A": "b" } });
        let lines = fields(thing.as_object().unwrap());
        assert_eq!(lines, ["id    a", "name  b[2J", "env   {\"A\":\"b\"}"]);
    }
}
