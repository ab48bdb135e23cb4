//! The addresses that a host listens on, and the answers of each.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use futures::future::join_all;
use gristmill_api::{Api, ApiState};
use gristmill_edge::{CertificateExpiry, ConnectionLimits, Connections, Tls, TrustedProxies};
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
    /// Of HTTP endpoints by their names.
    pages: Option<TcpListener>,
    hosts: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
    addresses: ListenAddresses,
}

/// The answers of the listeners.
#[derive(Debug, Clone)]
pub(crate) struct Fronts {
    clients: Front,
    collectors: Front,
    pages: Front,
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
    pub(crate) clients: Clients,
    /// Accepts connections once the host is active.
    pub(crate) hosts: Option<TcpListener>,
}

/// The listeners for clients: each ends when it accepts no more, with the connections that remain.
#[derive(Debug)]
pub(crate) struct Clients(Vec<JoinHandle<Connections>>);

impl Clients {
    /// Completes the running calls once no more connections are accepted, and waits for their end.
    pub(crate) async fn shut_down(self) {
        let ended = self.0.into_iter().map(|listener| async {
            // It only panics with the process.
            if let Ok(connections) = listener.await {
                connections.shutdown().await;
            }
        });
        join_all(ended).await;
    }
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
    pub(crate) fn bind(
        settings: &ServeSettings,
        links: &Handle,
        pages: Option<&Handle>,
    ) -> anyhow::Result<Self> {
        let clients = bind(settings.listen, "--listen")?;
        let collectors = match settings.metrics_listen {
            Some(at) => Some(bind(at, "--metrics-listen")?),
            None => None,
        };
        // Their connections arrive on these threads then.
        let hosts = match settings.cluster_listen {
            Some(at) => {
                let _links = links.enter();
                Some(bind(at, "--cluster-listen")?)
            }
            None => None,
        };
        let pages = match settings.http_listen {
            Some(at) => {
                let _pages = pages.map(Handle::enter);
                Some(bind(at, "--http-listen")?)
            }
            None => None,
        };
        let tls = settings.tls().map(Tls::start).transpose()?;
        let of_collectors = collectors.as_ref().map(TcpListener::local_addr).transpose();
        let of_pages = pages.as_ref().map(TcpListener::local_addr).transpose();
        let of_hosts = hosts.as_ref().map(TcpListener::local_addr).transpose();
        let of_hosts =
            of_hosts.context("cannot read the address for other hosts that was bound")?;
        let addresses = ListenAddresses {
            clients: clients.local_addr().context("cannot read the address that was bound")?,
            collectors: of_collectors.context("cannot read the metrics address that was bound")?,
            pages: of_pages.context("cannot read the HTTP address that was bound")?,
            hosts: of_hosts,
            advertised: settings.cluster_advertise.or(of_hosts),
            scheme: if tls.is_some() { "https" } else { "http" },
        };
        Ok(Self { clients, collectors, pages, hosts, tls, addresses })
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
        let has_links = process.settings.database.is_some();
        let mut open_files_max = process.open_files_max;
        let mut taken =
            if has_links { LinkFiles::within(open_files_max).connections_max } else { 0 };
        if self.pages.is_some() {
            // Half of the files are for each of the two listeners.
            (open_files_max, taken) = (open_files_max / 2, taken / 2);
        }
        let limits = process.settings.connections().within(open_files_max, taken);
        let serve = |listener, tls, front: &Front, limits, stop: &CancellationToken| {
            let (budget, front) = (process.response_budget.clone(), front.clone());
            gristmill_edge::serve(listener, tls, front, limits, budget, stop.clone())
        };
        if let Some(listener) = self.collectors {
            // It serves until the process ends, so that a collector sees the host stop.
            let (limits, never) = (ConnectionLimits::of_collectors(), CancellationToken::new());
            tokio::spawn(serve(listener, None, &fronts.collectors, limits, &never));
        }
        let mut clients = Vec::new();
        if let (Some(listener), Some(threads)) = (self.pages, process.pages) {
            let pages = serve(listener, self.tls.clone(), &fronts.pages, limits, &process.stop);
            clients.push(threads.spawn(pages));
        }
        let api = serve(self.clients, self.tls, &fronts.clients, limits, &process.stop);
        clients.push(tokio::spawn(api));
        Running { clients: Clients(clients), hosts: self.hosts }
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
    pub(crate) fn new(settings: &ServeSettings, standby: Option<StandbyAnswers>) -> Self {
        let proxies = || TrustedProxies::new(settings.trusted_proxies.clone());
        Self {
            clients: Front::new(Callers::Clients(proxies()), standby.clone()),
            collectors: Front::new(Callers::Collectors, standby.clone()),
            pages: Front::new(Callers::Visitors(proxies()), standby.clone()),
            hosts: Front::new(Callers::Hosts, standby),
        }
    }

    /// The host has the jobs from now on.
    pub(crate) fn activate(&self, state: ApiState, gate: Option<Gate>, at: ListenAddresses) {
        let api = Api::new(state.clone());
        self.hosts.activate(api.clone(), gate.clone());
        let api_of_collectors = Api::private(state, at.has_loopback_for_collectors());
        self.collectors.activate(api_of_collectors, gate.clone());
        self.pages.activate(api.clone(), gate.clone());
        self.clients.activate(api, gate);
    }

    /// The answer to calls that other hosts forward.
    pub(crate) fn of_hosts(&self) -> Front {
        self.hosts.clone()
    }
}
