//! The settings of a host: each option is one field, which names its flag, its variable of the
//! environment, its key in the configuration file, its bounds and its default.
//!
//! The command line overrides the environment, the environment overrides the file, and the file
//! overrides the defaults. clap makes the first two steps, and
//! [`ServeSettings::overridden_by`] the third, by clap's own update of a value.

mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::builder::{BoolishValueParser, Resettable};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches as _};
use gristmill_api::{HostFacts, RateLimits};
use gristmill_commands::arguments::parse;
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::OwnerBounds;
use gristmill_core::deploy::egress::HostPattern;
use gristmill_core::deploy::network::Network;
use gristmill_core::job::loss::LossBounds;
use gristmill_core::job::policy::Strictness;
use gristmill_core::limits::{CRASHES_MAX, LOSSES_MAX, QUEUE_JOBS_MAX};
use gristmill_core::sharing::permits::reservable;
use gristmill_edge::{AddressBound, ConnectionLimits, TlsFiles};
use gristmill_registry::RegistryPattern;
use serde::Deserialize;

pub use self::values::{Brand, Database, Domain, LogFilter, Within};
use super::manual_clock::ManualClockStart;
use super::memory;
use super::sandboxes;

/// Most MiB of an option: 16 TiB.
const MIB_MAX: u64 = 1 << 24;

/// Most sandboxes: their addresses fill half of those of a process.
const SANDBOXES_MAX: u64 = 4_096;

/// A number of connections.
type Connections = Within<1, 1_000_000>;

/// Connections at one time, unless the operator sets their number.
const CONNECTIONS_DEFAULT: u32 = 20_000;

/// The divisor of all connections for the bound of one address without a valid key.
const ADDRESS_PART: u32 = 16;

/// The settings of the host.
#[derive(Debug, Clone, PartialEq, Eq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(mut_args(switch))]
pub struct ServeSettings {
    /// Address and port to listen on; port 0 takes a free one.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "GRISTMILL_LISTEN",
        value_parser = parse::address,
        default_value = "127.0.0.1:8080"
    )]
    pub listen: SocketAddr,

    /// The directory for all data; created if it does not exist.
    #[arg(
        long,
        value_name = "DIR",
        env = "GRISTMILL_DATA_DIR",
        default_value = "./gristmill-data"
    )]
    pub data_dir: PathBuf,

    /// A PostgreSQL database for the jobs and everything that is deployed, as
    /// `postgres://USER:PASSWORD@HOST:PORT/NAME`. Several hosts may share it, and all of them run
    /// jobs: one host is active and has the queue, the others forward calls to it, and one of them
    /// becomes active when it ends. The data directory is only a cache then.
    #[arg(long, value_name = "URL", env = "GRISTMILL_DATABASE")]
    pub database: Option<Database>,

    /// Address and port for the other hosts of the same database, which forward calls to it and
    /// fetch jobs from it; port 0 takes a free one. Only they should reach it.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "GRISTMILL_CLUSTER_LISTEN",
        value_parser = parse::address
    )]
    pub cluster_listen: Option<SocketAddr>,

    /// The address and port at which the other hosts reach this one, if that is another than
    /// `--cluster-listen`: behind a port of a container, for example.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "GRISTMILL_CLUSTER_ADVERTISE",
        value_parser = parse::address
    )]
    pub cluster_advertise: Option<SocketAddr>,

    /// How long a job goes on when the host that runs it and the active host lose each other, in
    /// seconds. If they do not find each other again in this time, it runs again elsewhere. 0: it
    /// runs again at once.
    #[arg(long, value_name = "SECONDS", env = "GRISTMILL_ADOPT_WITHIN", default_value = "60")]
    pub adopt_within: Within<0, 3_600>,

    /// How often the host that runs a job may die meanwhile; then the job is FAILED, since it may
    /// be the reason.
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_CRASHES",
        default_value_t = Within::exactly::<{ CRASHES_MAX as u64 }>()
    )]
    pub max_crashes: Within<1, 255>,

    /// How often the host that runs a job may be lost for another reason: it cannot be reached, or
    /// is paused; then the job is FAILED.
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_LOSSES",
        default_value_t = Within::exactly::<{ LOSSES_MAX as u64 }>()
    )]
    pub max_losses: Within<1, 255>,

    /// The file with the keys by which the hosts of a database know each other, one for each line;
    /// each host shows the first, and accepts all [default: made from the key of stored secrets].
    #[arg(long, value_name = "FILE", env = "GRISTMILL_CLUSTER_KEY")]
    pub cluster_key: Option<PathBuf>,

    /// The file with the key that stored secrets are encrypted with; created with a new data
    /// directory or database. All hosts of a database need the same [default: secrets.key in the
    /// data directory].
    #[arg(long, value_name = "FILE", env = "GRISTMILL_SECRETS_KEY")]
    pub secrets_key: Option<PathBuf>,

    /// A TOML file with any of these options, without the leading dashes.
    #[arg(long, value_name = "FILE", env = "GRISTMILL_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// The certificate for HTTPS, followed by the certificates between it and its root, as PEM.
    /// Read again when the file changes, and on SIGHUP.
    #[arg(long, value_name = "FILE", env = "GRISTMILL_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "GRISTMILL_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Connections at one time; further ones wait until an open one is closed [default: 20000].
    // Each is an open file.
    #[arg(long, value_name = "N", env = "GRISTMILL_MAX_CONNECTIONS")]
    pub max_connections: Option<Connections>,

    /// Connections at one time from one address without a valid key; a further one closes the one
    /// that holds the most, or else the oldest. Without this option loopback addresses have only
    /// the bound of all [default: a sixteenth of max-connections].
    #[arg(long, value_name = "N", env = "GRISTMILL_MAX_ADDRESS_CONNECTIONS")]
    pub max_address_connections: Option<Connections>,

    /// How long a connection may be without a call before it is closed, in seconds.
    // The default is longer than that of common proxies, so that they do not send a call on a
    // connection that is being closed.
    #[arg(long, value_name = "SECONDS", env = "GRISTMILL_IDLE_TIMEOUT", default_value = "75")]
    pub idle_timeout: Within<1, 3_600>,

    /// Print the ready line and the log as JSON.
    #[arg(long, env = "GRISTMILL_JSON")]
    pub json: bool,

    /// Use the nearest allowed value for a policy out of bounds, instead of refusing the job.
    #[arg(long, env = "GRISTMILL_LENIENT_POLICY")]
    pub lenient_policy: bool,

    /// Accept endpoints that request a GPU, as clients of hosted services do, instead of refusing
    /// them. They run on the CPU, and the answer names the ignored fields.
    #[arg(long, env = "GRISTMILL_IGNORE_GPU_FIELDS")]
    pub ignore_gpu_fields: bool,

    /// A second address, which serves /metrics, /livez and /readyz without a key; port 0 takes a
    /// free one. Only collectors and supervisors should reach it.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "GRISTMILL_METRICS_LISTEN",
        value_parser = parse::address
    )]
    pub metrics_listen: Option<SocketAddr>,

    /// A further address, at which each HTTP endpoint has a host name of its own below
    /// `--http-domain`, for browsers; port 0 takes a free one. The API is not there.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "GRISTMILL_HTTP_LISTEN",
        value_parser = parse::address,
        requires = "http_domain"
    )]
    pub http_listen: Option<SocketAddr>,

    /// The domain of these names: with `apps.example.com`, the endpoint `site` answers at
    /// `site.apps.example.com`. All names below it have to lead to `--http-listen`.
    #[arg(long, value_name = "DOMAIN", env = "GRISTMILL_HTTP_DOMAIN", requires = "http_listen")]
    pub http_domain: Option<Domain>,

    /// A network of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` name the client: the
    /// last address that is in none of these networks counts as the caller's. May be repeated; in
    /// the environment, separate the values with commas.
    #[arg(long, value_name = "CIDR", env = "GRISTMILL_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<Network>,

    /// Endpoints with their own name in the metrics; the others share the name (other).
    // Each has about 90 lines.
    #[arg(long, value_name = "COUNT", env = "GRISTMILL_METRICS_ENDPOINTS", default_value = "200")]
    pub metrics_endpoints: Within<0, 10_000>,

    /// The log filter: a level, or a list such as `info,gristmill_dispatch=debug,handler=off`.
    #[arg(long, value_name = "FILTER", env = "GRISTMILL_LOG", default_value = "info")]
    pub log: LogFilter,

    /// Jobs that may run at one time, on all endpoints together [default: one for each 5 MiB of
    /// the memory of sandboxes, and no more than Linux has mappings for: 3,345 on most machines].
    // Each reserves address space, not memory.
    #[arg(long, value_name = "N", env = "GRISTMILL_MAX_RUNNING_JOBS")]
    pub max_running_jobs: Option<Within<1, SANDBOXES_MAX>>,

    /// Memory of all sandboxes together, in MiB. Jobs wait for it in the queue, and sandboxes that
    /// grow wait too [default: five eighths of the machine's memory, or of its control group's
    /// limit].
    #[arg(long, value_name = "MIB", env = "GRISTMILL_MAX_SANDBOX_MEMORY_MIB")]
    pub max_sandbox_memory_mib: Option<Within<1, MIB_MAX>>,

    /// Jobs that may wait on one endpoint; further ones are refused with 429.
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_WAITING_JOBS", default_value_t = Within::exactly::<{ QUEUE_JOBS_MAX as u64 }>())]
    pub max_waiting_jobs: Within<1, { QUEUE_JOBS_MAX as u64 }>,

    /// Size of the inputs of one endpoint's waiting jobs, in MiB; beyond it, submissions are
    /// refused with 429.
    // The minimum has room for the largest bodies.
    #[arg(long, value_name = "MIB", env = "GRISTMILL_MAX_WAITING_MIB", default_value = "16384")]
    pub max_waiting_mib: Within<64, MIB_MAX>,

    /// Size of one endpoint's kept results and of the inputs of jobs that can be retried, in MiB;
    /// beyond it, submissions are refused with 429, and a job that would add more is FAILED.
    #[arg(long, value_name = "MIB", env = "GRISTMILL_MAX_RESULT_MIB", default_value = "65536")]
    pub max_result_mib: Within<64, MIB_MAX>,

    /// Most templates, endpoints, images, components, volumes and credentials of one owner,
    /// together, and most keys; a change beyond it is refused with 400.
    #[arg(
        long,
        value_name = "COUNT",
        env = "GRISTMILL_MAX_OWNER_RECORDS", default_value_t = Within::exactly::<{ OwnerBounds::RECORDS.default }>())]
    pub max_owner_records: Within<{ OwnerBounds::RECORDS.min }, { OwnerBounds::RECORDS.max }>,

    /// Size of these records of one owner in memory, in MiB, and size of the owner's keys; a change
    /// beyond it is refused with 400.
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_OWNER_RECORD_MIB", default_value_t = Within::exactly::<{ OwnerBounds::RECORD_MIB.default }>())]
    pub max_owner_record_mib:
        Within<{ OwnerBounds::RECORD_MIB.min }, { OwnerBounds::RECORD_MIB.max }>,

    /// Size of one owner's uploaded components on disk, in MiB, without their compiled files; an
    /// upload beyond it is refused with 400.
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_OWNER_COMPONENT_MIB", default_value_t = Within::exactly::<{ OwnerBounds::COMPONENT_MIB.default }>())]
    pub max_owner_component_mib:
        Within<{ OwnerBounds::COMPONENT_MIB.min }, { OwnerBounds::COMPONENT_MIB.max }>,

    /// Free space of the data directory's disk below which new work is refused with 503, in MiB;
    /// 0: none [default: 1024, or 2 % of the disk if that is more; at most 10 % of it].
    #[arg(long, value_name = "MIB", env = "GRISTMILL_DISK_RESERVE_MIB")]
    pub disk_reserve_mib: Option<Within<0, MIB_MAX>>,

    /// Size of the journal that may wait for a checkpoint into the database, in MiB; up to twice as
    /// much when the database is slow. A larger journal takes more disk and saves work, since jobs
    /// that are deleted before their checkpoint never reach the database.
    // The minimum is four segments with room for a usual batch.
    #[arg(long, value_name = "MIB", env = "GRISTMILL_JOURNAL_MIB", default_value = "1024")]
    pub journal_mib: Within<16, 65_536>,

    /// Size of the log lines of one endpoint's handlers on disk, in MiB; the oldest are deleted
    /// beyond it. 0 keeps lines only in memory, and deletes those on disk.
    // A search for the lines of a job reads all of them.
    #[arg(long, value_name = "MIB", env = "GRISTMILL_MAX_ENDPOINT_LOG_MIB", default_value = "16")]
    pub max_endpoint_log_mib: Within<0, 1_024>,

    /// Size of the log lines of all handlers on disk, in MiB; beyond it, the oldest lines of the
    /// owner with the most are deleted. 0 keeps lines only in memory.
    #[arg(long, value_name = "MIB", env = "GRISTMILL_MAX_LOG_MIB", default_value = "1024")]
    pub max_log_mib: Within<0, MIB_MAX>,

    /// Seconds that running jobs have after SIGTERM.
    #[arg(long, value_name = "SECONDS", env = "GRISTMILL_DRAIN_TIMEOUT", default_value = "30")]
    pub drain_timeout: Within<0, 3_600>,

    /// Time from the end of a job until the host keeps it on disk only, in seconds.
    #[arg(long, value_name = "SECONDS", env = "GRISTMILL_ARCHIVE_AFTER", default_value = "300")]
    pub archive_after: Within<0, 86_400>,

    /// The largest jump of an unsynchronised clock that the host follows, in seconds; 0 follows any
    /// jump. At a start, the difference between the clock and the newest time in the store counts
    /// too, if waiting jobs would be deleted.
    #[arg(long, value_name = "SECONDS", env = "GRISTMILL_MAX_CLOCK_JUMP", default_value = "3600")]
    pub max_clock_jump: Within<0, 315_360_000>,

    /// Accept the clock at this start, however far it is from the newest time in the store.
    #[arg(long)]
    #[serde(skip)]
    pub accept_clock: bool,

    /// Completes the names of the field and the query parameter for platform templates:
    /// `is<BRAND>`, `include<BRAND>Templates`.
    #[arg(long, value_name = "BRAND", env = "GRISTMILL_BRAND")]
    pub brand: Option<Brand>,

    /// A receiver of webhooks whose address need not be public: `HOST`, `HOST:PORT` or `*.DOMAIN`.
    /// May be repeated; in the environment, separate the values with commas.
    #[arg(long, value_name = "HOST", env = "GRISTMILL_WEBHOOK_ALLOW", value_delimiter = ',')]
    pub webhook_allow: Vec<HostPattern>,

    /// A host with a private address that handlers of every owner may call, if their endpoint lists
    /// it in `allowedHosts`: `HOST`, `HOST:PORT` or `*.DOMAIN`. Endpoints of the operator need no
    /// entry here. May be repeated; in the environment, separate the values with commas.
    #[arg(long, value_name = "HOST", env = "GRISTMILL_HANDLER_ALLOW", value_delimiter = ',')]
    pub handler_allow: Vec<HostPattern>,

    /// A TOML file with the prices of usage, in credits: `job`, `wall-second`, `gb-second`,
    /// `cpu-second`, `giga-fuel`, `gb-in`, `gb-out` [default: everything is free].
    #[arg(long, value_name = "FILE", env = "GRISTMILL_PRICES")]
    pub prices: Option<PathBuf>,

    /// A registry whose address need not be public: `HOST`, `HOST:PORT` or `*.DOMAIN`; with the
    /// prefix `http://`, a registry without TLS. May be repeated; in the environment, separate the
    /// values with commas.
    #[arg(long, value_name = "REGISTRY", env = "GRISTMILL_REGISTRY_ALLOW", value_delimiter = ',')]
    pub registry_allow: Vec<RegistryPattern>,

    /// A network of public addresses that webhooks, image fetches and handlers may not reach, such
    /// as `9.0.0.0/8` or `2001:db8::/32`. `--webhook-allow`, `--registry-allow` and an endpoint's
    /// `!private` override it. May be repeated; in the environment, separate the values with
    /// commas.
    #[arg(long, value_name = "CIDR", env = "GRISTMILL_EGRESS_DENY", value_delimiter = ',')]
    pub egress_deny: Vec<Network>,

    /// Answer calls without a key, with every permission, to try the host on your own machine.
    /// Requires a loopback address; calls must name it as their host and must not come from another
    /// website. Cannot be set in the environment, where it could open a host by accident.
    #[arg(long)]
    pub no_key: bool,

    /// Stop the clock at this time, and move it only by commands on standard input; for tests.
    #[arg(
        long,
        hide = true,
        value_name = "now|MS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ManualClockStart::NOW
    )]
    #[serde(skip)]
    pub manual_clock: Option<ManualClockStart>,

    /// Limits of the queue API: the table `rate-limits` of the configuration file, with a table for
    /// each operation.
    #[arg(skip)]
    pub rate_limits: RateLimits,
}

/// The options that are set by their names alone, or have a value: `--json`, `--json=false`. The
/// command line can so switch off what the environment or the file switches on.
const SWITCHES: [&str; 4] = ["json", "lenient_policy", "ignore_gpu_fields", "no_key"];

/// Makes an option of [`SWITCHES`] one; the others stay as they are.
fn switch(option: Arg) -> Arg {
    if !SWITCHES.contains(&option.get_id().as_str()) {
        return option;
    }
    option
        .action(ArgAction::Set)
        .value_parser(BoolishValueParser::new())
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .default_value("false")
        .value_name("BOOL")
        .hide_possible_values(true)
        .hide_default_value(true)
}

impl Default for ServeSettings {
    /// The defaults, whatever the environment contains.
    fn default() -> Self {
        let command = Self::augment_args(Command::new("serve"));
        let command = command.mut_args(|option| option.env(Resettable::Reset));
        // Cannot fail: every option has a default or is optional.
        let matches = command.get_matches_from(["serve"]);
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

impl ServeSettings {
    /// How often a job may lose its host.
    pub(crate) fn loss_bounds(&self) -> LossBounds {
        // The options have the bounds of a byte.
        let byte = |bound: Within<1, 255>| u8::try_from(bound.as_u32()).unwrap_or(u8::MAX);
        LossBounds { crashes_max: byte(self.max_crashes), losses_max: byte(self.max_losses) }
    }

    /// The settings of a configuration file, and the defaults of all others.
    ///
    /// # Errors
    /// When the text is not TOML, has an unknown key, or a value out of bounds. The error shows the
    /// line and what is allowed. Also when it has a certificate without a key, or a key without a
    /// certificate.
    pub(crate) fn from_toml(text: &str) -> anyhow::Result<Self> {
        let settings: Self = toml::from_str(text)?;
        // clap checks the same for the flags.
        settings.check_tls()?;
        Ok(settings)
    }

    /// The settings that the operator's keys may read: bounds, no secrets and no paths.
    pub(crate) fn facts(&self) -> HostFacts {
        let all: [(&str, &dyn ToString); 19] = [
            ("listen", &self.listen),
            ("max-running-jobs", &self.sandboxes_max()),
            ("max-waiting-jobs", &self.max_waiting_jobs),
            ("max-waiting-mib", &self.max_waiting_mib),
            ("max-result-mib", &self.max_result_mib),
            ("max-owner-records", &self.max_owner_records),
            ("journal-mib", &self.journal_mib),
            ("max-log-mib", &self.max_log_mib),
            ("max-endpoint-log-mib", &self.max_endpoint_log_mib),
            ("archive-after", &self.archive_after),
            ("drain-timeout", &self.drain_timeout),
            ("idle-timeout", &self.idle_timeout),
            ("max-clock-jump", &self.max_clock_jump),
            ("metrics-endpoints", &self.metrics_endpoints),
            ("lenient-policy", &self.lenient_policy),
            ("ignore-gpu-fields", &self.ignore_gpu_fields),
            ("no-key", &self.no_key),
            ("tls", &self.tls_cert.is_some()),
            ("database", &self.database.is_some()),
        ];
        let settings = all.into_iter().map(|(name, value)| (name.to_owned(), value.to_string()));
        let sandboxes_max = u64::from(self.sandboxes_max());
        HostFacts { sandboxes_max, cluster_address: None, settings: settings.collect() }
    }

    /// These settings, unless the command line or the environment has others.
    ///
    /// # Errors
    /// None, if `matches` comes from the same options.
    pub(crate) fn overridden_by(mut self, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = matches.clone();
        for id in matches.ids() {
            if matches.value_source(id.as_str()) == Some(ValueSource::DefaultValue) {
                // Cannot fail, since the id is known.
                let _ = given.try_clear_id(id.as_str());
            }
        }
        self.update_from_arg_matches(&given)?;
        Ok(self)
    }

    /// Other hosts connect to the address, so it must be that of a machine.
    fn check_cluster_advertise(&self) -> anyhow::Result<()> {
        if let Some(at) = self.cluster_advertise {
            ensure!(
                self.cluster_listen.is_some(),
                "cluster-advertise names the address of cluster-listen for other hosts: name both"
            );
            ensure!(
                !at.ip().is_unspecified() && at.port() != 0,
                "cluster-advertise needs the address and the port at which other hosts reach this \
                 one, such as 10.0.0.1:7000, not {at}"
            );
        } else if let Some(at) = self.cluster_listen {
            ensure!(
                !at.ip().is_unspecified(),
                "cluster-listen needs the address at which other hosts reach this one, such as \
                 10.0.0.1:7000, not {at}; or name that address with cluster-advertise"
            );
        }
        Ok(())
    }

    /// Checks the settings that depend on each other.
    ///
    /// # Errors
    /// Names the options that contradict each other.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.check_tls()?;
        ensure!(
            self.cluster_listen.is_none() || self.database.is_some(),
            "cluster-listen is for hosts that share a database: name it with database"
        );
        ensure!(
            self.cluster_key.is_none() || self.database.is_some(),
            "cluster-key is for hosts that share a database: name it with database"
        );
        self.check_cluster_advertise()?;
        ensure!(
            !self.no_key || self.listen.ip().is_loopback(),
            "no-key needs a loopback address to listen on, such as 127.0.0.1:8080, not {}: \
             every caller that reaches it may do everything",
            self.listen
        );
        ensure!(
            self.http_listen.is_some() == self.http_domain.is_some(),
            "http-listen and http-domain must be given together"
        );
        if let Some(at) = self.http_listen.filter(|at| self.no_key && !at.ip().is_loopback()) {
            anyhow::bail!("no-key needs a loopback address for http-listen too, not {at}");
        }
        Ok(())
    }

    fn check_tls(&self) -> anyhow::Result<()> {
        ensure!(
            self.tls_cert.is_some() == self.tls_key.is_some(),
            "tls-cert and tls-key must be given together"
        );
        Ok(())
    }

    /// The file of the key of stored secrets, for a host with a database.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.secrets_key.clone().unwrap_or_else(|| self.data_dir.join("secrets.key"))
    }

    /// The files of the certificate for HTTPS; without them, the host serves HTTP.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles { cert: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }

    /// The bounds of connections.
    pub(crate) fn connections(&self) -> ConnectionLimits {
        let connections_max = self.max_connections.map_or(CONNECTIONS_DEFAULT, Within::as_u32);
        let of_address = self.max_address_connections.map(Within::as_u32);
        ConnectionLimits {
            connections_max,
            is_set: self.max_connections.is_some(),
            of_address: AddressBound {
                connections_max: of_address
                    .unwrap_or_else(|| (connections_max / ADDRESS_PART).max(1)),
                is_for_loopback: of_address.is_some(),
            },
            unauthenticated_bytes_max: memory::unauthenticated_bytes_max(),
            idle_wait: self.idle_timeout.as_seconds(),
        }
    }

    /// Most memory of all sandboxes together, in bytes.
    pub(crate) fn sandbox_bytes_max(&self) -> u64 {
        self.max_sandbox_memory_mib.map_or_else(memory::default_budget, Within::mib_as_bytes)
    }

    /// Most jobs that run at one time.
    pub(crate) fn sandboxes_max(&self) -> u32 {
        let by_default = || sandboxes::default_number(self.sandbox_bytes_max(), SANDBOXES_MAX);
        self.max_running_jobs.map_or_else(by_default, Within::as_u32)
    }

    /// The treatment of a policy out of bounds.
    pub(crate) fn strictness(&self) -> Strictness {
        if self.lenient_policy { Strictness::Clamp } else { Strictness::Refuse }
    }

    /// Most of the catalog that one owner may have.
    pub(crate) fn owner_bounds(&self) -> OwnerBounds {
        OwnerBounds {
            records_max: self.max_owner_records.get(),
            record_bytes_max: self.max_owner_record_mib.mib_as_bytes(),
            component_bytes_max: self.max_owner_component_mib.mib_as_bytes(),
            kept_workers_max: reservable(self.sandboxes_max().into()),
        }
    }

    /// The largest jump of a clock that is not synchronised; `None` for any.
    pub(crate) fn clock_jump_max(&self) -> Option<Duration> {
        Some(self.max_clock_jump.as_seconds()).filter(|most| !most.is_zero())
    }

    /// Reads the prices of usage.
    ///
    /// # Errors
    /// When the file cannot be read, or has an unknown key or an invalid price.
    pub(crate) fn read_prices(&self) -> anyhow::Result<Prices> {
        let Some(path) = &self.prices else { return Ok(Prices::default()) };
        let read = || anyhow::Ok(toml::from_str(&std::fs::read_to_string(path)?)?);
        read().with_context(|| format!("cannot use the price table {}", path.display()))
    }
}
