//! Shared parts of the commands about one kind of object: their arguments, and the output of an
//! object.

use std::fmt::Display;

use clap::Args;
use gristmill_client::{Answer, Client, ClientError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arguments::ConnectionArgs;
use crate::output;

/// Arguments of the commands that make one call and print its answer. In a command's arguments they
/// are the last ones, or precede a group with a heading: clap gives the heading of the connection
/// to all arguments that follow it.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Print the host's answer as it is.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl CallArgs {
    /// Prints the answer to `call`, or the lines that `describe` makes of it.
    ///
    /// # Errors
    /// Those of the call and of [`print()`].
    pub(crate) async fn print<T: DeserializeOwned>(
        self,
        call: impl AsyncFnOnce(&Client) -> Result<Answer<T>, ClientError>,
        describe: impl FnOnce(T) -> Vec<String>,
    ) -> anyhow::Result<()> {
        let Self { json, connection } = self;
        let answer = call(&connection.client()?).await?;
        print(&answer, json, describe)
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
    #[command(flatten)]
    pub(crate) call: CallArgs,
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

/// Prints one object: each field on its own line, or the host's answer unchanged. Values of an
/// environment that look like secrets are hidden in the former.
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

/// The fields of an object, one line each.
pub(crate) fn fields(thing: &serde_json::Map<String, Value>) -> Vec<String> {
    let width = thing.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => output::plain(text),
            Value::Object(variables) if ENVIRONMENTS.contains(&name.as_str()) => {
                output::plain(&without_secrets(variables).to_string())
            }
            other => output::plain(&other.to_string()),
        };
        format!("{name:<width$}  {value}").trim_end().to_owned()
    };
    thing.iter().map(line).collect()
}

/// The fields with environment variables.
const ENVIRONMENTS: [&str; 2] = ["env", TEMPLATE_ENV];

/// The line with the variables of an endpoint's template.
pub(crate) const TEMPLATE_ENV: &str = "templateEnv";

/// The ends of words in the names of variables with secrets.
const SECRET_WORDS: [&str; 12] = [
    "KEY",
    "KEYS",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "CREDENTIALS",
    "AUTH",
];

/// The variables, with `***` for each value that looks like a secret, by its name or as a URL with
/// a password.
fn without_secrets(variables: &serde_json::Map<String, Value>) -> Value {
    let shown = variables.iter().map(|(name, value)| {
        let upper = name.to_uppercase();
        let has_name = upper
            .split(['_', '-', '.'])
            .any(|word| word == "PAT" || SECRET_WORDS.iter().any(|end| word.ends_with(end)));
        let text = value.as_str().unwrap_or_default();
        let user = text.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
        let has_password = user.is_some_and(|(user, _)| user.contains(':') && !user.contains('/'));
        let is_hidden = !text.is_empty() && (has_name || has_password);
        (name.clone(), if is_hidden { "***".into() } else { value.clone() })
    });
    Value::Object(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_like_secrets_are_hidden() {
        let env = serde_json::json!({
            "API_TOKEN": "s3cret", "OPENAI_APIKEY": "s3cret", "db-password": "s3cret", "GITHUB_PAT": "s3cret",
            "DATABASE_URL": "postgres://mill:s3cret@db/mill", "EMPTY_KEY": "",
            "PATH": "/bin", "PASSES": "3", "UPSTREAM_URL": "https://example.com/a:b@c", "MODE": "rye",
        });
        let thing = serde_json::json!({ "env": env, "templateEnv": env, "other": env });
        let lines = fields(thing.as_object().unwrap());
        let [env, template, other] = lines.as_slice() else { panic!("{lines:?}") };
        for line in [env, template] {
            assert!(!line.contains("s3cret"), "{line}");
            assert_eq!(line.matches("***").count(), 5, "{line}");
            for shown in ["GITHUB_PAT", "DATABASE_URL", "/bin", "\"3\"", "a:b@c", "rye"] {
                assert!(line.contains(shown), "{shown}: {line}");
            }
        }
        assert!(other.contains("s3cret"), "{other}");
    }

    #[test]
    fn fields_stand_in_two_columns() {
        let thing = serde_json::json!({ "id": "a", "name": "b\u{1b}[2J", "env": { "A": "b" } });
        let lines = fields(thing.as_object().unwrap());
        assert_eq!(lines, ["id    a", "name  b[2J", "env   {\"A\":\"b\"}"]);
    }
}
