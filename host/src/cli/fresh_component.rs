//! The component of `run`, `test` and `deploy`: a project's component is built first if it does not exist,
//! a source of the project is newer, or the project has too many files to look for one.

use std::fs;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use gristmill_commands::arguments::component_file;
use gristmill_commands::output;
use gristmill_runtime::compile::input_schema::input_schema;

use super::build::{self, BuildOptions};
use super::local::ComponentSource;
use super::project::Project;
use super::sources::{self, ENTRIES_MAX, Search};

/// Whether a component is built before its use.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct FreshnessOptions {
    /// Use the project's component as it is, even if a source is newer.
    #[arg(long)]
    no_build: bool,
}

/// Builds the component if that is needed, with the options of its last build, and reads it.
///
/// # Errors
/// When the build fails, or the component cannot be read or is not a component.
pub(crate) async fn read(
    chosen: &ComponentSource,
    options: FreshnessOptions,
) -> anyhow::Result<Bytes> {
    if let Some(project) = chosen.project.as_ref().filter(|_| !options.no_build)
        && let Some(reason) = reason_to_build(chosen, &in_directory(project))
    {
        let project = in_directory(project);
        output::note(format_args!("building {}: {reason}", project.handler.name));
        let built = build::build(&project, &BuildOptions::of_last_build(&project)).await;
        let built = built.with_context(|| {
            format!("{reason}, and cannot be built (--no-build uses a component as it is)")
        })?;
        return Ok(built.component);
    }
    component_file::read(chosen.component_path())
}

/// The project with a directory that programs can be started in and that can be listed: the empty path of
/// the current one cannot.
fn in_directory(project: &Project) -> Project {
    let mut project = project.clone();
    if project.dir.as_os_str().is_empty() {
        project.dir = ".".into();
    }
    project
}

fn reason_to_build(chosen: &ComponentSource, project: &Project) -> Option<String> {
    let component = chosen.component_path().display();
    let Ok(metadata) = chosen.component_path().metadata() else {
        return Some(format!("the project's component {component} does not exist"));
    };
    match sources::newer_than(&project.dir, metadata.modified().ok()?) {
        Search::AllOlder => {}
        Search::Newer(source) => {
            let source = source.display();
            return Some(format!("the project's component {component} is older than {source}"));
        }
        Search::TooManyEntries => {
            return Some(format!(
                "the project has more than {ENTRIES_MAX} files and directories, too many to look \
                 for a newer source"
            ));
        }
    }
    let schema = project.input_schema_path()?;
    let text = fs::read_to_string(&schema).ok()?;
    let built = fs::read(chosen.component_path()).ok()?;
    let has_it = input_schema(&built)
        .is_ok_and(|found| found.is_some_and(|found| found.as_str() == text.trim()));
    let schema = schema.display();
    (!has_it).then(|| format!("the project's component {component} has not the schema of {schema}"))
}
