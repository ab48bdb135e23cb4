//! The HTTP clients: one that reaches public addresses only, one that reaches any. They share
//! nothing, so that a connection of the one can never serve a request of the other.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, retry};

use crate::Reach;
use crate::resolver::{Lookups, Resolver};

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for each reach, built when it is first needed.
#[derive(Debug, Default)]
pub struct Clients {
    lookups: Lookups,
    public: OnceLock<Result<Client, String>>,
    any: OnceLock<Result<Client, String>>,
}

impl Clients {
    /// The client for a reach. It looks at addresses that it resolves; one that stands in the URL
    /// itself is for [`Destination`](crate::Destination) to look at.
    ///
    /// # Errors
    /// Why the client cannot be built.
    pub fn get(&self, reach: Reach) -> Result<&Client, String> {
        let cell = match reach {
            Reach::PublicAddresses => &self.public,
            Reach::AnyAddress => &self.any,
        };
        let client = cell.get_or_init(|| self.build(reach).map_err(|error| error.to_string()));
        client.as_ref().map_err(Clone::clone)
    }

    fn build(&self, reach: Reach) -> reqwest::Result<Client> {
        Client::builder()
            .dns_resolver(Resolver { reach, lookups: self.lookups.clone() })
            .redirect(Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_proxy()
            // One request per connection: nothing of a request is left for the next.
            .pool_max_idle_per_host(0)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
    }
}
