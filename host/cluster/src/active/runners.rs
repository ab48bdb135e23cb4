//! The runners that are connected to the active host.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::EndpointId;
use gristmill_core::runtime::RunnerHost;
use gristmill_core::sharing::tenancy::Tenancy;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::attempts::RemoteAttempts;
use super::link::{Link, LinkEnd, Prepared};
use super::site::{RunnersSettings, Site};

/// Most runners of an active host; further ones stand by only.
pub(crate) const RUNNERS_MAX: usize = 64;

/// The runners that are connected to this host.
#[derive(Debug)]
pub struct Runners {
    site: Arc<Site>,
    links: RwLock<Arc<[Arc<Link>]>>,
    attempts: Arc<RemoteAttempts>,
}

impl Runners {
    /// None yet.
    pub fn new(settings: RunnersSettings) -> Arc<Self> {
        Arc::new(Self {
            site: Site::new(settings),
            links: RwLock::default(),
            attempts: Arc::default(),
        })
    }

    /// Uses the sandboxes of the runner at the other side of a connection until that ends.
    pub async fn serve<IO>(self: &Arc<Self>, io: IO, peer: SocketAddr)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (link, ended) = match Link::open(io, peer, &self.site, false).await {
            Ok(opened) => opened,
            Err(error) => {
                warn!("the host at {peer} runs no jobs for this one: {error}");
                return;
            }
        };
        let link = Arc::new(link);
        // Before it runs new attempts, which it need not offer.
        let kept = self.attempts.present(&link);
        if !self.add(&link) {
            warn!(
                "the host at {peer} runs no jobs for this one: there are {RUNNERS_MAX} runners already"
            );
            return;
        }
        let name = link.name();
        info!(
            "the host {name} runs jobs for this one, in up to {} sandboxes, and goes on with {kept}",
            link.offer().sandboxes
        );
        let following = async {
            // It ends with the connection.
            let ended = link.follow_memory().await;
            debug!("the memory of the host {name} is not known any more: {ended:?}");
            std::future::pending::<Infallible>().await
        };
        let LinkEnd { reason, loss } = tokio::select! {
            end = ended => end,
            never = following => match never {},
        };
        self.remove(&link);
        link.lose(loss);
        info!("the host {name} runs no jobs for this one any more: {reason}");
    }

    /// Goes on with the attempts that this process has had as a runner, until they have ended. The
    /// connection gets no new ones.
    pub async fn serve_own<IO>(self: &Arc<Self>, io: IO, own: SocketAddr)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match Link::open(io, own, &self.site, true).await {
            Ok((link, ended)) => {
                let link = Arc::new(link);
                let kept = self.attempts.present(&link);
                if kept > 0 {
                    info!("this host goes on with {kept} jobs of the former active host");
                }
                link.lose(ended.await.loss);
            }
            Err(error) => warn!("the jobs that this host runs begin again: {error}"),
        }
    }

    /// All of them, the earliest first.
    pub fn hosts(&self) -> Vec<RunnerHost> {
        self.links().iter().map(|link| link.host()).collect()
    }

    pub(super) fn links(&self) -> Arc<[Arc<Link>]> {
        self.links.read().clone()
    }

    fn add(&self, link: &Arc<Link>) -> bool {
        let mut links = self.links.write();
        if links.len() >= RUNNERS_MAX {
            return false;
        }
        *links = links.iter().chain([link]).cloned().collect();
        drop(links);
        self.site.changed();
        true
    }

    fn remove(&self, link: &Arc<Link>) {
        let mut links = self.links.write();
        *links = links.iter().filter(|one| !Arc::ptr_eq(one, link)).cloned().collect();
        drop(links);
        self.site.changed();
    }

    /// Changes when a sandbox of a runner may have become usable.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.site.changes()
    }

    /// The runners that can run the deployment now. Begins to make it ready on the others.
    pub(super) fn ready(&self, deployment: &Arc<Deployment>) -> Vec<Prepared> {
        let links = self.links();
        links.iter().filter_map(|link| link.prepared(&self.site, deployment)).collect()
    }

    pub(super) fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        for link in self.links().iter() {
            link.retire(endpoint, current);
        }
    }

    pub(super) fn tenancy(&self) -> Tenancy {
        self.site.settings.catalog.tenancy()
    }

    /// The attempts that runners have.
    pub(super) fn attempts(&self) -> &Arc<RemoteAttempts> {
        &self.attempts
    }

    /// How long an attempt is kept when its connection is lost.
    pub(super) fn adopt_within(&self) -> Duration {
        self.site.settings.adopt_within
    }
}
