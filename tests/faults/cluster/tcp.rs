//! A server of PostgreSQL on a port, as hosts on other machines reach it.

use std::fs;
use std::path::Path;

use crate::postgres::{Database, Server, is_installed, port, run};

/// A role of the server, and its password.
const ROLE: &str = "mill";
pub(crate) const PASSWORD: &str = "wheat";

impl Database {
    /// The URL by TCP, with this password and these parameters.
    pub(crate) fn url_by_tcp(&self, password: &str, parameters: &str) -> String {
        let port = port(&self.server);
        format!("postgres://{ROLE}:{password}@127.0.0.1:{port}/{}{parameters}", self.name)
    }
}

impl Server {
    /// A server that also listens on a port of the loopback address, for a role with [`PASSWORD`]; `prepare`
    /// may write files to its directory, and returns further lines of its settings.
    pub(crate) fn start_on_tcp(prepare: impl FnOnce(&Path) -> String) -> Option<Self> {
        is_installed().then(|| {
            let server = Self::spawn_with(|data| {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                let hba = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
                fs::write(data.join("pg_hba.conf"), hba).unwrap();
                let further = prepare(data);
                format!("listen_addresses = '127.0.0.1'\nport = {port}\n{further}")
            });
            let make = format!("CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD '{PASSWORD}'");
            run(server.dir.path(), "psql", &["-d", "postgres", "-qAtc", &make]);
            server
        })
    }
}
