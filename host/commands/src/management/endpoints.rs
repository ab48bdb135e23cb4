//! `gristmill endpoints`: deployed handlers, their settings, the rollback to an earlier handler,
//! and their webhooks.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::wire::bounds::LIST_JOBS;
use gristmill_client::wire::id::{EndpointId, TemplateId};
use gristmill_client::wire::management::{
    Delivery, DeliveryState, Endpoint, EndpointInput, HttpRequest, Release, Rollback, ScalerType,
};
use gristmill_client::{Client, ClientError, TemplateFilter};

use crate::arguments::{EndpointOptions, parse};
use crate::output;
use crate::resource::{self, CallArgs, OneArgs, TEMPLATE_ENV, show};

/// Create, list, change and delete endpoints; roll back to an earlier handler; show webhooks.
#[derive(Debug, Args)]
pub struct EndpointsArgs {
    #[command(subcommand)]
    command: EndpointsCommand,
}

#[derive(Debug, Subcommand)]
enum EndpointsCommand {
    /// List all endpoints.
    List(CallArgs),
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
    Requests(RequestsArgs),
    /// List the newest webhooks of an endpoint's jobs, the newest first: at most 1,000.
    Deliveries(OneArgs),
    /// Make a new secret for an endpoint's webhooks and print it. For another day webhooks are
    /// signed with the previous secrets as well.
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
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    options: EndpointOptions,
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
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    options: EndpointOptions,
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
    #[command(flatten)]
    call: CallArgs,
}

/// List the newest HTTP requests of an endpoint that have ended, the newest first.
///
/// The host keeps up to 1,000 of each endpoint in memory. The id of a request is the header
/// X-Request-Id of its answer, and the job of its log lines.
#[derive(Debug, Args)]
struct RequestsArgs {
    /// The endpoint.
    id: EndpointId,
    /// Only requests with this status, such as 404, or of this class, such as 5xx.
    #[arg(long)]
    status: Option<String>,
    /// Most requests to list.
    #[arg(
        long,
        value_name = "N",
        default_value_t = LIST_JOBS.default,
        value_parser = parse::bounded::<u64>(LIST_JOBS)
    )]
    limit: u64,
    #[command(flatten)]
    call: CallArgs,
}

pub(crate) async fn endpoints(args: EndpointsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        EndpointsCommand::List(args) => {
            args.print(async |client| client.endpoints().await, table).await?;
        }
        EndpointsCommand::Get(args) => get(args).await?,
        EndpointsCommand::Create(args) => {
            let given = EndpointInput {
                id: args.id,
                name: args.name,
                template_id: Some(args.template),
                ..args.options.document()
            };
            let answer = args.call.connection.client()?.create_endpoint(&given).await?;
            show(&answer, args.call.json)?;
            if !args.call.json {
                let id = answer.read()?.endpoint.id;
                output::next(format_args!("gristmill submit {id} --input '{{}}' --wait"));
            }
        }
        EndpointsCommand::Update(args) => {
            let given = EndpointInput {
                name: args.name,
                template_id: args.template,
                ..args.options.document()
            };
            let client = args.call.connection.client()?;
            let answer = client.update_endpoint(args.id.as_str(), &given).await?;
            show(&answer, args.call.json)?;
        }
        EndpointsCommand::Delete(args) => {
            args.call.connection.client()?.delete_endpoint(&args.id).await?;
            output::note(format_args!("deleted endpoint `{}` and its jobs", args.id));
        }
        EndpointsCommand::Releases(OneArgs { id, call }) => {
            call.print(async |client| client.releases(&id).await, release_table).await?;
        }
        EndpointsCommand::Rollback(args) => roll_back(args).await?,
        EndpointsCommand::Requests(RequestsArgs { id, status, limit, call }) => {
            let list =
                async |client: &Client| client.http_requests(&id, limit, status.as_deref()).await;
            call.print(list, request_table).await?;
        }
        EndpointsCommand::Deliveries(OneArgs { id, call }) => {
            call.print(async |client| client.deliveries(&id).await, delivery_table).await?;
        }
        EndpointsCommand::RotateWebhookSecret(args) => rotate_webhook_secret(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows an endpoint, with the variables of its template, which its handlers get too.
async fn get(args: OneArgs) -> anyhow::Result<()> {
    let client = args.call.connection.client()?;
    let answer = client.endpoint(&args.id).await?;
    if args.call.json {
        return output::result(answer.text());
    }
    // All fields, also those of a later version.
    let mut fields: serde_json::Map<String, serde_json::Value> = answer.read_as()?;
    let template = answer.read()?.template_id;
    match client.template(template.as_str(), TemplateFilter::ALL).await {
        Ok(template) => {
            let env = serde_json::to_value(template.read()?.env)?;
            fields.insert(TEMPLATE_ENV.to_owned(), env);
        }
        // It was deleted, and the endpoint keeps its variables.
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    resource::fields(&fields).into_iter().try_for_each(output::result)
}

fn table(endpoints: Vec<Endpoint>) -> Vec<String> {
    let rows = endpoints.into_iter().map(|endpoint| {
        let settings = &endpoint.settings;
        let scaler = match settings.scaler_type {
            ScalerType::QueueDelay => "queue-delay",
            ScalerType::RequestCount => "request-count",
        };
        [
            endpoint.id.to_string(),
            match endpoint.template_is_deleted {
                true => format!("{} (deleted)", endpoint.template_id),
                false => endpoint.template_id.to_string(),
            },
            endpoint.version.to_string(),
            match settings.paused {
                true => format!("{}-{} (paused)", settings.workers_min, settings.workers_max),
                false => format!("{}-{}", settings.workers_min, settings.workers_max),
            },
            format!("{scaler}:{}", settings.scaler_value),
            endpoint.created_at,
        ]
    });
    let headings = ["ID", "TEMPLATE", "VERSION", "WORKERS", "SCALER", "CREATED"];
    output::table(headings, rows)
}

fn release_table(releases: Vec<Release>) -> Vec<String> {
    let rows = releases.into_iter().map(|release| {
        let sha256 = release.sha256.get(..12).unwrap_or(&release.sha256).to_owned();
        [release.version.to_string(), release.released_at, sha256, output::plain(&release.image)]
    });
    output::table(["VERSION", "RELEASED", "SHA256", "IMAGE"], rows)
}

fn request_table(requests: Vec<HttpRequest>) -> Vec<String> {
    let rows = requests.into_iter().map(|request| {
        [
            request.at,
            request.status.to_string(),
            output::plain(&request.method),
            output::plain(&request.path),
            format!("{} ms", request.waited_ms),
            format!("{} ms", request.ran_ms),
            output::size(request.bytes_in),
            output::size(request.bytes_out),
            request.worker_id.unwrap_or_else(|| "-".to_owned()),
            request.id,
            request.code.unwrap_or_default(),
        ]
    });
    let headings =
        ["AT", "STATUS", "METHOD", "PATH", "WAITED", "RAN", "IN", "OUT", "WORKER", "ID", "CODE"];
    output::table(headings, rows)
}

async fn roll_back(args: RollbackArgs) -> anyhow::Result<()> {
    let RollbackArgs { id, to, call: CallArgs { json, connection } } = args;
    let client = connection.client()?;
    let to = match to {
        Some(version) => Rollback { version: Some(version.into()), from: None },
        None => before_current(&client, &id).await?,
    };
    let answer = client.roll_back(id.as_str(), &to).await;
    let answer = answer.map_err(|error| unknown_outcome(error, &id, &to))?;
    if json {
        return output::result(answer.text());
    }
    let Release { version, image, .. } = answer.read()?;
    output::note(format_args!("endpoint `{id}` runs {image} as version {version}"));
    Ok(())
}

/// The release before the current one, which the host chooses. It refuses the call if the endpoint
/// is changed meanwhile, for example by the same command of another operator.
async fn before_current(client: &Client, id: &EndpointId) -> anyhow::Result<Rollback> {
    let from = client.endpoint(id.as_str()).await?.read()?.version;
    Ok(Rollback { version: None, from: Some(from.into()) })
}

/// The error of a rollback. If the host may have carried it out, a second call could undo it, so
/// the error names the way to find out.
fn unknown_outcome(error: ClientError, id: &EndpointId, to: &Rollback) -> anyhow::Error {
    let is_unknown = matches!(error, ClientError::Interrupted(_) | ClientError::Garbled(_));
    let error = anyhow::Error::new(error);
    if !is_unknown || to.version.is_some() {
        return error;
    }
    error.context(format!(
        "the endpoint may have been rolled back; `gristmill endpoints releases {id}` shows its handlers, and \
         `gristmill endpoints rollback {id} --to VERSION` can be repeated"
    ))
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
    let answer = args.call.connection.client()?.rotate_webhook_secret(&args.id).await?;
    if args.call.json {
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
    fn a_rollback_without_an_answer_says_how_to_go_on() {
        let id: EndpointId = "mill".parse().unwrap();
        let shown = |error, version| {
            let to = Rollback { version, from: Some(3) };
            format!("{:#}", unknown_outcome(error, &id, &to))
        };
        let broken = || ClientError::Interrupted("the connection broke".to_owned());
        let expected = "the endpoint may have been rolled back; `gristmill endpoints releases mill` shows its \
                        handlers, and `gristmill endpoints rollback mill --to VERSION` can be repeated: the \
                        connection broke";
        assert_eq!(shown(broken(), None), expected);
        assert_eq!(shown(broken(), Some(2)), "the connection broke", "it can be repeated as it is");
        let unsent = ClientError::Unsendable("it is no JSON".to_owned());
        assert_eq!(shown(unsent, None), "it is no JSON");
    }
}
