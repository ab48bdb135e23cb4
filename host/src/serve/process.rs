//! The parts that a host has from its start to its end, whether it has the jobs yet or stands by.

use std::net::SocketAddr;
use std::sync::Arc;

use gristmill_core::billing::price::Prices;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::signals::Signals;
use gristmill_core::time::Clock;
use gristmill_core::trace::Tracer;
use gristmill_edge::{CertificateExpiry, ResponseBudget};
use gristmill_egress::AddressPolicy;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::clock::HostClock;
use super::disk::Disk;
use super::guest_runtimes::GuestRuntimes;
use super::settings::ServeSettings;

/// These parts.
pub(super) struct Process<'a> {
    pub(super) settings: &'a ServeSettings,
    pub(super) prices: Prices,
    pub(super) guests: &'a GuestRuntimes,
    /// The threads of connections between hosts.
    pub(super) links: &'a Handle,
    /// The threads of the connections to HTTP endpoints by their names.
    pub(super) pages: Option<&'a Handle>,
    /// Whether a developer watches the jobs, with the stacks of handlers that trap.
    pub(super) is_watched: bool,
    /// The files that this process may have open; they bound the connections too.
    pub(super) open_files_max: u64,
    /// The addresses of its listeners.
    pub(super) listens_on: ListenAddresses,
    pub(super) certificate: CertificateExpiry,
    pub(super) clock: Arc<dyn Clock>,
    /// Confirms the time of the store; `None` if any time is accepted.
    pub(super) guard: Option<Arc<HostClock>>,
    pub(super) signals: Arc<Signals>,
    pub(super) tenancy: Tenancy,
    pub(super) disk: Disk,
    pub(super) disk_space: Arc<DiskSpaceGauge>,
    /// The addresses that requests to public hosts may reach.
    pub(super) address_policy: AddressPolicy,
    pub(super) tracer: Tracer,
    pub(super) response_budget: Arc<ResponseBudget>,
    /// Receives the failure after which the host must end.
    pub(super) failed: mpsc::UnboundedSender<anyhow::Error>,
    /// Fires when no more connections are accepted.
    pub(super) stop: CancellationToken,
}

/// The addresses of this host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenAddresses {
    pub(crate) clients: SocketAddr,
    pub(crate) collectors: Option<SocketAddr>,
    pub(crate) pages: Option<SocketAddr>,
    pub(crate) hosts: Option<SocketAddr>,
    /// The address at which other hosts reach this one.
    pub(crate) advertised: Option<SocketAddr>,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
}

impl ListenAddresses {
    /// Whether only programs of this machine reach the listener for collectors.
    pub(super) fn has_loopback_for_collectors(&self) -> bool {
        self.collectors.is_some_and(|at| at.ip().to_canonical().is_loopback())
    }
}
