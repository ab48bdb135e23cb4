//! The options of a handler on this machine, from the command line and from its project.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use gristmill_commands::arguments::parse;
use gristmill_core::deploy::egress::HostPattern;
use gristmill_core::deploy::volume::Volume;

use crate::domain_values;
use crate::limits::LimitOptions;
use crate::project::Project;

/// The environment of the handler.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Handler")]
pub(crate) struct LocalOptions {
    /// An environment variable of the handler; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::env_var)]
    env: Vec<parse::EnvVar>,
    /// An argument of the handler; may be repeated.
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// A host that the handler may call, such as example.com or *.example.com:8443; may be
    /// repeated. Replaces the hosts of the project.
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<HostPattern>,
    /// A directory that the handler sees as its network volume. Files that it writes there are
    /// kept.
    #[arg(long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Most gigabytes that this directory may hold, including its present files [default: 1].
    #[arg(
        long,
        value_name = "GB",
        requires = "volume",
        value_parser = parse::bounded::<u32>(Volume::SIZE_GB)
    )]
    volume_gb: Option<u32>,
    /// Where the handler finds its network volume [default: /workspace].
    #[arg(long, value_name = "PATH", requires = "volume", value_parser = domain_values::mount_path)]
    mount_path: Option<String>,
    #[command(flatten)]
    limits: LimitOptions,
}

/// The same options; values that the command line does not have come from the project.
#[derive(Debug)]
pub(crate) struct LocalSettings {
    pub(super) env: BTreeMap<String, String>,
    pub(super) args: Vec<String>,
    pub(super) allowed_hosts: Vec<HostPattern>,
    pub(super) volume: Option<PathBuf>,
    pub(super) volume_gb: u32,
    pub(super) mount_path: String,
    pub(super) limits: LimitOptions,
}

impl LocalOptions {
    /// The options that a command line can have.
    pub(crate) const IDS: [&str; 10] = [
        "env",
        "args",
        "allowed_hosts",
        "volume",
        "mount_path",
        "memory_mib",
        "timeout_ms",
        "max_fuel",
        "metering",
        "scratch_gb",
    ];

    /// These options, completed by those of a project.
    pub(crate) fn over(self, project: Option<Project>) -> LocalSettings {
        let (mut env, allowed_hosts, limits) = match project {
            Some(project) => {
                let hosts = project.allowed_hosts.unwrap_or_default();
                (project.env.unwrap_or_default(), hosts, project.limits)
            }
            None => Default::default(),
        };
        env.extend(parse::environment(self.env));
        LocalSettings {
            env,
            args: self.args,
            allowed_hosts: match self.allowed_hosts.is_empty() {
                true => allowed_hosts,
                false => self.allowed_hosts,
            },
            volume: self.volume,
            volume_gb: self.volume_gb.unwrap_or(Volume::SIZE_GB.default as u32),
            mount_path: self.mount_path.unwrap_or_default(),
            limits: self.limits.over(limits),
        }
    }
}

impl LocalSettings {
    /// How long a job may run, in milliseconds.
    pub(crate) fn timeout_ms(&self) -> u64 {
        self.limits.timeout_ms()
    }
}
