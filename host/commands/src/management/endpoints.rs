//! `gristmill endpoints`: deployed handlers, their settings, the rollback to an earlier handler, and
//! their webhooks.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::wire::id::{EndpointId, TemplateId};
use gristmill_client::wire::management::{
    Delivery, DeliveryState, Endpoint, EndpointInput, Release, Rollback, ScalerType,
};
use gristmill_client::{Client, ClientError};

use crate::arguments::ConnectionArgs;
use crate::arguments::EndpointOptions;
use crate::output;
use crate::resource::{ListArgs, OneArgs, print, show};

/// Create, list, change and delete endpoints; roll back to an earlier handler; show webhooks.
#[derive(Debug, Args)]
pub struct EndpointsArgs {
    #[command(subcommand)]
    command: EndpointsCommand,
}

#[derive(Debug, Subcommand)]
enum EndpointsCommand {
    /// List all endpoints.
    List(ListArgs),
    /// Show an endpoint.
    Get(OneArgs),
    Create(Box<CreateArgs>),
    Update(Box<UpdateArgs>),
    /// Delete an endpoint with all its jobs: waiting jobs are removed, and running jobs are
    /// stopped.
    Delete(OneArgs),
    /// List the handlers that an endpoint has run, the newest first.
    Releases(OneArgs),
    Rollback(RollbackArgs),
    /// List the newest webhooks of an endpoint's jobs, the newest first: at most 1,000.
    Deliveries(OneArgs),
    /// Make a new secret for an endpoint's webhooks and print it. For another day webhooks are signed
    /// with the previous secrets as well.
    RotateWebhookSecret(OneArgs),
}

/// Create an endpoint that runs a template.
#[derive(Debug, Args)]
struct CreateArgs {
    /// Its id [default: a random one].
    #[arg(long)]
    id: Option<EndpointId>,
    /// The id of the template.
    #[arg(long)]
    template: TemplateId,
    /// A display name [default: the id].
    #[arg(long)]
    name: Option<String>,
    /// Print the host's answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: EndpointOptions,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Change the given settings of an endpoint.
#[derive(Debug, Args)]
struct UpdateArgs {
    /// Its id.
    id: EndpointId,
    /// The id of another template.
    #[arg(long)]
    template: Option<TemplateId>,
    /// A new display name.
    #[arg(long)]
    name: Option<String>,
    /// Print the host's answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: EndpointOptions,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Return to the previous handler, or to the handler of a release. The settings are unchanged.
///
/// With --to, a repetition changes nothing. Without it, each call returns to the handler before the
/// current one, so that a second call undoes the first one.
#[derive(Debug, Args)]
struct RollbackArgs {
    /// The endpoint.
    id: EndpointId,
    /// The version of a release, from `gristmill endpoints releases`.
    #[arg(long, value_name = "VERSION")]
    to: Option<u32>,
    /// Print the host's answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn endpoints(args: EndpointsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        EndpointsCommand::List(args) => {
            args.print(async |client| client.endpoints().await, table).await?;
        }
        EndpointsCommand::Get(args) => {
            let answer = args.connection.client()?.endpoint(&args.id).await?;
            show(&answer, args.json)?;
        }
        EndpointsCommand::Create(args) => {
            let given = EndpointInput {
                id: args.id,
                name: args.name,
                template_id: Some(args.template),
                ..args.options.document()
            };
            let answer = args.connection.client()?.create_endpoint(&given).await?;
            show(&answer, args.json)?;
        }
        EndpointsCommand::Update(args) => {
            let given = EndpointInput {
                name: args.name,
                template_id: args.template,
                ..args.options.document()
            };
            let client = args.connection.client()?;
            let answer = client.update_endpoint(args.id.as_str(), &given).await?;
            show(&answer, args.json)?;
        }
        EndpointsCommand::Delete(args) => {
            args.connection.client()?.delete_endpoint(&args.id).await?;
            output::note(format_args!("deleted endpoint `{}` and its jobs", args.id));
        }
        EndpointsCommand::Releases(args) => releases(args).await?,
        EndpointsCommand::Rollback(args) => roll_back(args).await?,
        EndpointsCommand::Deliveries(args) => deliveries(args).await?,
        EndpointsCommand::RotateWebhookSecret(args) => rotate_webhook_secret(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(endpoints: Vec<Endpoint>) -> Vec<String> {
    let rows = endpoints.into_iter().map(|endpoint| {
        let scaler = match endpoint.scaler_type {
            ScalerType::QueueDelay => "queue-delay",
            ScalerType::RequestCount => "request-count",
        };
        [
            endpoint.id.to_string(),
            endpoint.template_id.to_string(),
            endpoint.version.to_string(),
            format!("{}-{}", endpoint.workers_min, endpoint.workers_max),
            format!("{scaler}:{}", endpoint.scaler_value),
            endpoint.created_at,
        ]
    });
    let headings = ["ID", "TEMPLATE", "VERSION", "WORKERS", "SCALER", "CREATED"];
    output::table(headings, rows)
}

async fn releases(args: OneArgs) -> anyhow::Result<()> {
    let answer = args.connection.client()?.releases(&args.id).await?;
    print(&answer, args.json, release_table)
}

fn release_table(releases: Vec<Release>) -> Vec<String> {
    let rows = releases.into_iter().map(|release| {
        let sha256 = release.sha256.get(..12).unwrap_or(&release.sha256).to_owned();
        [release.version.to_string(), release.released_at, sha256, output::plain(&release.image)]
    });
    output::table(["VERSION", "RELEASED", "SHA256", "IMAGE"], rows)
}

async fn roll_back(args: RollbackArgs) -> anyhow::Result<()> {
    let RollbackArgs { id, to, json, connection } = args;
    let client = connection.client()?;
    let to = match to {
        Some(version) => Rollback { version: Some(version.into()), from: None },
        None => before_current(&client, &id).await?,
    };
    let answer = client.roll_back(id.as_str(), &to).await;
    let answer = answer.map_err(|error| unknown_outcome(error, &id, to.version))?;
    if json {
        return output::result(answer.text());
    }
    let Release { version, image, .. } = answer.read()?;
    output::note(format_args!("endpoint `{id}` runs {image} as version {version}"));
    Ok(())
}

/// The release before the current one, by its version, and the endpoint's version, so that the host refuses
/// the call if the endpoint is changed meanwhile.
async fn before_current(client: &Client, id: &EndpointId) -> anyhow::Result<Rollback> {
    // The endpoint is read first, so that `from` is not newer than the releases.
    let from = client.endpoint(id.as_str()).await?.read()?.version;
    let releases = client.releases(id.as_str()).await?.read()?;
    // Without an earlier release, the host's refusal says why.
    Ok(Rollback { version: previous_version(&releases), from: Some(from.into()) })
}

/// The version of the newest release with another handler than the current one.
fn previous_version(newest_first: &[Release]) -> Option<u64> {
    let (current, earlier) = newest_first.split_first()?;
    let previous = earlier.iter().find(|release| release.sha256 != current.sha256);
    previous.map(|release| release.version.into())
}

/// The error of a rollback, with the command that can be repeated if the host may have carried it out.
fn unknown_outcome(error: ClientError, id: &EndpointId, version: Option<u64>) -> anyhow::Error {
    let is_unknown = matches!(error, ClientError::Interrupted(_) | ClientError::Garbled(_));
    let error = anyhow::Error::new(error);
    match version.filter(|_| is_unknown) {
        Some(version) => error.context(format!(
            "the endpoint may have been rolled back; to repeat it, run `gristmill endpoints rollback {id} --to {version}`"
        )),
        None => error,
    }
}

async fn deliveries(args: OneArgs) -> anyhow::Result<()> {
    let answer = args.connection.client()?.deliveries(&args.id).await?;
    print(&answer, args.json, delivery_table)
}

fn delivery_table(deliveries: Vec<Delivery>) -> Vec<String> {
    let rows = deliveries.into_iter().map(|delivery| {
        let state = match delivery.state {
            DeliveryState::Pending => "PENDING",
            DeliveryState::Delivered => "DELIVERED",
            DeliveryState::GivenUp => "GIVEN_UP",
        };
        let status = delivery.last_status.map(|status| status.to_string());
        let last = delivery.last_error.or(status).unwrap_or_default();
        [
            delivery.created_at,
            delivery.job_id,
            delivery.job_status.as_str().to_owned(),
            state.to_owned(),
            delivery.attempts.to_string(),
            output::plain(&delivery.url),
            output::plain(&last),
        ]
    });
    let headings = ["CREATED", "JOB", "STATUS", "STATE", "ATTEMPTS", "URL", "LAST ATTEMPT"];
    output::table(headings, rows)
}

async fn rotate_webhook_secret(args: OneArgs) -> anyhow::Result<()> {
    let answer = args.connection.client()?.rotate_webhook_secret(&args.id).await?;
    if args.json {
        return output::result(answer.text());
    }
    let secret = answer.read()?.webhook_secret;
    output::note(format_args!(
        "endpoint `{}` signs its webhooks with a new secret, and for a day with the previous ones too",
        args.id
    ));
    output::result(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_stand_in_columns() {
        let deliveries = r#"[
            {"id":"msg_j_0","jobId":"j","jobStatus":"FAILED","url":"http://h/\u001b[2J","state":"GIVEN_UP",
             "attempts":3,"createdAt":"2026-01-01T00:00:00.000Z","lastStatus":500,"lastError":"answered 500"},
            {"id":"msg_k_0","jobId":"k","jobStatus":"COMPLETED","url":"http://h/","state":"DELIVERED",
             "attempts":1,"createdAt":"2026-01-01T00:00:00.000Z","lastStatus":204}]"#;
        let expected = [
            "CREATED                   JOB  STATUS     STATE      ATTEMPTS  URL           LAST ATTEMPT",
            "2026-01-01T00:00:00.000Z  j    FAILED     GIVEN_UP   3         http://h/[2J  answered 500",
            "2026-01-01T00:00:00.000Z  k    COMPLETED  DELIVERED  1         http://h/     204",
        ];
        assert_eq!(delivery_table(serde_json::from_str(deliveries).unwrap()), expected);
    }

    #[test]
    fn a_rollback_names_the_newest_release_with_another_handler() {
        let releases = |digests: &[&str]| -> Vec<Release> {
            let oldest_first = (1..).zip(digests.iter().rev()).map(|(version, sha256)| Release {
                version,
                released_at: "2026-01-01T00:00:00.000Z".to_owned(),
                image: "mill:1".to_owned(),
                sha256: (*sha256).to_owned(),
            });
            let mut releases: Vec<_> = oldest_first.collect();
            releases.reverse();
            releases
        };
        let cases: [(&[&str], Option<u64>); 6] = [
            (&["b", "a"], Some(1)),
            (&["c", "b", "a"], Some(2)),
            (&["a", "a", "b"], Some(1)),
            (&["a", "a"], None),
            (&["a"], None),
            (&[], None),
        ];
        for (digests, expected) in cases {
            assert_eq!(previous_version(&releases(digests)), expected, "{digests:?}");
        }
    }

    #[test]
    fn a_rollback_without_an_answer_names_the_command_to_repeat() {
        let id: EndpointId = "mill".parse().unwrap();
        let shown = |error, version| format!("{:#}", unknown_outcome(error, &id, version));
        let broken = || ClientError::Interrupted("the connection broke".to_owned());
        let expected = "the endpoint may have been rolled back; to repeat it, run \
                        `gristmill endpoints rollback mill --to 2`: the connection broke";
        assert_eq!(shown(broken(), Some(2)), expected);
        assert_eq!(shown(broken(), None), "the connection broke");
        let unsent = ClientError::Unsendable("it is no JSON".to_owned());
        assert_eq!(shown(unsent, Some(2)), "it is no JSON");
    }
}
