//! `gristmill.toml`, the file that describes a project, a directory with a handler's source:
//!
//! ```toml
//! [handler]
//! name = "greeter"                  # the id of its endpoint, and the name of its component
//! language = "rust"                 # rust, python or javascript (or js)
//! component = "build/greeter.wasm"  # where the built component lies; this is the default
//! input-schema = "schema.json"      # a JSON Schema of the input, a part of the component
//!
//! [limits]                          # as the options of `gristmill run`: memory-mib, timeout-ms,
//! memory-mib = 64                   # max-fuel, metering, scratch-gb
//!
//! [env]
//! GREETING = "hello"
//!
//! [network]
//! allow = ["example.com"]           # hosts that the handler may call
//! ```
//!
//! Only `handler.name` and `handler.language` are required. Unknown keys are refused, since a
//! mistyped key would have no effect. Options of the command line override the file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gristmill_client::wire::settings::check_env;
use gristmill_core::deploy::egress::HostPattern;
use gristmill_core::id::EndpointId;
use serde::Deserialize;

use super::limits::LimitOptions;

/// The name of the file.
pub(crate) const FILE_NAME: &str = "gristmill.toml";

/// A project file, with its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Project {
    /// The directory.
    pub(crate) dir: PathBuf,
    /// The handler to build and deploy.
    pub(crate) handler: Handler,
    /// The resources of a job.
    pub(crate) limits: LimitOptions,
    /// The handler's environment. `None`, here and below, when the file does not have the table.
    pub(crate) env: Option<BTreeMap<String, String>>,
    /// Hosts that the handler may call.
    pub(crate) allowed_hosts: Option<Vec<HostPattern>>,
    /// Endpoints that the handler may call.
    pub(crate) call_endpoints: Option<Vec<EndpointId>>,
}

/// The table `[handler]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Handler {
    /// The id of its endpoint, and the name of its component.
    pub(crate) name: EndpointId,
    /// Its language.
    pub(crate) language: Language,
    /// The path of its component, below the directory.
    component: Option<PathBuf>,
    /// The path of the JSON Schema of its input, below the directory.
    input_schema: Option<PathBuf>,
}

/// The language of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    /// Built with cargo.
    Rust,
    /// Built with componentize-py.
    Python,
    /// Built with a JavaScript engine in the component. The other names are those of `gristmill
    /// new`.
    #[serde(alias = "js", alias = "typescript", alias = "ts")]
    Javascript,
}

/// The file's structure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    handler: Handler,
    #[serde(default)]
    limits: LimitOptions,
    env: Option<BTreeMap<String, String>>,
    network: Option<Network>,
    endpoints: Option<Endpoints>,
}

/// The table `[network]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Network {
    allow: Vec<HostPattern>,
}

/// The table `[endpoints]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Endpoints {
    call: Vec<EndpointId>,
}

impl Project {
    /// Reads the project file of a directory; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is invalid.
    pub(crate) fn find(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let project = Self::parse(dir, &text);
        project.map(Some).with_context(|| format!("cannot use {}", path.display()))
    }

    fn parse(dir: &Path, text: &str) -> anyhow::Result<Self> {
        let Document { handler, limits, env, network, endpoints } = toml::from_str(text)?;
        limits.check().context("in [limits]")?;
        env.iter().try_for_each(|env| check_env("env", env))?;
        Ok(Self {
            dir: dir.to_owned(),
            handler,
            limits,
            env,
            allowed_hosts: network.map(|network| network.allow),
            call_endpoints: endpoints.map(|endpoints| endpoints.call),
        })
    }

    /// The project as if its file had an empty table in place of each missing one, so that a deploy
    /// replaces all three settings.
    pub(crate) fn with_all_tables(mut self) -> Self {
        self.env.get_or_insert_default();
        self.allowed_hosts.get_or_insert_default();
        self.call_endpoints.get_or_insert_default();
        self
    }

    /// The path of the JSON Schema of the input.
    pub(crate) fn input_schema_path(&self) -> Option<PathBuf> {
        self.handler.input_schema.as_ref().map(|path| self.dir.join(path))
    }

    /// The path of the built component.
    pub(crate) fn component_path(&self) -> PathBuf {
        match &self.handler.component {
            Some(path) => self.dir.join(path),
            None => self.dir.join("build").join(format!("{}.wasm", self.handler.name)),
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Javascript => "javascript",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[handler]\nname = \"greeter\"\nlanguage = \"rust\"\n";

    fn parse(more: &str) -> anyhow::Result<Project> {
        Project::parse(Path::new("dir"), &format!("{LEAST}{more}"))
    }

    #[test]
    fn a_project_is_read() {
        let least = parse("").unwrap();
        assert_eq!(least.component_path(), Path::new("dir/build/greeter.wasm"));
        assert_eq!(least.handler.language.to_string(), "rust");
        let all = "component = \"g.wasm\"\n[limits]\nmemory-mib = 4096\ntimeout-ms = 1\n\
                   metering = \"epoch\"\nscratch-gb = 1\n[env]\nA = \"b=c\"\n[network]\nallow = \
                   [\"*.example.com:8443\"]";
        let all = parse(all).unwrap();
        assert_eq!(all.component_path(), Path::new("dir/g.wasm"));
        assert_eq!((all.limits.timeout_ms(), all.limits.scratch_gb()), (1, 1));
        assert_eq!(all.limits.settings().memory_mib, 4_096);
        let env = all.env.unwrap();
        assert_eq!((env["A"].as_str(), all.allowed_hosts.unwrap().len()), ("b=c", 1));
        assert!(Project::find(Path::new("/nonexistent")).unwrap().is_none());
    }

    #[test]
    fn a_missing_table_differs_from_an_empty_one() {
        let settings =
            |project: Project| (project.env, project.allowed_hosts, project.call_endpoints);
        let empty = (Some(BTreeMap::new()), Some(Vec::new()), Some(Vec::new()));
        assert_eq!(settings(parse("").unwrap()), (None, None, None));
        assert_eq!(settings(parse("[env]\n[network]\n[endpoints]\n").unwrap()), empty);
        assert_eq!(settings(parse("").unwrap().with_all_tables()), empty);
    }

    #[test]
    fn errors_name_the_wrong_value_and_the_allowed_ones() {
        let cases = [
            (
                "colour = 1",
                "unknown field `colour`, expected one of `name`, `language`, `component`, `input-schema`",
            ),
            ("[limits]\nmemory = 1", "expected one of `memory-mib`, `timeout-ms`, `max-fuel`"),
            ("[limits]\nmemory-mib = 0", "in [limits]: `memory-mib` must be 1 to 4096, not 0"),
            ("[limits]\nmemory-mib = 4097", "`memory-mib` must be 1 to 4096, not 4097"),
            ("[limits]\ntimeout-ms = 0", "`timeout-ms` must be 1 to 604800000, not 0"),
            ("[limits]\nmax-fuel = 0", "`max-fuel` must be 1 to"),
            ("[limits]\nmax-fuel = -1", "expected u64"),
            (
                "[limits]\nmax-fuel = 5\nmetering = \"epoch\"",
                "in [limits]: `max-fuel` has no effect",
            ),
            ("[limits]\nmetering = \"time\"", "unknown variant `time`, expected `fuel` or `epoch`"),
            ("[env]\nA = 1", "expected a string"),
            ("[env]\n\"A=B\" = \"\"", "`env` has a variable `A=B`; a name has"),
            ("[env]\n\"\" = \"\"", "`env` has a variable ``; a name has 1 to 256 characters"),
            ("[network]\nallow = [\"http://x\"]", "`http://x` is not a host pattern: write"),
            ("[network]\ndeny = []", "unknown field `deny`, expected `allow`"),
            ("[build]", "expected one of `handler`, `limits`, `env`, `network`"),
            ("[limits", "TOML parse error"),
        ];
        for (more, expected) in cases {
            let error = format!("{:#}", parse(more).unwrap_err());
            assert!(error.contains(expected), "{more}: {error}");
        }
        let wrong = LEAST.replace("rust", "cobol");
        let error = Project::parse(Path::new("."), &wrong).unwrap_err().to_string();
        assert!(error.contains("expected one of `rust`, `python`, `javascript`"), "{error}");
        let nameless = LEAST.replace("name = \"greeter\"", "name = \"a b\"");
        let error = Project::parse(Path::new("."), &nameless).unwrap_err().to_string();
        assert!(error.contains("may only have letters"), "{error}");
    }
}
