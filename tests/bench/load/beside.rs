//! Observers of the new program's host during its windows of load, so that a comparison of a program with
//! itself shows the cost of being observed.

use std::time::Duration;

use anyhow::bail;
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::host::Host;

/// Consoles that are open at one time.
const CONSOLES: usize = 10;

/// A Prometheus server scrapes every 15 s by default; a second is the shortest interval in use.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// The observers: a name for `--beside`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Beside {
    /// A Prometheus server that scrapes each second.
    Scrapes,
    /// Ten tabs of the console, which show the overview.
    Consoles,
}

impl Beside {
    /// # Errors
    /// The name is unknown.
    pub(crate) fn parse(name: &str) -> anyhow::Result<Self> {
        match name {
            "scrapes" => Ok(Self::Scrapes),
            "consoles" => Ok(Self::Consoles),
            _ => bail!("--beside takes one of scrapes, consoles"),
        }
    }

    /// Starts the observers, which end when the set is dropped or one of them fails.
    pub(crate) async fn start(self, host: &Host) -> anyhow::Result<JoinSet<anyhow::Error>> {
        let mut observers = JoinSet::new();
        match self {
            Self::Scrapes => {
                let mut connection = Connection::open(&host.addr).await?;
                let request = host.request("GET", "/metrics", "");
                observers.spawn(async move {
                    loop {
                        if let Err(error) = connection.call(&request).await {
                            return error;
                        }
                        tokio::time::sleep(SCRAPE_INTERVAL).await;
                    }
                });
            }
            Self::Consoles => {
                let request = host.request("GET", "/v1/events?topics=overview", "");
                for _ in 0..CONSOLES {
                    let mut connection = Connection::open(&host.addr).await?;
                    let request = request.clone();
                    observers.spawn(async move { connection.discard(&request).await });
                }
            }
        }
        Ok(observers)
    }
}
