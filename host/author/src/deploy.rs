//! `gristmill deploy`: uploads a component, and creates or updates its template and endpoint.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gristmill_client::wire::id::{EndpointId, TemplateId};
use gristmill_client::wire::management::{EndpointInput, EndpointType, Handler, TemplateInput};
use gristmill_client::{Client, Deployed, DeployedEndpoint};
use gristmill_commands::arguments::parse;
use gristmill_commands::arguments::{ConnectionArgs, EndpointOptions, given};
use gristmill_commands::calls::upload;
use gristmill_commands::output;
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::job::payload::Json;
use gristmill_json_schema::{Budget, InputSchema};
use gristmill_runtime::compile::handler_kinds::handler_kinds;
use gristmill_runtime::compile::input_schema::input_schema;
use gristmill_samples::Sample;
use serde_json::json;
use serde_json::value::RawValue;

use super::fresh_component::{self, FreshnessOptions};
use super::local::ComponentSource;
use super::project::Project;
use super::{domain_values, test_input};

/// The exit code of an invalid command line that clap cannot detect before files are read.
const WRONG_COMMAND_LINE: u8 = 2;

/// The default tag of a handler.
const DEFAULT_TAG: &str = "latest";

/// The operations on jobs whose URLs are printed: name, method, and path below the endpoint.
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
/// and the project's file change them, and all other settings are unchanged. A table `[env]`,
/// `[network]` or `[endpoints]` of the file replaces the whole setting; without the table, the
/// setting is unchanged.
///
/// The host checks all settings before the handler is uploaded: a deploy that is refused changes
/// nothing that runs. The answer about a new endpoint for jobs has the secret that its webhooks are
/// signed with.
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// The handler: a WebAssembly component, or a project's directory [default: the project of the
    /// current directory]. Options that are not given come from the project's file.
    #[arg(value_name = "FILE.wasm|DIR")]
    handler: Option<PathBuf>,
    /// Deploy a sample handler, which this program contains: no project and no compiler is needed.
    #[arg(
        long,
        value_name = "SAMPLE",
        value_parser = sample(),
        conflicts_with_all = ["handler", "no_build"]
    )]
    sample: Option<&'static Sample>,
    /// The id of the endpoint; needed for a component, and otherwise the name of the project or of
    /// the sample.
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
    #[arg(long, value_name = "PATH", value_parser = domain_values::mount_path)]
    mount_path: Option<String>,
    /// Scratch space of each job, at /tmp, in gigabytes; 0: none [default: 0].
    #[arg(long, value_name = "GB")]
    scratch_gb: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    freshness: FreshnessOptions,
    #[command(flatten)]
    endpoint: EndpointOptions,
    #[command(flatten)]
    connection: ConnectionArgs,
}

fn sample() -> impl TypedValueParser<Value = &'static Sample> {
    let names = gristmill_samples::ALL.iter().map(|sample| sample.name);
    PossibleValuesParser::new(names)
        .try_map(|name| gristmill_samples::find(&name).ok_or("there is no such sample"))
}

/// The parts of a deploy.
#[derive(Debug)]
pub(crate) struct Deployable {
    /// The id of the template and of the endpoint, and the name of the image.
    pub(crate) name: EndpointId,
    /// The image's tag.
    pub(crate) tag: String,
    pub(crate) component: Bytes,
    pub(crate) template: TemplateInput,
    pub(crate) endpoint: EndpointInput,
}

impl Deployable {
    /// A project with a component. A setting whose table the project's file does not have is not
    /// sent, so that the endpoint keeps it.
    pub(crate) fn of_project(project: &Project, component: Bytes) -> Self {
        Self {
            name: project.handler.name.clone(),
            tag: DEFAULT_TAG.to_owned(),
            component,
            template: TemplateInput {
                env: project.env.clone(),
                container_disk_in_gb: project.limits.given_scratch_gb(),
                ..TemplateInput::default()
            },
            endpoint: EndpointInput {
                allowed_hosts: project.allowed_hosts.clone(),
                call_endpoints: project.call_endpoints.clone(),
                ..project.limits.document()
            },
        }
    }

    /// Checks the settings, uploads the component, and creates or updates the template and the
    /// endpoint.
    ///
    /// The upload moves the image's name, and from then on each endpoint that runs this image runs
    /// the new component. So all that can be refused is checked before it.
    ///
    /// # Errors
    /// When the host refuses one of them. Unless the host changes between its checks and the
    /// upload, nothing that runs has changed then.
    pub(crate) async fn put(self, client: &Client) -> anyhow::Result<(Handler, DeployedEndpoint)> {
        let Self { name, tag, component, template, endpoint } = self;
        let kind = match *handler_kinds(&component) {
            [kind] => Some(EndpointType::from(kind)),
            // The endpoint keeps its type. A new one takes jobs.
            _ => None,
        };
        let image = format!("{name}:{tag}");
        let template = TemplateInput {
            image_name: Some(image.clone()),
            is_serverless: Some(true),
            ..template
        };
        let id = TemplateId::new(name.as_str())?;
        let endpoint = EndpointInput { template_id: Some(id.clone()), kind, ..endpoint };
        let is_new = client.check_template(&id, &template).await? == Deployed::Created;
        if is_new {
            // The check of the endpoint needs the template, and nothing runs with a new one.
            client.put_template(&id, &template).await?;
        }
        let uploaded = async {
            client.check_endpoint(&name, &endpoint).await?;
            anyhow::Ok(upload(client, &image, component).await?.read()?)
        };
        let uploaded = uploaded.await;
        if uploaded.is_err() && is_new {
            // The refusal matters more than a template that cannot be deleted. A template that
            // another deploy uses by now is not deleted.
            let _ = client.delete_template(id.as_str()).await;
        }
        let upload = uploaded?;
        let applied = async {
            client.put_template(&id, &template).await?;
            client.put_endpoint(&name, &endpoint).await
        };
        let half =
            || format!("`{image}` is uploaded and runs, but its settings are not all changed");
        let deployed = applied.await.with_context(half)?;
        Ok((upload, deployed))
    }
}

impl DeployArgs {
    /// The options, completed by the project or the sample. `None` when nothing has the endpoint's
    /// name.
    async fn deployable(self) -> anyhow::Result<Option<(Deployable, String, ConnectionArgs)>> {
        let (component, input, of_handler) = match self.sample {
            Some(sample) => {
                let name = EndpointId::new(sample.name)?;
                (sample.component()?.into(), format!("'{}'", sample.input), (None, Some(name)))
            }
            None => {
                let chosen = ComponentSource::new(self.handler.as_deref())?;
                let component = fresh_component::read(&chosen, self.freshness).await?;
                let input = first_input(&chosen, &component);
                let project = chosen.project.as_ref();
                let settings =
                    project.map(|project| Deployable::of_project(project, component.clone()));
                let name = settings.as_ref().map(|it| it.name.clone());
                (component, input, (settings, name))
            }
        };
        let (template, endpoint, name) = match of_handler {
            (Some(Deployable { template, endpoint, .. }), name) => (template, endpoint, name),
            (None, name) => (TemplateInput::default(), EndpointInput::default(), name),
        };
        let Some(name) = self.name.or(name) else { return Ok(None) };
        let mut env = template.env;
        if !self.env.is_empty() {
            env.get_or_insert_default().extend(parse::environment(self.env));
        }
        let template = TemplateInput {
            docker_start_cmd: given(self.args),
            env,
            container_disk_in_gb: self.scratch_gb.or(template.container_disk_in_gb),
            volume_mount_path: self.mount_path,
            ..template
        };
        let options = self.endpoint.document();
        let endpoint = EndpointInput {
            memory_mib: options.memory_mib.or(endpoint.memory_mib),
            execution_timeout_ms: options.execution_timeout_ms.or(endpoint.execution_timeout_ms),
            max_fuel: options.max_fuel.or(endpoint.max_fuel),
            metering: options.metering.or(endpoint.metering),
            allowed_hosts: options.allowed_hosts.or(endpoint.allowed_hosts),
            call_endpoints: options.call_endpoints.or(endpoint.call_endpoints),
            ..options
        };
        let deployable = Deployable { name, tag: self.tag, component, template, endpoint };
        Ok(Some((deployable, input, self.connection)))
    }
}

/// Carries out `gristmill deploy`.
///
/// # Errors
/// Those of the project and its build, and refusals of the host.
pub async fn deploy(args: DeployArgs) -> anyhow::Result<ExitCode> {
    let as_json = args.json;
    let Some((deployable, input, connection)) = args.deployable().await? else {
        output::error("a component has no name of its own: name the endpoint with --name NAME");
        return Ok(ExitCode::from(WRONG_COMMAND_LINE));
    };
    let client = connection.client()?;
    let name = deployable.name.clone();
    let started = Instant::now();
    let (upload, deployed) = deployable.put(&client).await?;
    if as_json {
        output::result(report(&client, &name, &upload, &deployed))?;
    } else {
        // The host shows the time of the compile, which it keeps for a component that it has
        // already.
        let is_compiled = started.elapsed().as_millis() >= u128::from(upload.compile_ms);
        show(&client, &name, &upload, is_compiled, &deployed, &input)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a handler takes HTTP requests only.
pub(crate) fn is_http(handler: &Handler) -> bool {
    HandlerKind::of(&handler.exports) == [HandlerKind::Http]
}

/// The operations of an endpoint that runs this handler: name, method, and URL.
fn urls(
    client: &Client,
    name: &EndpointId,
    handler: &Handler,
) -> Vec<(&'static str, &'static str, String)> {
    if is_http(handler) {
        let (own, health) = (client.http_url(name), client.queue_url(name, &["health"]));
        return vec![("http", "any", own.into()), ("health", "GET", health.into())];
    }
    let of_queue = |(operation, method, path): (_, _, &[&str])| {
        (operation, method, client.queue_url(name, path).into())
    };
    OPERATIONS.map(of_queue).into()
}

fn report(
    client: &Client,
    name: &EndpointId,
    upload: &Handler,
    deployed: &DeployedEndpoint,
) -> serde_json::Value {
    let urls: serde_json::Map<_, _> = urls(client, name, upload)
        .into_iter()
        .map(|(operation, _, url)| (operation.to_owned(), url.into()))
        .collect();
    let mut report = json!({
        "endpoint": name,
        "created": matches!(deployed, DeployedEndpoint::Created { .. }),
        "image": upload.image,
        "sha256": upload.sha256,
        "sizeInBytes": upload.size_in_bytes,
        "compileMs": upload.compile_ms,
        "urls": urls,
    });
    if let (Some(secret), Some(fields)) = (webhook_secret(upload, deployed), report.as_object_mut())
    {
        fields.insert("webhookSecret".to_owned(), secret.into());
    }
    report
}

/// The secret of a new endpoint's webhooks, which belong to jobs.
fn webhook_secret<'a>(handler: &Handler, deployed: &'a DeployedEndpoint) -> Option<&'a str> {
    match deployed {
        DeployedEndpoint::Created { webhook_secret } if !is_http(handler) => Some(webhook_secret),
        DeployedEndpoint::Created { .. } | DeployedEndpoint::Updated => None,
    }
}

fn show(
    client: &Client,
    name: &EndpointId,
    upload: &Handler,
    is_compiled: bool,
    deployed: &DeployedEndpoint,
    input: &str,
) -> anyhow::Result<()> {
    let verb = match deployed {
        DeployedEndpoint::Created { .. } => "created",
        DeployedEndpoint::Updated => "updated",
    };
    let compiled = match is_compiled {
        true => format!("compiled in {} ms", upload.compile_ms),
        false => "compiled before".to_owned(),
    };
    output::note(format_args!(
        "{verb} endpoint `{name}`: {}, {}, sha256 {}, {compiled}\n",
        upload.image,
        output::size(upload.size_in_bytes),
        upload.sha256.get(..12).unwrap_or(&upload.sha256),
    ));
    for (operation, method, url) in urls(client, name, upload) {
        output::result(format_args!("{operation:<11}  {method:<4}  {url}"))?;
    }
    if let Some(secret) = webhook_secret(upload, deployed) {
        output::note(format_args!(
            "\nits webhooks are signed with the secret {secret}, which is not shown again"
        ));
    }
    let first = match is_http(upload) {
        true => {
            let url = client.http_url(name);
            format!("curl -H \"Authorization: Bearer $GRISTMILL_API_KEY\" {url}")
        }
        false => format!("gristmill submit {name} --input {input} --wait"),
    };
    output::note(format_args!("\ntry it:\n  {first}"));
    Ok(())
}

/// The input of a first job as a word of a shell: the project's own one, if a line has room for it
/// and the component accepts it.
fn first_input(chosen: &ComponentSource, component: &[u8]) -> String {
    const BYTES_MAX: usize = 120;
    let own = chosen.project.as_ref().and_then(|project| test_input::beside(&project.dir).ok());
    let input = own.unwrap_or_else(|| Json::from_value(&json!({})));
    if !is_accepted(&input, component) {
        return "@FILE".to_owned();
    }
    let compact = serde_json::from_str::<&RawValue>(input.as_str()).ok().map(compact);
    let text = compact.unwrap_or_else(|| output::one_line(input.as_str()));
    let has_room = text.len() <= BYTES_MAX && !text.contains('\'');
    if has_room { format!("'{text}'") } else { "@FILE".to_owned() }
}

/// Whether an input fits the schema of a component, if it has one.
fn is_accepted(input: &Json, component: &[u8]) -> bool {
    let Ok(Some(schema)) = input_schema(component) else { return true };
    let Ok(schema) = InputSchema::parse(schema.as_str()) else { return true };
    schema.check(input.as_str(), Budget::FULL).is_ok()
}

/// The same JSON without blanks between its parts.
fn compact(json: &RawValue) -> String {
    let mut text = String::new();
    let (mut is_string, mut is_escaped) = (false, false);
    for c in json.get().chars() {
        if !is_string && c.is_ascii_whitespace() {
            continue;
        }
        if is_string {
            is_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else {
            is_string = c == '"';
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use gristmill_json_schema::SchemaText;
    use gristmill_runtime::compile::input_schema::with_input_schema;

    use super::*;

    /// Numbers and the order of keys stay as they are, unlike in a parsed value.
    #[test]
    fn the_suggested_input_has_no_blanks_outside_of_strings() {
        let text =
            "{\n  \"b\": \"a \\\" b\\\\\",\n  \"a\": [ 1.0, 9007199254740993 ],\n  \"\": { }\n}";
        let expected = r#"{"b":"a \" b\\","a":[1.0,9007199254740993],"":{}}"#;
        assert_eq!(compact(serde_json::from_str(text).unwrap()), expected);
    }

    #[test]
    fn an_input_is_suggested_only_if_the_component_accepts_it() {
        let component = b"\0asm\x0d\0\x01\0";
        let schema = SchemaText::parse(r#"{"required":["url"]}"#).unwrap();
        let with_schema = with_input_schema(component, &schema);
        let input = |text: &'static str| Json::parse(text).unwrap();
        assert!(is_accepted(&input(r#"{"text":"a"}"#), component));
        assert!(!is_accepted(&input(r#"{"text":"a"}"#), &with_schema));
        assert!(is_accepted(&input(r#"{"url":"a"}"#), &with_schema));
    }

    #[test]
    fn the_report_has_every_url() {
        let client = Client::builder("http://h:1".parse().unwrap()).build().unwrap();
        let upload = Handler {
            name: "echo".into(),
            tag: "latest".into(),
            image: "echo:latest".into(),
            sha256: "ab".repeat(32),
            size_in_bytes: 5,
            imports: vec![],
            exports: vec![],
            language: vec![],
            toolchain: vec![],
            compile_ms: 7,
            updated_at: "2026-01-01T00:00:00Z".into(),
        };
        let name = EndpointId::new("echo").unwrap();
        let created = DeployedEndpoint::Created { webhook_secret: "whsec_x".into() };
        let report = report(&client, &name, &upload, &created);
        assert_eq!(
            (&report["created"], &report["webhookSecret"]),
            (&json!(true), &json!("whsec_x"))
        );
        assert_eq!(report["urls"]["run"], "http://h:1/v2/echo/run");
        assert_eq!(report["urls"]["stream"], "http://h:1/v2/echo/stream/JOB");
        assert_eq!(report["urls"].as_object().unwrap().len(), OPERATIONS.len());

        let exports = vec!["wasi:http/incoming-handler@0.2.3".to_owned()];
        let report = super::report(&client, &name, &Handler { exports, ..upload }, &created);
        assert_eq!(report["urls"]["http"], "http://h:1/http/echo/");
        assert!(report.get("webhookSecret").is_none(), "{report}");
    }
}
