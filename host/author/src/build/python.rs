//! Builds Python with the SDK's own `gristmill.build`, run by the Python of the project's virtual
//! environment, or else by the Python in the path.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::tool::{self, Missing};

/// The command that installs the packages for a project's builds.
pub(crate) const INSTALL: &str = ".venv/bin/pip install -r requirements.txt";

/// Ends with 3 for a Python that is too old; otherwise prints the missing packages.
const PROBE: &str = "import importlib.util, sys
if sys.version_info < (3, 11): sys.exit(3)
for name in ('gristmill', 'componentize_py'):
    if importlib.util.find_spec(name) is None: print(name)";

/// Builds `output` of the project in `dir`.
///
/// # Errors
/// [`Missing`] without Python or the packages; or that the build failed.
pub(super) async fn build(dir: &Path, output: &Path) -> anyhow::Result<()> {
    let (python, has_environment) = find(dir).await?;
    let mut probe = tool::command(&python)?;
    // Not from the project's directory: a module of the same name there is not the package.
    probe.args(["-c", PROBE]).current_dir("/");
    let Some(probed) = tool::ask(probe).await? else { return Err(no_python().into()) };
    let make = if has_environment { "" } else { "python3 -m venv .venv && " };
    match probed.status.code() {
        Some(0) => {}
        Some(3) => return Err(no_python().into()),
        _ => bail!(
            "{} cannot be used: {}",
            python.display(),
            String::from_utf8_lossy(&probed.stderr).trim()
        ),
    }
    let lacking = String::from_utf8_lossy(&probed.stdout);
    if let Some(package) = lacking.split_whitespace().next() {
        let package = package.replace('_', "-");
        let what = format!("the package {package} is missing in {}", python.display());
        return Err(Missing::new(what, format!("{make}{INSTALL}")).into());
    }
    let mut command = tool::command(&python)?;
    command.args(["-m", "gristmill.build", ".", "-o"]).arg(output).current_dir(dir);
    tool::run(command, no_python).await
}

/// The Python to run, and whether it is the project's own.
async fn find(dir: &Path) -> anyhow::Result<(PathBuf, bool)> {
    let own = std::path::absolute(dir.join(".venv/bin/python"))?;
    if own.exists() {
        return Ok((own, true));
    }
    for name in ["python3", "python"] {
        if tool::is_there(name).await? {
            return Ok((name.into(), false));
        }
    }
    Err(no_python().into())
}

fn no_python() -> Missing {
    Missing::new(
        "Python 3.11 or newer is missing, which builds handlers in Python",
        "apt install python3 python3-venv    # or from https://www.python.org/downloads",
    )
}
