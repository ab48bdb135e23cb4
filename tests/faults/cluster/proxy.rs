//! A link between two programs that a test can disturb: a TCP proxy in this process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// It carries everything.
    Open,
    /// Nothing arrives at the target; connections stay open, and what was sent arrives when the
    /// link is open again.
    SilentTo,
    /// The same for answers.
    SilentFrom,
    /// Both.
    Silent,
    /// Connections end, and new ones end at once.
    Cut,
}

impl Link {
    /// The three ways in which a link loses packets, and its end.
    pub(crate) const FAULTS: [Self; 4] =
        [Self::SilentTo, Self::SilentFrom, Self::Silent, Self::Cut];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToTarget,
    FromTarget,
}

/// A link to one target.
pub(crate) struct Proxy {
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
    carried: Carried,
    link: watch::Sender<Link>,
}

/// All that a link has carried, in both directions.
type Carried = Arc<Mutex<Vec<u8>>>;

impl Proxy {
    /// An open link whose target is not known yet.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (link, changes) = watch::channel(Link::Open);
        let target = Arc::<Mutex<Option<SocketAddr>>>::default();
        let carried = Carried::default();
        let (known, seen) = (target.clone(), carried.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = *known.lock().unwrap();
                tokio::spawn(carry(client, target, seen.clone(), changes.clone()));
            }
        });
        Self { address, target, carried, link }
    }

    /// An open link to this target.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let proxy = Self::start().await;
        proxy.set_target(target);
        proxy
    }

    pub(crate) fn set_target(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = Some(target);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All that it has carried so far.
    pub(crate) fn carried(&self) -> Vec<u8> {
        self.carried.lock().unwrap().clone()
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

/// Carries one connection until one of its sides closes it, or the link is cut.
async fn carry(
    client: TcpStream,
    target: Option<SocketAddr>,
    carried: Carried,
    changes: watch::Receiver<Link>,
) {
    let mut cut = changes.clone();
    let carrying = async {
        wait_until_open(&mut changes.clone(), Direction::ToTarget).await?;
        let server = TcpStream::connect(target?).await.ok()?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::join!(
            pump(from_client, to_server, &carried, changes.clone(), Direction::ToTarget),
            pump(from_server, to_client, &carried, changes.clone(), Direction::FromTarget),
        );
        Some(())
    };
    tokio::select! {
        _ = carrying => {}
        _ = cut.wait_for(|link| *link == Link::Cut) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    carried: &Carried,
    mut changes: watch::Receiver<Link>,
    direction: Direction,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        carried.lock().unwrap().extend(&bytes[..read]);
        if wait_until_open(&mut changes, direction).await.is_none()
            || to.write_all(&bytes[..read]).await.is_err()
        {
            return;
        }
    }
    // The end of the connection is a packet, too.
    wait_until_open(&mut changes, direction).await;
}

async fn wait_until_open(changes: &mut watch::Receiver<Link>, direction: Direction) -> Option<()> {
    let carries = |link: &Link| match link {
        Link::Open => true,
        Link::SilentTo => direction == Direction::FromTarget,
        Link::SilentFrom => direction == Direction::ToTarget,
        Link::Silent | Link::Cut => false,
    };
    changes.wait_for(carries).await.ok().map(drop)
}
