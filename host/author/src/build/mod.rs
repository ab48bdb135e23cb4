//! `gristmill build`: the component of a project, made with the toolchain of its language.

mod javascript;
mod preinit;
mod python;
mod rust;
mod tool;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use gristmill_commands::arguments::component_file;
use gristmill_commands::output;
use gristmill_json_schema::SchemaText;
use gristmill_runtime::compile::input_schema::with_input_schema;
use serde::{Deserialize, Serialize};

pub(crate) use javascript::{Engine, INSTALL as JAVASCRIPT_INSTALL};
pub(crate) use python::INSTALL as PYTHON_INSTALL;
pub(crate) use tool::Missing;

use super::project::{FILE_NAME, Language, Project};
use super::sources::{OPTIONS_SUFFIX, is_changed_since};

/// Build a project's component.
///
/// Runs the toolchain of its language: cargo for Rust, the SDK's own build for Python and
/// JavaScript. The component is written to build/NAME.wasm, or to the path in gristmill.toml.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The project [default: the current directory].
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    options: BuildOptions,
}

/// How a project is built.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Build")]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BuildOptions {
    /// The profile of cargo to build with, for Rust [default: release].
    #[arg(long)]
    profile: Option<String>,
    /// Call the handler's `init` now, and keep the resulting state in the component, for Rust. The
    /// toolchains of Python and JavaScript always run the whole module during the build.
    #[arg(long)]
    preinit: bool,
    /// The engine inside the component, for JavaScript [default: quickjs].
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Whether the component got the schema of a file, `input-schema` of the project. This is a
    /// note of the last build, and changes nothing at the next one.
    #[arg(skip)]
    pub(crate) has_schema_of_file: bool,
}

impl BuildOptions {
    /// The options with which the project's component was built, so that a later command can build
    /// it again in the same way.
    pub(crate) fn of_last_build(project: &Project) -> Self {
        let kept = fs::read(Self::path(project)).ok();
        kept.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Keeps them beside the component. Default options need no file.
    fn keep(&self, project: &Project) -> std::io::Result<()> {
        let path = Self::path(project);
        if *self != Self::default() {
            return fs::write(path, serde_json::to_vec(self)?);
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(project: &Project) -> PathBuf {
        project.component_path().with_extension(OPTIONS_SUFFIX.trim_start_matches('.'))
    }
}

/// A component that was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) path: PathBuf,
    pub(crate) component: bytes::Bytes,
    pub(crate) took: Duration,
}

/// Carries out `gristmill build`.
///
/// # Errors
/// Those of the project, its tools and its source.
pub async fn run(args: BuildArgs) -> anyhow::Result<ExitCode> {
    let project = open(args.dir.as_deref())?;
    let Built { path, component, took } = build(&project, &args.options).await?;
    let (size, seconds) = (output::size(component.len() as u64), took.as_secs_f64());
    output::note(format_args!("built {} in {seconds:.1} s, {size}", project.handler.name));
    output::result(path.strip_prefix(".").unwrap_or(&path).display())?;
    let dir = args.dir.map(|dir| format!(" {}", output::in_shell(&dir.display().to_string())));
    let dir = dir.unwrap_or_default();
    output::next(format_args!("gristmill run{dir}, gristmill test{dir}, or gristmill deploy{dir}"));
    Ok(ExitCode::SUCCESS)
}

/// The project in a directory, or in the current one.
///
/// # Errors
/// When there is none, or its file is invalid.
pub(crate) fn open(dir: Option<&Path>) -> anyhow::Result<Project> {
    let dir = dir.unwrap_or_else(|| Path::new("."));
    Project::find(dir)?.ok_or_else(|| {
        anyhow!(
            "there is no {FILE_NAME} in {}: `gristmill new NAME --lang rust|python|js` \
             creates a project",
            dir.display()
        )
    })
}

/// Builds a project's component. Its file gets the time at which the build began, so that a source
/// which changes during the build is newer.
///
/// # Errors
/// [`Missing`] when a tool is not installed; or the failure of the build, which the toolchain has
/// explained on standard error.
pub(crate) async fn build(project: &Project, options: &BuildOptions) -> anyhow::Result<Built> {
    let started = Instant::now();
    let language = project.handler.language;
    check(language, options)?;
    let path = project.component_path();
    let output = std::path::absolute(&path)?;
    let parent = output.parent().with_context(|| format!("{} is not a file", path.display()))?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let began = run_toolchain(project, options, &output, parent).await?;
    if options.preinit && language != Language::Rust {
        output::note(
            "--preinit changes nothing: the module has run, and is part of the component as it was \
             then; what an `init` does needs the host, and is done in each instance",
        );
    }
    let schema = project.input_schema_path();
    let has_schema_of_file = schema.is_some();
    let component = match schema {
        Some(schema) => add_schema(&schema, &output, parent)?,
        None => component_file::read(&output)?,
    };
    let dated = fs::File::open(&output).and_then(|file| file.set_modified(began));
    dated.with_context(|| format!("cannot set the time of {}", path.display()))?;
    let noted = BuildOptions { has_schema_of_file, ..options.clone() };
    noted.keep(project).context("cannot note the options of the build")?;
    Ok(Built { path, component, took: started.elapsed() })
}

/// Runs the toolchain of the project's language, which writes `output`. Returns the time of a file
/// that was created before the toolchain read a source.
async fn run_toolchain(
    project: &Project,
    options: &BuildOptions,
    output: &Path,
    parent: &Path,
) -> anyhow::Result<SystemTime> {
    let dir = &project.dir;
    let mut began = file_time(parent)?;
    match project.handler.language {
        Language::Rust => {
            let profile = options.profile.as_deref().unwrap_or("release");
            let mut built = rust::build(dir, profile).await?;
            // Cargo itself writes this source if a dependency is new. A second run compiles nothing
            // unless a source has changed, and leaves the file as it is, so that the component is
            // not older than it.
            let lock = dir.join("Cargo.lock").metadata();
            if lock.is_ok_and(|lock| is_changed_since(&lock, began)) {
                began = file_time(parent)?;
                built = rust::build(dir, profile).await?;
            }
            let mut component = component_file::read(&built)?.to_vec();
            if options.preinit {
                component = preinit::initialized(project, &component).await?;
            }
            replace(output, parent, &component)?;
        }
        Language::Python => python::build(dir, output).await?,
        Language::Javascript => {
            let engine = options.engine.unwrap_or(Engine::Quickjs);
            javascript::build(dir, output, engine).await?;
        }
    }
    Ok(began)
}

/// The time that a new file in a directory has. The clock of the system is ahead of it, by up to 10
/// ms on Linux, and a file on a network has the time of its server.
fn file_time(dir: &Path) -> anyhow::Result<SystemTime> {
    let time = tempfile::tempfile_in(dir).and_then(|file| file.metadata()?.modified());
    time.with_context(|| format!("cannot create a file in {}", dir.display()))
}

/// Adds the schema of the input to the component; returns the component.
fn add_schema(schema: &Path, output: &Path, parent: &Path) -> anyhow::Result<bytes::Bytes> {
    let name = schema.display();
    let text = fs::read_to_string(schema)
        .with_context(|| format!("cannot read the input schema {name}"))?;
    let schema =
        SchemaText::parse(&text).with_context(|| format!("cannot use the input schema {name}"))?;
    let component = with_input_schema(&component_file::read(output)?, &schema);
    replace(output, parent, &component)?;
    Ok(component.into())
}

/// Refuses options of another language.
fn check(language: Language, options: &BuildOptions) -> anyhow::Result<()> {
    let foreign = [
        ("--profile", "rust", options.profile.is_some() && language != Language::Rust),
        ("--engine", "javascript", options.engine.is_some() && language != Language::Javascript),
    ];
    for (option, of, is_foreign) in foreign {
        ensure!(!is_foreign, "{option} is for projects in {of}; this one is in {language}");
    }
    Ok(())
}

/// Replaces a file atomically, so that no reader sees half of it.
fn replace(path: &Path, parent: &Path, content: &[u8]) -> anyhow::Result<()> {
    let write = || {
        // With the permissions of a usual new file, not the private ones of a temporary one.
        let mode = fs::Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(parent)?;
        file.write_all(content)?;
        file.persist(path)?;
        std::io::Result::Ok(())
    };
    match write() {
        Ok(()) => Ok(()),
        Err(error) => bail!("cannot write {}: {error}", path.display()),
    }
}
