//! Which handler the argument of `run` and `test` means.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use bytes::Bytes;

use crate::cli::component_file;
use crate::cli::project::{FILE_NAME, Project};

/// A component, and the directory where its inputs and cases lie.
#[derive(Debug)]
pub(crate) struct Chosen {
    component: PathBuf,
    /// The project's directory; for a component that was named, the current one.
    pub(crate) dir: PathBuf,
    /// The project whose component it is. A component that was named stands for itself.
    pub(crate) project: Option<Project>,
}

impl Chosen {
    /// Without an argument it is the project of the current directory, a directory is a project,
    /// and a file is a component.
    ///
    /// # Errors
    /// When there is no project, or its file is wrong.
    pub(crate) fn new(argument: Option<&Path>) -> anyhow::Result<Self> {
        let dir = match argument {
            Some(path) if !path.is_dir() => {
                let component = path.to_owned();
                return Ok(Self { component, dir: PathBuf::new(), project: None });
            }
            Some(dir) => dir,
            None => Path::new(""),
        };
        let project = Project::find(dir)?.ok_or_else(|| match argument {
            Some(dir) => anyhow!("there is no {FILE_NAME} in {}", dir.display()),
            None => anyhow!(
                "there is no {FILE_NAME} in the current directory: name a component (FILE.wasm), \
                 or the directory of a project"
            ),
        })?;
        let component = project.component_path();
        Ok(Self { component, dir: dir.to_owned(), project: Some(project) })
    }

    /// What it is called: the project's handler, or the file.
    pub(crate) fn name(&self) -> String {
        match &self.project {
            Some(project) => project.handler.name.to_string(),
            None => self.component.display().to_string(),
        }
    }

    /// Reads the component.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(crate) fn read(&self) -> anyhow::Result<Bytes> {
        if self.project.is_some() && !self.component.exists() {
            let path = self.component.display();
            bail!("the project's component {path} is not there: build it with `gristmill build`");
        }
        component_file::read(&self.component)
    }
}
