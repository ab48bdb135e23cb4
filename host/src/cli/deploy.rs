//! `gristmill deploy`: uploads a component, and creates or updates its template and endpoint.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use gristmill_core::egress::HostPattern;
use gristmill_core::endpoint::{Metering, Reuse, SandboxLimits, Scaler, Scaling};
use gristmill_core::id::EndpointId;
use gristmill_core::limits::EXECUTION_TIMEOUT_MS;
use serde_json::json;

use super::connection::ConnectionArgs;
use super::local::ComponentSource;
use super::project::Project;
use super::retention::RetentionOptions;
use super::{output, parse, progress};
use crate::client::{
    Answer, Client, Deployed, EndpointDocument, ReuseDocument, TemplateDocument, Upload,
};

/// The exit code of an invalid command line that clap cannot detect before files are read.
const WRONG_COMMAND_LINE: u8 = 2;

/// The default tag of a handler.
const DEFAULT_TAG: &str = "latest";

/// The operations whose URLs are printed: name, method, and path below the endpoint.
const OPERATIONS: [(&str, &str, &[&str]); 8] = [
    ("run", "POST", &["run"]),
    ("runsync", "POST", &["runsync"]),
    ("status", "GET", &["status", "JOB"]),
    ("stream", "GET", &["stream", "JOB"]),
    ("cancel", "POST", &["cancel", "JOB"]),
    ("retry", "POST", &["retry", "JOB"]),
    ("purge-queue", "POST", &["purge-queue"]),
    ("health", "GET", &["health"]),
];

/// Upload a handler and create or update its endpoint.
///
/// The template and the endpoint both get the id NAME. If they exist already, the given options
/// change them, and all other settings are unchanged.
#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    /// The handler: a WebAssembly component, or a project's directory [default: the project of the
    /// current directory]. Options that are not given come from the project's file.
    #[arg(value_name = "FILE.wasm|DIR")]
    handler: Option<PathBuf>,
    /// The id of the endpoint; needed for a component, and otherwise the project's name.
    #[arg(long)]
    name: Option<EndpointId>,
    /// The tag of the uploaded handler.
    #[arg(long, default_value = DEFAULT_TAG)]
    tag: String,
    /// An environment variable of the handler; may be repeated. Replaces all variables of an
    /// earlier deploy.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::env_var)]
    env: Vec<parse::EnvVar>,
    /// An argument of the handler; may be repeated. Replaces all arguments of an earlier deploy.
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Where the handler finds its network volume [default: /workspace].
    #[arg(long, value_name = "PATH", value_parser = parse::mount_path)]
    mount_path: Option<String>,
    /// Scratch space of each job, at /tmp, in gigabytes; 0: none [default: 0].
    #[arg(long, value_name = "GB")]
    scratch_gb: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    endpoint: EndpointOptions,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Endpoint")]
pub(crate) struct EndpointOptions {
    /// Workers that are kept even when no job waits [default: 0].
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u32>(Scaling::WORKERS_MAX))]
    workers_min: Option<u32>,
    /// Most workers, each with one job at a time; 0 pauses the endpoint [default: 16].
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u32>(Scaling::WORKERS_MAX))]
    workers_max: Option<u32>,
    /// Seconds for which a worker waits for another job before it ends [default: 5].
    #[arg(long, value_name = "S", value_parser = parse::bounded::<u32>(Scaling::IDLE_TIMEOUT_S))]
    idle_timeout: Option<u32>,
    /// When to start a further worker: queue-delay:SECONDS, when a job has waited for so long, or
    /// request-count:JOBS, when there are more jobs for each worker [default: request-count:1].
    #[arg(long, value_name = "TYPE:N", value_parser = parse::scaler)]
    scaler: Option<Scaler>,
    /// Most jobs that may wait; 0 restores the host's bound [default: the host's bound].
    #[arg(long, value_name = "N")]
    max_waiting_jobs: Option<u32>,
    /// How long a job may run unless its submission sets another time, in milliseconds [default:
    /// 600000].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(EXECUTION_TIMEOUT_MS))]
    execution_timeout: Option<u64>,
    /// Memory of one job, in MiB [default: 256].
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u64>(SandboxLimits::MEMORY_MIB))]
    memory_mib: Option<u64>,
    /// Fuel of one job [default: derived from its timeout].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_fuel: Option<u64>,
    /// How computing is metered [default: fuel].
    #[arg(long, value_parser = parse::metering())]
    metering: Option<Metering>,
    /// Most jobs of one instance of the handler, for handlers with a costly start: a job finds the
    /// memory as the previous job left it [default: 1].
    #[arg(long, value_name = "JOBS", value_parser = parse::bounded::<u32>(Reuse::JOBS_MAX))]
    reuse: Option<u32>,
    /// Seconds for which an instance waits for its next job [default: 60].
    #[arg(long, value_name = "S", value_parser = parse::bounded::<u32>(Reuse::IDLE_S))]
    reuse_idle: Option<u32>,
    /// A host that the handler may call, such as example.com or *.example.com:8443; may be
    /// repeated. Replaces all hosts of an earlier deploy.
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<HostPattern>,
    /// The id of the network volume that the handler sees; an empty id removes it.
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
    #[command(flatten)]
    retention: RetentionOptions,
}

impl EndpointOptions {
    /// The fields that are given.
    pub(crate) fn document(self) -> EndpointDocument {
        EndpointDocument {
            template_id: None,
            workers_min: self.workers_min,
            workers_max: self.workers_max,
            idle_timeout: self.idle_timeout,
            scaler_type: self.scaler.map(|scaler| match scaler {
                Scaler::QueueDelay(_) => "QUEUE_DELAY",
                Scaler::RequestCount(_) => "REQUEST_COUNT",
            }),
            scaler_value: self.scaler.map(Scaler::value),
            max_waiting_jobs: self.max_waiting_jobs,
            execution_timeout_ms: self.execution_timeout,
            memory_mib: self.memory_mib,
            max_fuel: self.max_fuel,
            metering: self.metering,
            reuse: (self.reuse.is_some() || self.reuse_idle.is_some())
                .then_some(ReuseDocument { max_jobs: self.reuse, max_idle: self.reuse_idle }),
            allowed_hosts: given(self.allowed_hosts)
                .map(|hosts| hosts.into_iter().map(String::from).collect()),
            network_volume_id: self.volume,
            retention: self.retention.document(),
        }
    }
}

/// `None` for an option that was not given.
pub(crate) fn given<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

/// The parts of a deploy.
#[derive(Debug)]
pub(crate) struct Deployable {
    /// The id of the template and of the endpoint, and the name of the image.
    pub(crate) name: EndpointId,
    /// The image's tag.
    pub(crate) tag: String,
    pub(crate) component: Bytes,
    pub(crate) template: TemplateDocument,
    pub(crate) endpoint: EndpointDocument,
}

impl Deployable {
    /// A project with a component.
    pub(crate) fn of_project(project: &Project, component: Bytes) -> Self {
        let hosts = project.allowed_hosts.iter().cloned().map(String::from).collect();
        Self {
            name: project.handler.name.clone(),
            tag: DEFAULT_TAG.to_owned(),
            component,
            template: TemplateDocument {
                env: Some(project.env.clone()),
                container_disk_in_gb: project.limits.given_scratch_gb(),
                ..TemplateDocument::default()
            },
            endpoint: EndpointDocument { allowed_hosts: Some(hosts), ..project.limits.document() },
        }
    }

    /// Uploads the component, and creates or updates the template and the endpoint.
    ///
    /// # Errors
    /// When the host refuses one of them.
    pub(crate) async fn put(self, client: &Client) -> anyhow::Result<(Upload, Deployed)> {
        let Self { name, tag, component, template, endpoint } = self;
        let upload = upload(client, &format!("{name}:{tag}"), component).await?;
        let upload: Upload = upload.read()?;
        let template = TemplateDocument {
            image_name: Some(upload.image.clone()),
            is_serverless: Some(true),
            ..template
        };
        client.deploy_template(&name, &template).await?;
        let endpoint = EndpointDocument { template_id: Some(name.to_string()), ..endpoint };
        let deployed = client.deploy_endpoint(&name, &endpoint).await?;
        Ok((upload, deployed))
    }
}

impl DeployArgs {
    /// The options, completed by the project. `None` when neither has the endpoint's name.
    fn deployable(
        self,
        chosen: &ComponentSource,
    ) -> anyhow::Result<Option<(Deployable, ConnectionArgs)>> {
        let component = chosen.read()?;
        let of_project = chosen
            .project
            .as_ref()
            .map(|project| Deployable::of_project(project, component.clone()));
        let (template, endpoint, name) = match of_project {
            Some(Deployable { template, endpoint, name, .. }) => (template, endpoint, Some(name)),
            None => Default::default(),
        };
        let Some(name) = self.name.or(name) else { return Ok(None) };
        let mut env = template.env;
        if !self.env.is_empty() {
            env.get_or_insert_default().extend(parse::environment(self.env));
        }
        let template = TemplateDocument {
            docker_start_cmd: given(self.args),
            env,
            container_disk_in_gb: self.scratch_gb.or(template.container_disk_in_gb),
            volume_mount_path: self.mount_path,
            ..template
        };
        let options = self.endpoint.document();
        let endpoint = EndpointDocument {
            memory_mib: options.memory_mib.or(endpoint.memory_mib),
            execution_timeout_ms: options.execution_timeout_ms.or(endpoint.execution_timeout_ms),
            max_fuel: options.max_fuel.or(endpoint.max_fuel),
            metering: options.metering.or(endpoint.metering),
            allowed_hosts: options.allowed_hosts.or(endpoint.allowed_hosts),
            ..options
        };
        let deployable = Deployable { name, tag: self.tag, component, template, endpoint };
        Ok(Some((deployable, self.connection)))
    }
}

pub(crate) async fn deploy(args: DeployArgs) -> anyhow::Result<ExitCode> {
    let chosen = ComponentSource::new(args.handler.as_deref())?;
    let as_json = args.json;
    let Some((deployable, connection)) = args.deployable(&chosen)? else {
        output::error("a component has no name of its own: name the endpoint with --name NAME");
        return Ok(ExitCode::from(WRONG_COMMAND_LINE));
    };
    let client = connection.client()?;
    let name = deployable.name.clone();
    let (upload, deployed) = deployable.put(&client).await?;
    if as_json {
        output::result(report(&client, &name, &upload, deployed))?;
    } else {
        show(&client, &name, &upload, deployed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Uploads a component, and shows the progress.
pub(super) async fn upload(
    client: &Client,
    image: &str,
    component: Bytes,
) -> anyhow::Result<Answer> {
    let len = component.len() as u64;
    let bar = progress::bytes_bar(len, "uploading");
    let on_sent = {
        let bar = bar.clone();
        Arc::new(move |sent| {
            bar.set_position(sent);
            if sent == len {
                progress::become_spinner(&bar, "the host checks and compiles it");
            }
        })
    };
    let uploaded = client.upload(image, component, on_sent).await;
    bar.finish_and_clear();
    Ok(uploaded?)
}

fn report(
    client: &Client,
    name: &EndpointId,
    upload: &Upload,
    deployed: Deployed,
) -> serde_json::Value {
    let urls: serde_json::Map<_, _> = OPERATIONS
        .iter()
        .map(|(operation, _, path)| {
            ((*operation).to_owned(), client.queue_url(name, path).as_str().into())
        })
        .collect();
    json!({
        "endpoint": name,
        "created": deployed == Deployed::Created,
        "image": upload.image,
        "sha256": upload.sha256,
        "sizeInBytes": upload.size_in_bytes,
        "compileMs": upload.compile_ms,
        "urls": urls,
    })
}

fn show(
    client: &Client,
    name: &EndpointId,
    upload: &Upload,
    deployed: Deployed,
) -> anyhow::Result<()> {
    let verb = match deployed {
        Deployed::Created => "created",
        Deployed::Updated => "updated",
    };
    output::note(format_args!(
        "{verb} endpoint `{name}`: {}, {}, sha256 {}, compiled in {} ms\n",
        upload.image,
        output::size(upload.size_in_bytes),
        upload.sha256.get(..12).unwrap_or(&upload.sha256),
        upload.compile_ms
    ));
    for (operation, method, path) in OPERATIONS {
        output::result(format_args!(
            "{operation:<11}  {method:<4}  {}",
            client.queue_url(name, path)
        ))?;
    }
    output::note(format_args!("\ntry it:\n  gristmill submit {name} --wait --input '{{}}'"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_every_url() {
        let client = Client::new("http://h:1".parse().unwrap(), None, None).unwrap();
        let upload = Upload {
            image: "echo:latest".into(),
            sha256: "ab".repeat(32),
            size_in_bytes: 5,
            compile_ms: 7,
        };
        let name = EndpointId::new("echo").unwrap();
        let report = report(&client, &name, &upload, Deployed::Created);
        assert_eq!(report["created"], true);
        assert_eq!(report["urls"]["run"], "http://h:1/v2/echo/run");
        assert_eq!(report["urls"]["stream"], "http://h:1/v2/echo/stream/JOB");
        assert_eq!(report["urls"].as_object().unwrap().len(), OPERATIONS.len());
    }

    #[test]
    fn options_that_are_not_given_are_not_sent() {
        assert_eq!(given(Vec::<u8>::new()), None);
        assert_eq!(given(vec![1]), Some(vec![1]));
    }
}
