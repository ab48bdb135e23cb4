//! The component of `run`, `test` and `deploy`: a project's component is built first if it does not
//! exist, a source of the project is newer, the project has too many files to look for one, or the
//! component does not have the schema of the project.

use std::fs;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use gristmill_commands::arguments::component_file;
use gristmill_commands::output;
use gristmill_runtime::compile::input_schema::input_schema;

use super::build::{self, BuildOptions};
use super::local::ComponentSource;
use super::project::{FILE_NAME, Language, Project};
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

/// The project with a directory that programs can be started in and that can be listed: the empty
/// path of the current one cannot.
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
    let Some(schema) = project.input_schema_path() else {
        return has_schema_of_file(chosen, project).then(|| {
            format!(
                "the project's component {component} has the schema of a file, and {FILE_NAME} has \
                 no `input-schema`"
            )
        });
    };
    let text = fs::read_to_string(&schema).ok()?;
    let built = fs::read(chosen.component_path()).ok()?;
    let has_it = input_schema(&built)
        .is_ok_and(|found| found.is_some_and(|found| found.as_str() == text.trim()));
    let schema = schema.display();
    (!has_it).then(|| format!("the project's component {component} has not the schema of {schema}"))
}

/// Whether the component of a project without `input-schema` has the schema of a file: it was built
/// while the project had one.
fn has_schema_of_file(chosen: &ComponentSource, project: &Project) -> bool {
    match project.handler.language {
        // Its toolchain may have derived the schema from the annotation of the input.
        Language::Python => BuildOptions::of_last_build(project).has_schema_of_file,
        Language::Rust | Language::Javascript => {
            let built = fs::read(chosen.component_path());
            built.is_ok_and(|built| !matches!(input_schema(&built), Ok(None)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gristmill_json_schema::SchemaText;
    use gristmill_runtime::compile::input_schema::with_input_schema;

    use super::*;

    /// An empty component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    /// The reason to build a project without `input-schema` that has this component, and these
    /// options of its last build.
    fn reason(language: &str, component: &[u8], options: Option<&str>) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = format!("[handler]\nname = \"mill\"\nlanguage = \"{language}\"\n");
        fs::write(path(FILE_NAME), text).unwrap();
        fs::create_dir(path("build")).unwrap();
        fs::write(path("build/mill.wasm"), component).unwrap();
        if let Some(options) = options {
            fs::write(path("build/mill.options.json"), options).unwrap();
        }
        let built = fs::File::options().write(true).open(path("build/mill.wasm")).unwrap();
        let later = built.metadata().unwrap().modified().unwrap() + Duration::from_secs(60);
        built.set_modified(later).unwrap();
        let chosen = ComponentSource::new(Some(dir.path())).unwrap();
        reason_to_build(&chosen, chosen.project.as_ref().unwrap())
    }

    #[test]
    fn a_schema_that_the_project_no_longer_names_is_a_reason_to_build() {
        let schema = SchemaText::parse("{\"required\":[\"grain\"]}").unwrap();
        let with_schema = with_input_schema(EMPTY, &schema);
        for language in ["rust", "javascript"] {
            assert_eq!(reason(language, EMPTY, None), None, "{language}");
            let reason = reason(language, &with_schema, None).unwrap();
            assert!(
                reason.contains("gristmill.toml has no `input-schema`"),
                "{language}: {reason}"
            );
        }
        let of_file = "{\"has_schema_of_file\":true}";
        assert_eq!(reason("python", &with_schema, None), None, "it is that of an annotation");
        assert!(reason("python", &with_schema, Some(of_file)).is_some());
    }
}
