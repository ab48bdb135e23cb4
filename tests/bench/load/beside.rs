//! Observers of the new program's host during its windows of load, so that a comparison of a
//! program with itself shows the cost of being observed.

use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::connection::Connection;
use crate::host::Host;

/// Consoles that are open at one time.
const CONSOLES: u32 = 10;

/// A second is the shortest interval of scrapes in use.
const SHORTEST_SCRAPES: Duration = Duration::from_secs(1);

/// The default of Prometheus.
const USUAL_SCRAPES: Duration = Duration::from_secs(15);

/// The reads of the page Overview beside its stream of events, with their intervals
/// (host/console/assets/pages/overview.js). It searches for failures only when more jobs have
/// failed, and here no job fails.
const READS: [(&str, Duration); 3] = [
    ("/v1/series?window=15m", Duration::from_secs(10)),
    ("/v1/system", Duration::from_secs(15)),
    ("/v1/endpoints", Duration::from_secs(30)),
];

/// The observers: a name for `--beside`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Beside {
    /// A Prometheus server that scrapes each second.
    Scrapes,
    /// Ten tabs of the console, which show the overview.
    Consoles,
    /// The ten tabs, and a Prometheus server that scrapes each 15 s.
    All,
}

impl Beside {
    /// # Errors
    /// The name is unknown.
    pub(crate) fn parse(name: &str) -> anyhow::Result<Self> {
        match name {
            "scrapes" => Ok(Self::Scrapes),
            "consoles" => Ok(Self::Consoles),
            "all" => Ok(Self::All),
            _ => bail!("--beside takes one of scrapes, consoles, all"),
        }
    }

    /// # Errors
    /// A window of this length has more or fewer reads than the observers make in the mean.
    pub(crate) fn check(self, window: Duration) -> anyhow::Result<()> {
        let longest = READS.iter().map(|(_, interval)| interval.as_secs()).max().unwrap_or(1);
        ensure!(
            matches!(self, Self::Scrapes) || window.as_secs().is_multiple_of(longest),
            "--beside consoles and --beside all need --seconds {longest} or a multiple of it: consoles have \
             intervals of up to {longest} s"
        );
        Ok(())
    }

    /// Starts the observers, which end when the set is dropped or one of them fails.
    pub(crate) async fn start(self, host: &Host) -> anyhow::Result<JoinSet<anyhow::Error>> {
        let mut observers = JoinSet::new();
        match self {
            Self::Scrapes => scrape(host, SHORTEST_SCRAPES, &mut observers).await?,
            Self::Consoles => open_consoles(host, &mut observers).await?,
            Self::All => {
                scrape(host, USUAL_SCRAPES, &mut observers).await?;
                open_consoles(host, &mut observers).await?;
            }
        }
        Ok(observers)
    }
}

async fn scrape(
    host: &Host,
    every: Duration,
    observers: &mut JoinSet<anyhow::Error>,
) -> anyhow::Result<()> {
    let connection = Connection::open(&host.addr).await?;
    observers.spawn(read(connection, host.request("GET", "/metrics", ""), Duration::ZERO, every));
    Ok(())
}

/// Consoles were opened at different times, so their reads are spread over each interval.
async fn open_consoles(host: &Host, observers: &mut JoinSet<anyhow::Error>) -> anyhow::Result<()> {
    for number in 0..CONSOLES {
        let mut events = Connection::open(&host.addr).await?;
        let request = host.request("GET", "/v1/events?topics=overview", "");
        observers.spawn(async move { events.discard(&request).await });
        for (path, every) in READS {
            // A browser has several connections too.
            let connection = Connection::open(&host.addr).await?;
            let after = every * number / CONSOLES;
            observers.spawn(read(connection, host.request("GET", path, ""), after, every));
        }
    }
    Ok(())
}

/// Makes a call again and again, until one fails.
async fn read(
    mut connection: Connection,
    request: Vec<u8>,
    after: Duration,
    every: Duration,
) -> anyhow::Error {
    let mut ticks = interval_at(tokio::time::Instant::now() + after, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match connection.call(&request).await {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => {
                let request = String::from_utf8_lossy(&request);
                let line = request.lines().next().unwrap_or_default();
                return anyhow::anyhow!("{line}: the answer has the status {}", answer.status);
            }
            Err(error) => return error,
        }
    }
}
