//! The addresses that a host listens on, and the answers of each.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use gristmill_api::{Api, ApiState};
use gristmill_edge::{CertificateExpiry, ConnectionLimits, Connections, Tls};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::cluster::gate::Gate;
use super::front::{Callers, Front, StandbyAnswers};
use super::hosts::LinkFiles;
use super::process::{ListenAddresses, Process};
use super::settings::ServeSettings;

/// The listeners, before they accept connections.
#[derive(Debug)]
pub(crate) struct Listeners {
    clients: TcpListener,
    collectors: Option<TcpListener>,
    hosts: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
    addresses: ListenAddresses,
}

/// The answers of the listeners.
#[derive(Debug, Clone)]
pub(crate) struct Fronts {
    clients: Front,
    collectors: Front,
    hosts: Front,
}

/// The listeners of a host: a host that stands by accepts connections before it has the jobs.
#[derive(Debug)]
pub(crate) enum Serving {
    Bound(Box<Listeners>),
    Running(Running),
}

/// Listeners that accept connections.
#[derive(Debug)]
pub(crate) struct Running {
    /// Ends when they accept no more, with the connections of clients.
    pub(crate) clients: JoinHandle<Connections>,
    /// Accepts connections once the host is active.
    pub(crate) hosts: Option<TcpListener>,
}

/// Connections that the kernel keeps until they are accepted; one more comes a second later. With
/// the 1,024 of `TcpListener::bind`, a thousand callers at one time delayed a probe by that second.
const BACKLOG: u32 = 4_096;

/// Listens on an address, which an option of `serve` names.
///
/// # Errors
/// Names the address and, as far as it is known, the remedy.
fn bind(at: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    let listen = || {
        let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // As `TcpListener::bind` does: a host that starts again listens at once.
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "; another program listens there, so name another address",
            ErrorKind::PermissionDenied => {
                "; name a port from 1024 on, or give the program the capability CAP_NET_BIND_SERVICE"
            }
            _ => "",
        };
        anyhow!("cannot listen on {at} ({option}): {error}{remedy}")
    })
}

impl Listeners {
    /// # Errors
    /// Names the address that cannot be used.
    pub(crate) fn bind(settings: &ServeSettings, links: &Handle) -> anyhow::Result<Self> {
        let clients = bind(settings.listen, "--listen")?;
        let collectors = match settings.metrics_listen {
            Some(at) => Some(bind(at, "--metrics-listen")?),
            None => None,
        };
        let hosts = match settings.cluster_listen {
            Some(at) => {
                // Its connections arrive on these threads then.
                let _links = links.enter();
                Some(bind(at, "--cluster-listen")?)
            }
            None => None,
        };
        let tls = settings.tls().map(Tls::start).transpose()?;
        let of_collectors = collectors.as_ref().map(TcpListener::local_addr).transpose();
        let of_hosts = hosts.as_ref().map(TcpListener::local_addr).transpose();
        let of_hosts =
            of_hosts.context("cannot read the address for other hosts that was bound")?;
        let addresses = ListenAddresses {
            clients: clients.local_addr().context("cannot read the address that was bound")?,
            collectors: of_collectors.context("cannot read the metrics address that was bound")?,
            hosts: of_hosts,
            advertised: settings.cluster_advertise.or(of_hosts),
            scheme: if tls.is_some() { "https" } else { "http" },
        };
        Ok(Self { clients, collectors, hosts, tls, addresses })
    }

    pub(crate) fn addresses(&self) -> ListenAddresses {
        self.addresses
    }

    /// When the certificate ends; later certificates change it.
    pub(crate) fn certificate(&self) -> CertificateExpiry {
        self.tls.as_ref().map(|tls| tls.expiry().clone()).unwrap_or_default()
    }

    /// Accepts connections of clients and collectors from now on.
    pub(super) fn serve(self, fronts: &Fronts, process: &Process<'_>) -> Running {
        let open_files_max = process.open_files_max;
        let (response_budget, stop) = (process.response_budget.clone(), process.stop.clone());
        let has_links = process.settings.database.is_some();
        let taken = if has_links { LinkFiles::within(open_files_max).connections_max } else { 0 };
        let limits = process.settings.connections().within(open_files_max, taken);
        if let Some(listener) = self.collectors {
            // It serves until the process ends, so that a collector sees the host stop.
            let (front, never) = (fronts.collectors.clone(), CancellationToken::new());
            let (limits, budget) = (ConnectionLimits::of_collectors(), response_budget.clone());
            tokio::spawn(gristmill_edge::serve(listener, None, front, limits, budget, never));
        }
        let front = fronts.clients.clone();
        let (tls, budget) = (self.tls, response_budget);
        let clients = gristmill_edge::serve(self.clients, tls, front, limits, budget, stop);
        Running { clients: tokio::spawn(clients), hosts: self.hosts }
    }
}

impl Serving {
    /// Accepts connections, unless it does so already.
    pub(super) fn start(self, fronts: &Fronts, process: &Process<'_>) -> Running {
        match self {
            Self::Bound(listeners) => listeners.serve(fronts, process),
            Self::Running(running) => running,
        }
    }
}

impl Fronts {
    /// The answers of a host that does not have the jobs yet.
    pub(crate) fn new(standby: Option<StandbyAnswers>) -> Self {
        Self {
            clients: Front::new(Callers::Clients, standby.clone()),
            collectors: Front::new(Callers::Collectors, standby.clone()),
            hosts: Front::new(Callers::Hosts, standby),
        }
    }

    /// The host has the jobs from now on.
    pub(crate) fn activate(&self, state: ApiState, gate: Option<Gate>, at: ListenAddresses) {
        let api = Api::new(state.clone());
        self.hosts.activate(api.clone(), gate.clone());
        let api_of_collectors = Api::private(state, at.has_loopback_for_collectors());
        self.collectors.activate(api_of_collectors, gate.clone());
        self.clients.activate(api, gate);
    }

    /// The answer to calls that other hosts forward.
    pub(crate) fn of_hosts(&self) -> Front {
        self.hosts.clone()
    }
}
