//! The side of the active host: its runners, and the choice of a host for each attempt.

mod attempt;
mod balance;
pub(crate) mod cluster_runtime;
mod link;

use std::net::SocketAddr;
use std::sync::Arc;

use gristmill_core::catalog::Catalog;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::EndpointId;
use gristmill_core::runtime::RunnerHost;
use gristmill_core::time::Clock;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tracing::{info, warn};

use self::link::{Link, Prepared};

/// Most runners of an active host; further ones stand by only.
pub(crate) const RUNNERS_MAX: usize = 64;

/// What the runners need from the active host.
#[derive(Debug)]
pub struct RunnersSettings {
    /// The components, and whether there are several owners.
    pub catalog: Arc<Catalog>,
    /// For the times at which runners have connected.
    pub clock: Arc<dyn Clock>,
}

/// The runners that are connected to this host.
#[derive(Debug)]
pub struct Runners {
    settings: RunnersSettings,
    links: RwLock<Arc<[Arc<Link>]>>,
    /// Changes when a sandbox of a runner may have become usable.
    changes: watch::Sender<()>,
}

impl Runners {
    /// None yet.
    pub fn new(settings: RunnersSettings) -> Arc<Self> {
        let (changes, _) = watch::channel(());
        Arc::new(Self { settings, links: RwLock::default(), changes })
    }

    /// Uses the sandboxes of the runner at the other side of a connection until that ends.
    pub async fn serve<IO>(self: &Arc<Self>, io: IO, peer: SocketAddr)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (link, ended) = match Link::open(io, peer, self).await {
            Ok(opened) => opened,
            Err(error) => {
                warn!("the host at {peer} runs no jobs for this one: {error}");
                return;
            }
        };
        let link = Arc::new(link);
        if !self.add(&link) {
            warn!(
                "the host at {peer} runs no jobs for this one: there are {RUNNERS_MAX} runners already"
            );
            return;
        }
        let name = link.name();
        info!(
            "the host {name} runs jobs for this one, in up to {} sandboxes",
            link.offer().sandboxes
        );
        let reason = ended.await;
        link.close();
        self.remove(&link);
        info!("the host {name} runs no jobs for this one any more: {reason}");
    }

    /// All of them, the earliest first.
    pub fn hosts(&self) -> Vec<RunnerHost> {
        self.links().iter().map(|link| link.host()).collect()
    }

    fn links(&self) -> Arc<[Arc<Link>]> {
        self.links.read().clone()
    }

    fn add(&self, link: &Arc<Link>) -> bool {
        let mut links = self.links.write();
        if links.len() >= RUNNERS_MAX {
            return false;
        }
        *links = links.iter().chain([link]).cloned().collect();
        drop(links);
        self.changed();
        true
    }

    fn remove(&self, link: &Arc<Link>) {
        let mut links = self.links.write();
        *links = links.iter().filter(|one| !Arc::ptr_eq(one, link)).cloned().collect();
        drop(links);
        self.changed();
    }

    /// Makes workers that wait for a sandbox look at the runners again.
    fn changed(&self) {
        self.changes.send_replace(());
    }

    /// The runners that can run the deployment now. Begins to make it ready on the others.
    fn ready(self: &Arc<Self>, deployment: &Arc<Deployment>) -> Vec<Prepared> {
        let links = self.links();
        links.iter().filter_map(|link| link.prepared(self, deployment)).collect()
    }

    fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        for link in self.links().iter() {
            link.retire(endpoint, current);
        }
    }

    fn has_several_owners(&self) -> bool {
        self.settings.catalog.tenancy().has_several_owners()
    }
}
