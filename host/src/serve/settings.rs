//! The checked settings of a host, which the command line combines from flags, the environment and
//! the configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gristmill_api::RateLimits;
use gristmill_core::catalog::OwnerBounds;
use gristmill_core::egress::AllowedHosts;
use gristmill_core::network::Network;
use gristmill_core::policy::Strictness;
use gristmill_core::price::Prices;
use gristmill_registry::RegistryHosts;

use super::listener::ConnectionLimits;
use super::manual_clock::ManualClockStart;
use super::tls::TlsFiles;

/// The checked settings of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The file of the key of stored secrets, unless it is in the data directory.
    pub secrets_key: Option<PathBuf>,
    /// The certificate for HTTPS; without it, HTTP.
    pub tls: Option<TlsFiles>,
    /// The bounds of connections.
    pub connections: ConnectionLimits,
    /// Bytes of the journal that may wait for the database.
    pub journal_bytes: u64,
    /// Whether the ready line and the log are JSON.
    pub is_json: bool,
    /// The treatment of a policy out of bounds.
    pub strictness: Strictness,
    /// A valid log filter.
    pub log: String,
    /// Jobs that may run at one time.
    pub running_jobs_max: u32,
    /// Bytes of all sandboxes together, unless that depends on the machine.
    pub sandbox_memory_bytes: Option<u64>,
    /// Jobs that may wait on one endpoint.
    pub waiting_jobs_max: usize,
    /// Bytes of waiting inputs of one endpoint.
    pub waiting_bytes_max: u64,
    /// Bytes of results that one endpoint may keep.
    pub result_bytes_max: u64,
    /// Most of the catalog that one owner may have.
    pub owner_bounds: OwnerBounds,
    /// Free bytes of the disk below which new work is refused; `None`: by the size of the disk.
    pub disk_reserve_bytes: Option<u64>,
    /// How long a drain waits for running jobs.
    pub drain_timeout: Duration,
    /// The operator's brand, if it is set.
    pub brand: Option<String>,
    /// Limits of the queue API; only the configuration file can change them.
    pub rate_limits: RateLimits,
    /// Receivers of webhooks whose addresses need not be public.
    pub webhook_allow: AllowedHosts,
    /// Hosts with private addresses that handlers of every owner may call.
    pub handler_allow: AllowedHosts,
    /// The prices of usage.
    pub prices: Prices,
    /// Registries whose addresses need not be public, or that are called without TLS.
    pub registry_allow: RegistryHosts,
    /// Networks of public addresses that requests may not reach.
    pub egress_deny: Vec<Network>,
    /// Whether no call needs a key. Then the host listens on a loopback address.
    pub needs_no_key: bool,
    /// The largest jump of a clock that is not synchronised; `None` for any.
    pub clock_jump_max: Option<Duration>,
    /// Whether to accept the clock at this start, whatever it shows.
    pub accepts_clock: bool,
    /// The start of a clock that standard input moves, instead of the machine's clock.
    pub manual_clock: Option<ManualClockStart>,
}
