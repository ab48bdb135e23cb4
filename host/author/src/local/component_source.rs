//! The handler that the argument of `run` and `test` refers to.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::project::{FILE_NAME, Project};

/// A component, and the directory of its inputs and cases.
#[derive(Debug)]
pub(crate) struct ComponentSource {
    component: PathBuf,
    /// The project's directory; for a named component, the current one.
    pub(crate) dir: PathBuf,
    /// The component's project. A named component has none.
    pub(crate) project: Option<Project>,
}

impl ComponentSource {
    /// Without an argument it is the project of the current directory, a directory is a project,
    /// and a file is a component.
    ///
    /// # Errors
    /// When there is no such file or directory, or no project, or its file is invalid.
    pub(crate) fn new(argument: Option<&Path>) -> anyhow::Result<Self> {
        let dir = argument.unwrap_or_else(|| Path::new(""));
        if let Some(path) = argument
            && !path.metadata().with_context(|| format!("cannot read {}", path.display()))?.is_dir()
        {
            return Ok(Self { component: path.to_owned(), dir: PathBuf::new(), project: None });
        }
        let project = Project::find(dir)?.ok_or_else(|| match argument {
            Some(dir) => anyhow!("there is no {FILE_NAME} in {}", dir.display()),
            None => anyhow!(
                "there is no {FILE_NAME} in the current directory: name a component (FILE.wasm), \
                 or the directory of a project, which `gristmill new` writes"
            ),
        })?;
        let component = project.component_path();
        Ok(Self { component, dir: dir.to_owned(), project: Some(project) })
    }

    /// Its display name: the project's handler, or the file.
    pub(crate) fn name(&self) -> String {
        match &self.project {
            Some(project) => project.handler.name.to_string(),
            None => self.component.display().to_string(),
        }
    }

    /// The path of the component.
    pub(crate) fn component_path(&self) -> &Path {
        &self.component
    }
}
