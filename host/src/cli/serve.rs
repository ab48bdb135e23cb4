//! `gristmill serve`: its options, combined with the configuration file. A flag overrides the
//! environment, and the environment overrides the file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use clap::builder::BoolishValueParser;
use gristmill_api::RateLimits;
use gristmill_core::catalog::OwnerBounds;
use gristmill_core::egress::{AllowedHosts, HostPattern};
use gristmill_core::limits::{Bounds, QUEUE_JOBS_MAX};
use gristmill_core::network::Network;
use gristmill_core::policy::Strictness;
use gristmill_core::price::Prices;
use gristmill_registry::{RegistryHosts, RegistryPattern};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::parse;
use crate::serve::{AddressBound, ConnectionLimits, ManualClockStart, ServeSettings, TlsFiles};

/// Waiting inputs of one endpoint, in MiB; the minimum has room for the largest bodies.
const WAITING_MIB: Bounds = Bounds { min: 64, default: 16_384, max: 1 << 24 };

/// Kept results of one endpoint, in MiB.
const RESULT_MIB: Bounds = Bounds { min: 64, default: 65_536, max: 1 << 24 };

/// Free space of the disk, in MiB.
const DISK_RESERVE_MIB: Bounds = Bounds { min: 0, default: 1_024, max: 1 << 24 };

/// Bytes of an option in MiB.
fn mib(given: Option<u64>, bounds: Bounds) -> u64 {
    given.unwrap_or(bounds.default) << 20
}

/// A list of hosts: from the flags, or from the file when there are no flags.
fn hosts(given: &[HostPattern], in_file: Option<Vec<HostPattern>>) -> AllowedHosts {
    AllowedHosts::new(if given.is_empty() { in_file.unwrap_or_default() } else { given.to_vec() })
}

/// Size of the journal that waits for a checkpoint, in MiB. The minimum is four segments with room
/// for a usual batch.
const JOURNAL_MIB: Bounds = Bounds { min: 16, default: 1_024, max: 65_536 };

/// Jobs that may run at one time. Each reserves address space, not memory.
const RUNNING_JOBS: Bounds = Bounds { min: 1, default: 256, max: 4_096 };
/// The default depends on the machine.
const SANDBOX_MEMORY_MIB: Bounds = Bounds { min: 1, default: 0, max: 16_777_216 };

/// Jobs that may wait on one endpoint.
const WAITING_JOBS: Bounds =
    Bounds { min: 1, default: QUEUE_JOBS_MAX as u64, max: QUEUE_JOBS_MAX as u64 };

/// Seconds for which a drain waits for running jobs.
const DRAIN_TIMEOUT_S: Bounds = Bounds { min: 0, default: 30, max: 3_600 };

/// Connections at one time. Each is an open file.
const CONNECTIONS: Bounds = Bounds { min: 1, default: 20_000, max: 1_000_000 };

/// Seconds by which the clock may jump; 0 permits any jump.
const CLOCK_JUMP_S: Bounds = Bounds { min: 0, default: 3_600, max: 315_360_000 };

/// The divisor of all connections for the bound of one address without a valid key.
const ADDRESS_PART: u32 = 16;

/// Seconds for which a connection may be without a call. The default is longer than that of common
/// proxies, so that they do not send a call on a connection that is being closed.
const IDLE_TIMEOUT_S: Bounds = Bounds { min: 1, default: 75, max: 3_600 };

/// Run the host.
///
/// Prints one line once it answers calls. On SIGTERM or SIGINT it takes no more jobs, waits for
/// running jobs, and ends; a second signal ends it at once. Jobs that did not finish run again
/// after the next start.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS:PORT", env = "GRISTMILL_LISTEN", hide_env_values = true)]
    pub listen: Option<SocketAddr>,

    /// The directory for all data; created if it does not exist [default: ./gristmill-data].
    #[arg(long, value_name = "DIR", env = "GRISTMILL_DATA_DIR", hide_env_values = true)]
    pub data_dir: Option<PathBuf>,

    /// The file with the key that stored secrets are encrypted with; created with a new data
    /// directory [default: secrets.key in the data directory].
    #[arg(long, value_name = "FILE", env = "GRISTMILL_SECRETS_KEY", hide_env_values = true)]
    pub secrets_key: Option<PathBuf>,

    /// A TOML file with any of these options, without the leading dashes.
    #[arg(long, value_name = "FILE", env = "GRISTMILL_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,

    /// The certificate for HTTPS, followed by the certificates between it and its root, as PEM.
    /// Read again when the file changes, and on SIGHUP.
    #[arg(
        long,
        value_name = "FILE",
        env = "GRISTMILL_TLS_CERT",
        hide_env_values = true,
        requires = "tls_key"
    )]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, as PEM.
    #[arg(
        long,
        value_name = "FILE",
        env = "GRISTMILL_TLS_KEY",
        hide_env_values = true,
        requires = "tls_cert"
    )]
    pub tls_key: Option<PathBuf>,

    /// Connections at one time; further ones wait until an open one is closed [default: 20000].
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_CONNECTIONS", hide_env_values = true,
        value_parser = parse::bounded::<u32>(CONNECTIONS)
    )]
    pub max_connections: Option<u32>,

    /// Connections at one time from one address without a valid key; a further one closes the
    /// oldest of them. Without this option loopback addresses have no bound [default: a sixteenth
    /// of max-connections].
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_ADDRESS_CONNECTIONS", hide_env_values = true,
        value_parser = parse::bounded::<u32>(CONNECTIONS)
    )]
    pub max_address_connections: Option<u32>,

    /// How long a connection may be without a call before it is closed, in seconds [default: 75].
    #[arg(
        long,
        value_name = "SECONDS",
        env = "GRISTMILL_IDLE_TIMEOUT", hide_env_values = true,
        value_parser = parse::bounded::<u64>(IDLE_TIMEOUT_S)
    )]
    pub idle_timeout: Option<u64>,

    /// Print the ready line and the log as JSON.
    #[arg(
        long,
        env = "GRISTMILL_JSON", hide_env_values = true,
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
        hide_possible_values = true
    )]
    pub json: Option<bool>,

    /// Use the nearest allowed value for a policy out of bounds, instead of refusing the job.
    #[arg(
        long,
        env = "GRISTMILL_LENIENT_POLICY", hide_env_values = true,
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
        hide_possible_values = true
    )]
    pub lenient_policy: Option<bool>,

    /// The log filter: a level, or a list such as `info,gristmill_dispatch=debug,handler=off`
    /// [default: info].
    #[arg(long, value_name = "FILTER", env = "GRISTMILL_LOG", hide_env_values = true, value_parser = log_filter)]
    pub log: Option<String>,

    /// Jobs that may run at one time, on all endpoints together [default: 256].
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_RUNNING_JOBS", hide_env_values = true,
        value_parser = parse::bounded::<u32>(RUNNING_JOBS)
    )]
    pub max_running_jobs: Option<u32>,

    /// Memory of all sandboxes together, in MiB. Each sandbox takes the `memoryMib` of its
    /// endpoint; jobs wait until it is free [default: five eighths of the machine's memory, or of
    /// its control group's limit].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_SANDBOX_MEMORY_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(SANDBOX_MEMORY_MIB)
    )]
    pub max_sandbox_memory_mib: Option<u64>,

    /// Jobs that may wait on one endpoint; further ones are refused with 429 [default: 2000000].
    #[arg(
        long,
        value_name = "N",
        env = "GRISTMILL_MAX_WAITING_JOBS", hide_env_values = true,
        value_parser = parse::bounded::<u32>(WAITING_JOBS)
    )]
    pub max_waiting_jobs: Option<u32>,

    /// Size of the inputs of one endpoint's waiting jobs, in MiB; beyond it, submissions are
    /// refused with 429 [default: 16384].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_WAITING_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(WAITING_MIB)
    )]
    pub max_waiting_mib: Option<u64>,

    /// Size of one endpoint's kept results and of the inputs of jobs that can be retried, in MiB;
    /// beyond it, submissions are refused with 429, and a job that would add more is FAILED
    /// [default: 65536].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_RESULT_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(RESULT_MIB)
    )]
    pub max_result_mib: Option<u64>,

    /// Most templates, endpoints, images, components, volumes and credentials of one owner, together,
    /// and most keys; a change beyond it is refused with 400 [default: 10000].
    #[arg(
        long,
        value_name = "COUNT",
        env = "GRISTMILL_MAX_OWNER_RECORDS", hide_env_values = true,
        value_parser = parse::bounded::<u64>(OwnerBounds::RECORDS)
    )]
    pub max_owner_records: Option<u64>,

    /// Size of these records of one owner in memory, in MiB, and size of the owner's keys; a change
    /// beyond it is refused with 400 [default: 16].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_OWNER_RECORD_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(OwnerBounds::RECORD_MIB)
    )]
    pub max_owner_record_mib: Option<u64>,

    /// Size of one owner's uploaded components on disk, in MiB, without their compiled files; an
    /// upload beyond it is refused with 400 [default: 16384].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_MAX_OWNER_COMPONENT_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(OwnerBounds::COMPONENT_MIB)
    )]
    pub max_owner_component_mib: Option<u64>,

    /// Free space of the data directory's disk below which new work is refused with 503, in MiB;
    /// 0: none [default: 1024, or 2 % of the disk if that is more; at most 10 % of it].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_DISK_RESERVE_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(DISK_RESERVE_MIB)
    )]
    pub disk_reserve_mib: Option<u64>,

    /// Size of the journal that may wait for a checkpoint into the database, in MiB; up to twice as
    /// much when the database is slow. A larger journal takes more disk and saves work, since jobs
    /// that are deleted before their checkpoint never reach the database [default: 1024].
    #[arg(
        long,
        value_name = "MIB",
        env = "GRISTMILL_JOURNAL_MIB", hide_env_values = true,
        value_parser = parse::bounded::<u64>(JOURNAL_MIB)
    )]
    pub journal_mib: Option<u64>,

    /// Seconds that running jobs have after SIGTERM [default: 30].
    #[arg(
        long,
        value_name = "SECONDS",
        env = "GRISTMILL_DRAIN_TIMEOUT", hide_env_values = true,
        value_parser = parse::bounded::<u64>(DRAIN_TIMEOUT_S)
    )]
    pub drain_timeout: Option<u64>,

    /// The largest jump of an unsynchronised clock that the host follows, in seconds; 0 follows any
    /// jump. At a start, the difference between the clock and the newest time in the store counts
    /// too, if waiting jobs would be deleted [default: 3600].
    #[arg(
        long,
        value_name = "SECONDS",
        env = "GRISTMILL_MAX_CLOCK_JUMP", hide_env_values = true,
        value_parser = parse::bounded::<u64>(CLOCK_JUMP_S)
    )]
    pub max_clock_jump: Option<u64>,

    /// Accept the clock at this start, however far it is from the newest time in the store.
    #[arg(long)]
    pub accept_clock: bool,

    /// Completes the names of the field and the query parameter for platform templates:
    /// `is<BRAND>`, `include<BRAND>Templates`.
    #[arg(long, value_name = "BRAND", env = "GRISTMILL_BRAND", hide_env_values = true, value_parser = brand)]
    pub brand: Option<String>,

    /// A receiver of webhooks whose address need not be public: `HOST`, `HOST:PORT` or `*.DOMAIN`.
    /// May be repeated; in the environment, separate the values with commas.
    #[arg(
        long,
        value_name = "HOST",
        env = "GRISTMILL_WEBHOOK_ALLOW",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub webhook_allow: Vec<HostPattern>,

    /// A host with a private address that handlers of every owner may call, if their endpoint lists
    /// it in `allowedHosts`: `HOST`, `HOST:PORT` or `*.DOMAIN`. Endpoints of the operator need no
    /// entry here. May be repeated; in the environment, separate the values with commas.
    #[arg(
        long,
        value_name = "HOST",
        env = "GRISTMILL_HANDLER_ALLOW",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub handler_allow: Vec<HostPattern>,

    /// A TOML file with the prices of usage, in credits: `job`, `wall-second`, `gb-second`,
    /// `cpu-second`, `giga-fuel`, `gb-in`, `gb-out` [default: everything is free].
    #[arg(long, value_name = "FILE", env = "GRISTMILL_PRICES", hide_env_values = true)]
    pub prices: Option<PathBuf>,
    /// A registry whose address need not be public: `HOST`, `HOST:PORT` or `*.DOMAIN`; with the
    /// prefix `http://`, a registry without TLS. May be repeated; in the environment, separate the
    /// values with commas.
    #[arg(
        long,
        value_name = "REGISTRY",
        env = "GRISTMILL_REGISTRY_ALLOW",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub registry_allow: Vec<RegistryPattern>,

    /// A network of public addresses that webhooks, image fetches and handlers may not reach, such
    /// as `9.0.0.0/8` or `2001:db8::/32`. `--webhook-allow`, `--registry-allow` and an endpoint's
    /// `!private` override it. May be repeated; in the environment, separate the values with
    /// commas.
    #[arg(
        long,
        value_name = "CIDR",
        env = "GRISTMILL_EGRESS_DENY",
        hide_env_values = true,
        value_delimiter = ','
    )]
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
    pub manual_clock: Option<ManualClockStart>,
}

/// The configuration file: the options under their own names.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ConfigFile {
    listen: Option<SocketAddr>,
    data_dir: Option<PathBuf>,
    secrets_key: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    max_connections: Option<u32>,
    max_address_connections: Option<u32>,
    idle_timeout: Option<u64>,
    json: Option<bool>,
    lenient_policy: Option<bool>,
    log: Option<String>,
    max_running_jobs: Option<u32>,
    max_sandbox_memory_mib: Option<u64>,
    max_waiting_jobs: Option<u32>,
    max_waiting_mib: Option<u64>,
    max_result_mib: Option<u64>,
    max_owner_records: Option<u64>,
    max_owner_record_mib: Option<u64>,
    max_owner_component_mib: Option<u64>,
    disk_reserve_mib: Option<u64>,
    journal_mib: Option<u64>,
    drain_timeout: Option<u64>,
    max_clock_jump: Option<u64>,
    brand: Option<String>,
    /// Table `rate-limits`, with a table for each operation.
    #[serde(default)]
    rate_limits: RateLimits,
    webhook_allow: Option<Vec<HostPattern>>,
    handler_allow: Option<Vec<HostPattern>>,
    prices: Option<PathBuf>,
    registry_allow: Option<Vec<RegistryPattern>>,
    egress_deny: Option<Vec<Network>>,
    #[serde(default)]
    no_key: bool,
}

impl ServeArgs {
    /// Reads the configuration file, if one is named, and combines it with the flags and the
    /// environment.
    ///
    /// # Errors
    /// When the file cannot be read, has an unknown option, or a value out of bounds.
    pub fn settings(&self) -> anyhow::Result<ServeSettings> {
        let file = match &self.config {
            Some(path) => ConfigFile::read(path)
                .with_context(|| format!("cannot use the configuration file {}", path.display()))?,
            None => ConfigFile::default(),
        };
        self.over(file)
    }

    fn tls_files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { cert: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }

    fn over(&self, file: ConfigFile) -> anyhow::Result<ServeSettings> {
        let prices = match self.prices.as_ref().or(file.prices.as_ref()) {
            Some(path) => read_prices(path)
                .with_context(|| format!("cannot use the price table {}", path.display()))?,
            None => Prices::default(),
        };
        let is_lenient = self.lenient_policy.or(file.lenient_policy).unwrap_or(false);
        let running_jobs_max = self.max_running_jobs.or(file.max_running_jobs);
        let running_jobs_max = running_jobs_max
            .unwrap_or_else(|| u32::try_from(RUNNING_JOBS.default).unwrap_or(u32::MAX));
        let sandbox_memory_mib = self.max_sandbox_memory_mib.or(file.max_sandbox_memory_mib);
        let waiting_jobs_max = self.max_waiting_jobs.or(file.max_waiting_jobs);
        let drain_timeout_s = self.drain_timeout.or(file.drain_timeout);
        let given_connections = self.max_connections.or(file.max_connections);
        let connections_max = given_connections
            .unwrap_or_else(|| u32::try_from(CONNECTIONS.default).unwrap_or(u32::MAX));
        let of_address = self.max_address_connections.or(file.max_address_connections);
        let listen =
            self.listen.or(file.listen).unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 8080).into());
        let needs_no_key = self.no_key || file.no_key;
        ensure!(
            !needs_no_key || listen.ip().is_loopback(),
            "no-key needs a loopback address to listen on, such as 127.0.0.1:8080, not {listen}: \
             every caller that reaches it may do everything"
        );
        Ok(ServeSettings {
            prices,
            listen,
            needs_no_key,
            data_dir: self
                .data_dir
                .clone()
                .or(file.data_dir)
                .unwrap_or_else(|| PathBuf::from("./gristmill-data")),
            secrets_key: self.secrets_key.clone().or(file.secrets_key),
            tls: self
                .tls_files()
                .or_else(|| Some(TlsFiles { cert: file.tls_cert?, key: file.tls_key? })),
            connections: ConnectionLimits {
                connections_max,
                is_set: given_connections.is_some(),
                of_address: AddressBound {
                    connections_max: of_address
                        .unwrap_or_else(|| (connections_max / ADDRESS_PART).max(1)),
                    is_for_loopback: of_address.is_some(),
                },
                idle_wait: Duration::from_secs(
                    self.idle_timeout.or(file.idle_timeout).unwrap_or(IDLE_TIMEOUT_S.default),
                ),
            },
            journal_bytes: self.journal_mib.or(file.journal_mib).unwrap_or(JOURNAL_MIB.default)
                << 20,
            is_json: self.json.or(file.json).unwrap_or(false),
            strictness: if is_lenient { Strictness::Clamp } else { Strictness::Refuse },
            log: self.log.clone().or(file.log).unwrap_or_else(|| "info".to_owned()),
            running_jobs_max,
            sandbox_memory_bytes: sandbox_memory_mib.map(|mib| mib << 20),
            waiting_jobs_max: waiting_jobs_max.map_or(QUEUE_JOBS_MAX, |jobs| jobs as usize),
            waiting_bytes_max: mib(self.max_waiting_mib.or(file.max_waiting_mib), WAITING_MIB),
            result_bytes_max: mib(self.max_result_mib.or(file.max_result_mib), RESULT_MIB),
            owner_bounds: OwnerBounds {
                records_max: self
                    .max_owner_records
                    .or(file.max_owner_records)
                    .unwrap_or(OwnerBounds::RECORDS.default),
                record_bytes_max: mib(
                    self.max_owner_record_mib.or(file.max_owner_record_mib),
                    OwnerBounds::RECORD_MIB,
                ),
                component_bytes_max: mib(
                    self.max_owner_component_mib.or(file.max_owner_component_mib),
                    OwnerBounds::COMPONENT_MIB,
                ),
                kept_workers_max: running_jobs_max.into(),
            },
            disk_reserve_bytes: self
                .disk_reserve_mib
                .or(file.disk_reserve_mib)
                .map(|mib| mib << 20),
            drain_timeout: Duration::from_secs(drain_timeout_s.unwrap_or(DRAIN_TIMEOUT_S.default)),
            brand: self.brand.clone().or(file.brand),
            rate_limits: file.rate_limits,
            webhook_allow: hosts(&self.webhook_allow, file.webhook_allow),
            handler_allow: hosts(&self.handler_allow, file.handler_allow),
            registry_allow: RegistryHosts::new(if self.registry_allow.is_empty() {
                file.registry_allow.as_deref().unwrap_or_default()
            } else {
                &self.registry_allow
            }),
            egress_deny: if self.egress_deny.is_empty() {
                file.egress_deny.unwrap_or_default()
            } else {
                self.egress_deny.clone()
            },
            clock_jump_max: {
                let s = self.max_clock_jump.or(file.max_clock_jump).unwrap_or(CLOCK_JUMP_S.default);
                (s > 0).then(|| Duration::from_secs(s))
            },
            accepts_clock: self.accept_clock,
            manual_clock: self.manual_clock,
        })
    }
}

impl ConfigFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let file: Self = toml::from_str(&text)?;
        file.check()?;
        Ok(file)
    }

    /// The checks that the command line makes for flags.
    fn check(&self) -> anyhow::Result<()> {
        let numbers = [
            ("max-connections", self.max_connections.map(u64::from), CONNECTIONS),
            ("max-address-connections", self.max_address_connections.map(u64::from), CONNECTIONS),
            ("idle-timeout", self.idle_timeout, IDLE_TIMEOUT_S),
            ("max-running-jobs", self.max_running_jobs.map(u64::from), RUNNING_JOBS),
            ("max-sandbox-memory-mib", self.max_sandbox_memory_mib, SANDBOX_MEMORY_MIB),
            ("max-waiting-jobs", self.max_waiting_jobs.map(u64::from), WAITING_JOBS),
            ("max-waiting-mib", self.max_waiting_mib, WAITING_MIB),
            ("max-result-mib", self.max_result_mib, RESULT_MIB),
            ("max-owner-records", self.max_owner_records, OwnerBounds::RECORDS),
            ("max-owner-record-mib", self.max_owner_record_mib, OwnerBounds::RECORD_MIB),
            ("max-owner-component-mib", self.max_owner_component_mib, OwnerBounds::COMPONENT_MIB),
            ("disk-reserve-mib", self.disk_reserve_mib, DISK_RESERVE_MIB),
            ("journal-mib", self.journal_mib, JOURNAL_MIB),
            ("drain-timeout", self.drain_timeout, DRAIN_TIMEOUT_S),
            ("max-clock-jump", self.max_clock_jump, CLOCK_JUMP_S),
        ];
        for (name, value, bounds) in numbers {
            ensure!(
                value.is_none_or(|value| bounds.contains(value)),
                "{name} must be {} to {}",
                bounds.min,
                bounds.max
            );
        }
        ensure!(
            self.tls_cert.is_some() == self.tls_key.is_some(),
            "tls-cert and tls-key must be given together"
        );
        if let Some(filter) = &self.log {
            log_filter(filter).map_err(|error| anyhow::anyhow!("log: {error}"))?;
        }
        if let Some(text) = &self.brand {
            brand(text).map_err(|error| anyhow::anyhow!("brand: {error}"))?;
        }
        Ok(())
    }
}

fn read_prices(path: &Path) -> anyhow::Result<Prices> {
    Ok(toml::from_str(&std::fs::read_to_string(path)?)?)
}

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn brand(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if is_name { Ok(text.to_owned()) } else { Err("only letters and digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn from_file(args: &ServeArgs, text: &str) -> anyhow::Result<ServeSettings> {
        let file: ConfigFile = toml::from_str(text)?;
        file.check()?;
        args.over(file)
    }

    #[test]
    fn without_options_the_defaults_hold() {
        let settings = ServeArgs::default().settings().unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(settings.data_dir, Path::new("./gristmill-data"));
        assert_eq!(settings.strictness, Strictness::Refuse);
        assert_eq!(settings.journal_bytes, 1 << 30);
        assert_eq!((settings.running_jobs_max, settings.drain_timeout.as_secs()), (256, 30));
        assert_eq!((settings.waiting_jobs_max, settings.sandbox_memory_bytes), (2_000_000, None));
        let ConnectionLimits { connections_max, is_set, of_address, idle_wait } =
            settings.connections;
        assert_eq!((connections_max, is_set, idle_wait.as_secs()), (20_000, false, 75));
        assert_eq!(settings.tls, None);
        let expected = AddressBound { connections_max: 1_250, is_for_loopback: false };
        assert_eq!(of_address, expected);
    }

    #[test]
    fn the_bound_of_an_address_follows_the_bound_of_all_unless_it_is_given() {
        let bound = |text| from_file(&ServeArgs::default(), text).unwrap().connections.of_address;
        let (implied, given) =
            (bound("max-connections = 10"), bound("max-address-connections = 7"));
        assert_eq!(implied, AddressBound { connections_max: 1, is_for_loopback: false });
        assert_eq!(given, AddressBound { connections_max: 7, is_for_loopback: true });
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let args = ServeArgs {
            listen: Some("[::1]:0".parse().unwrap()),
            lenient_policy: Some(false),
            ..ServeArgs::default()
        };
        let file = "listen = \"0.0.0.0:80\"\nlenient-policy = true\nmax-running-jobs = 8\n\
            max-sandbox-memory-mib = 512\n\
            max-waiting-jobs = 9\njournal-mib = 64\njson = true\nwebhook-allow = [\"10.0.0.1:80\", \"a.lan\"]";
        let settings = from_file(&args, file).unwrap();
        assert_eq!(settings.listen.to_string(), "[::1]:0");
        assert_eq!(settings.strictness, Strictness::Refuse);
        assert_eq!((settings.running_jobs_max, settings.journal_bytes), (8, 64 << 20));
        assert_eq!(
            (settings.waiting_jobs_max, settings.sandbox_memory_bytes),
            (9, Some(512 << 20))
        );
        assert_eq!(settings.rate_limits, RateLimits::default());
        assert_eq!(settings.webhook_allow.patterns().collect::<Vec<_>>(), ["10.0.0.1:80", "a.lan"]);
        let args = ServeArgs { webhook_allow: vec!["b.lan".parse().unwrap()], ..args };
        let settings = from_file(&args, file).unwrap();
        assert_eq!(settings.webhook_allow.patterns().collect::<Vec<_>>(), ["b.lan"]);
        assert!(settings.is_json);
    }

    #[test]
    fn denied_networks_come_from_the_file_or_from_flags() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        let file = "egress-deny = [\"93.184.216.0/24\", \"2001:db8::1\"]";
        let args = ServeArgs::default();
        let denied = |args: &ServeArgs| from_file(args, file).unwrap().egress_deny;
        assert_eq!(denied(&args), [network("93.184.216.0/24"), network("2001:db8::1/128")]);
        let args = ServeArgs { egress_deny: vec![network("10.0.0.0/8")], ..args };
        assert_eq!(denied(&args), [network("10.0.0.0/8")]);
        let wrong = from_file(&args, "egress-deny = [\"10.0.0.0/40\"]").unwrap_err().to_string();
        assert!(wrong.contains("`10.0.0.0/40` is not a network: write `10.0.0.0/8`"), "{wrong}");
    }

    #[test]
    fn one_operation_can_be_given_another_limit() {
        let file = "[rate-limits.run]\ncalls-per-10s = 7\nconcurrent = 3\ncalls-per-worker = 0";
        let limits = from_file(&ServeArgs::default(), file).unwrap().rate_limits;
        assert_eq!((limits.run.calls_per_10s, limits.run.concurrent), (7, Some(3)));
        assert_eq!(limits.status, RateLimits::default().status);
    }

    #[test]
    fn prices_are_read_and_their_mistakes_named() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let args = ServeArgs { prices: Some(path.clone()), ..ServeArgs::default() };
        assert_eq!(args.settings().unwrap().prices, Prices::default());
        writeln!(file, "wall-second = 0.00012\njob = 1").unwrap();
        let prices = args.settings().unwrap().prices;
        assert_eq!(prices.wall_second, "0.00012".parse().unwrap());
        let in_file = format!("prices = {path:?}");
        assert_eq!(from_file(&ServeArgs::default(), &in_file).unwrap().prices, prices);
        writeln!(file, "gpu-second = 1").unwrap();
        let complaint = format!("{:#}", args.settings().unwrap_err());
        assert!(complaint.contains("cannot use the price table"), "{complaint}");
        assert!(complaint.contains("unknown field `gpu-second`"), "{complaint}");
        let args = ServeArgs { prices: Some("/no/such/file".into()), ..ServeArgs::default() };
        assert!(args.settings().is_err());
    }

    #[test]
    fn only_a_loopback_address_goes_without_keys() {
        assert!(!ServeArgs::default().settings().unwrap().needs_no_key, "it is no default");
        let open = |listen: &str| {
            let listen = Some(listen.parse().unwrap());
            ServeArgs { listen, no_key: true, ..ServeArgs::default() }.settings()
        };
        for listen in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:8080"] {
            assert!(open(listen).unwrap().needs_no_key, "{listen}");
        }
        for listen in ["0.0.0.0:8080", "10.0.0.1:8080", "[::]:8080"] {
            let complaint = open(listen).unwrap_err().to_string();
            assert!(complaint.contains("no-key needs a loopback address"), "{complaint}");
        }
        let args = ServeArgs::default();
        assert!(from_file(&args, "no-key = true").unwrap().needs_no_key);
        assert!(from_file(&args, "no-key = true\nlisten = \"0.0.0.0:1\"").is_err());
    }

    #[test]
    fn mistakes_in_the_file_are_named() {
        let complaint = |text| from_file(&ServeArgs::default(), text).unwrap_err().to_string();
        assert_eq!(complaint("max-running-jobs = 0"), "max-running-jobs must be 1 to 4096");
        assert_eq!(
            complaint("max-sandbox-memory-mib = 0"),
            "max-sandbox-memory-mib must be 1 to 16777216"
        );
        assert_eq!(complaint("max-waiting-jobs = 0"), "max-waiting-jobs must be 1 to 2000000");
        assert_eq!(complaint("journal-mib = 1"), "journal-mib must be 16 to 65536");
        assert_eq!(complaint("drain-timeout = 3601"), "drain-timeout must be 0 to 3600");
        assert_eq!(complaint("idle-timeout = 0"), "idle-timeout must be 1 to 3600");
        assert_eq!(complaint("tls-cert = \"a\""), "tls-cert and tls-key must be given together");
        assert!(complaint("lissten = \"x\"").contains("unknown field `lissten`"));
        assert!(complaint("log = \"a=loud\"").starts_with("log: "));
        let args = ServeArgs { config: Some("/no/such/file".into()), ..ServeArgs::default() };
        let missing = format!("{:#}", args.settings().unwrap_err());
        assert!(
            missing.starts_with("cannot use the configuration file /no/such/file: "),
            "{missing}"
        );
    }
}
