//! `gristmill templates`: definitions of the image that workers run.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use gristmill_client::TemplateFilter;
use gristmill_client::wire::management::{Template, TemplateInput};

use crate::arguments::given;
use crate::arguments::parse;
use crate::output;
use crate::resource::{CallArgs, OneArgs, show};

/// Create, list, change and delete templates.
#[derive(Debug, Args)]
pub struct TemplatesArgs {
    #[command(subcommand)]
    command: TemplatesCommand,
}

#[derive(Debug, Subcommand)]
enum TemplatesCommand {
    /// List all templates, including templates in use and templates of other owners.
    List(CallArgs),
    /// Show a template.
    Get(OneArgs),
    Create(CreateArgs),
    Update(UpdateArgs),
    /// Delete a template that no endpoint uses.
    Delete(OneArgs),
}

/// Create a template.
#[derive(Debug, Args)]
struct CreateArgs {
    /// Its name, unique among your own.
    #[arg(long)]
    name: String,
    /// The handler that it runs: name:tag, name@sha256:…, or an image in a registry.
    #[arg(long)]
    image: String,
    #[command(flatten)]
    options: TemplateOptions,
    #[command(flatten)]
    call: CallArgs,
}

/// Change the given fields of a template.
#[derive(Debug, Args)]
struct UpdateArgs {
    /// Its id.
    id: String,
    /// A new name.
    #[arg(long)]
    name: Option<String>,
    /// The handler that it runs from now on.
    #[arg(long)]
    image: Option<String>,
    #[command(flatten)]
    options: TemplateOptions,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct TemplateOptions {
    /// An environment variable of the handler; may be repeated. Replaces all earlier variables.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::env_var)]
    env: Vec<parse::EnvVar>,
    /// The first part of the handler's arguments; may be repeated.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// The second part of the handler's arguments; may be repeated.
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Scratch space, in gigabytes.
    #[arg(long, value_name = "GB")]
    container_disk: Option<u32>,
    /// Where a volume is mounted.
    #[arg(long, value_name = "PATH")]
    volume_mount_path: Option<String>,
    /// The credentials for the image's registry.
    #[arg(long, value_name = "ID")]
    registry_auth: Option<String>,
    /// A Markdown file that describes the template.
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    /// Whether other owners may see the whole template, including its environment, and use it.
    #[arg(long, value_name = "BOOL")]
    public: Option<bool>,
    /// Whether it is a platform template, for all owners. Only for templates of the operator, with
    /// an admin key.
    #[arg(long, value_name = "BOOL")]
    platform: Option<bool>,
}

impl TemplateOptions {
    fn document(
        self,
        name: Option<String>,
        image: Option<String>,
    ) -> anyhow::Result<TemplateInput> {
        let readme = match self.readme {
            Some(file) => Some(
                std::fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?,
            ),
            None => None,
        };
        Ok(TemplateInput {
            name,
            image_name: image,
            docker_entrypoint: given(self.entrypoint),
            docker_start_cmd: given(self.args),
            env: given(self.env).map(parse::environment),
            container_disk_in_gb: self.container_disk,
            volume_mount_path: self.volume_mount_path,
            container_registry_auth_id: self.registry_auth,
            readme,
            is_public: self.public,
            is_platform: self.platform,
            ..TemplateInput::default()
        })
    }
}

pub(crate) async fn templates(args: TemplatesArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TemplatesCommand::List(args) => {
            args.print(async |client| client.templates(TemplateFilter::ALL).await, table).await?;
        }
        TemplatesCommand::Get(args) => get(args).await?,
        TemplatesCommand::Create(args) => {
            let document = args.options.document(Some(args.name), Some(args.image))?;
            let client = args.call.connection.client()?;
            let answer = client.create_template(&document).await?;
            show(&answer, args.call.json)?;
            if !args.call.json {
                let id = answer.read()?.id;
                output::next(format_args!("gristmill endpoints create --template {id}"));
            }
        }
        TemplatesCommand::Update(args) => {
            let document = args.options.document(args.name, args.image)?;
            let client = args.call.connection.client()?;
            show(&client.update_template(&args.id, &document).await?, args.call.json)?;
        }
        TemplatesCommand::Delete(args) => {
            args.call.connection.client()?.delete_template(&args.id).await?;
            output::note(format_args!("deleted template `{}`", args.id));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(templates: Vec<Template>) -> Vec<String> {
    let rows = templates.into_iter().map(|template| {
        let of = match (template.is_platform, template.is_public) {
            (true, _) => "platform",
            (false, true) => "public",
            (false, false) => "private",
        };
        let [name, image] = [&template.name, &template.image_name].map(|text| output::plain(text));
        [template.id.to_string(), image, of.to_owned(), name]
    });
    output::table(["ID", "IMAGE", "VISIBLE", "NAME"], rows)
}

async fn get(args: OneArgs) -> anyhow::Result<()> {
    // One object, with the flags of the list, so that templates in use are found too.
    let answer = args.call.connection.client()?.template(&args.id, TemplateFilter::ALL).await?;
    show(&answer, args.call.json)
}
