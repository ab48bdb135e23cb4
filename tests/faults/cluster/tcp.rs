//! A server of PostgreSQL on a port, as hosts on other machines reach it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use crate::postgres::{Database, Server, as_user, directory, done, is_installed, port, run, serve};

/// A role of the server, and its password.
const ROLE: &str = "mill";
pub(crate) const PASSWORD: &str = "wheat";

impl Database {
    /// The URL by TCP, with this password and these parameters.
    pub(crate) fn url_by_tcp(&self, password: &str, parameters: &str) -> String {
        format!("{}{parameters}", self.url_at(self.address_by_tcp(), password))
    }

    /// The URL at another address, such as that of a proxy.
    pub(crate) fn url_at(&self, address: SocketAddr, password: &str) -> String {
        format!("postgres://{ROLE}:{password}@{address}/{}", self.name)
    }

    pub(crate) fn address_by_tcp(&self) -> SocketAddr {
        let port = port(&self.server).parse().unwrap();
        (Ipv4Addr::LOCALHOST, port).into()
    }
}

impl Server {
    /// A server that also listens on a port of the loopback address, for a role with [`PASSWORD`];
    /// `prepare` may write files to its directory, and returns further lines of its settings.
    pub(crate) fn start_on_tcp(prepare: impl FnOnce(&Path) -> String) -> Option<Self> {
        let server = Self::start_without_roles(prepare)?;
        server.sql(&format!("CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"));
        Some(server)
    }

    /// The same without that role.
    pub(crate) fn start_without_roles(prepare: impl FnOnce(&Path) -> String) -> Option<Self> {
        is_installed().then(|| {
            Self::spawn_with(|data| {
                let port = free_port();
                let hba = "local all all trust\nlocal replication all trust\n\
                           host all all 127.0.0.1/32 scram-sha-256\n";
                fs::write(data.join("pg_hba.conf"), hba).unwrap();
                let further = prepare(data);
                format!("listen_addresses = '127.0.0.1'\nport = {port}\n{further}")
            })
        })
    }

    /// A server whose disk has so many MiB. Only in a namespace of the test's own.
    pub(crate) fn start_on_small_disk(mib: u32) -> Option<Self> {
        is_installed().then(|| {
            let dir = directory();
            let size = format!("size={mib}m");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path());
            done(&mut mount);
            done(Command::new("chown").arg("postgres").arg(dir.path()));
            Self::spawn_in(dir, |_| "min_wal_size = 32MB\nmax_wal_size = 64MB\n".to_owned())
        })
    }

    /// Whether its process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    /// A hot standby of this server, with a port of its own.
    pub(crate) fn standby(&self) -> Self {
        let dir = directory();
        let data = dir.path().join("data");
        let mut copy = as_user("pg_basebackup");
        copy.arg("-h").arg(self.dir.path()).args(["-p", &port(self.dir.path()), "-U", "postgres"]);
        done(copy.args(["-R", "-X", "stream", "-c", "fast", "-D"]).arg(&data));
        let conf = data.join("postgresql.conf");
        let settings = format!(
            "{}port = {}\nunix_socket_directories = '{}'\n",
            fs::read_to_string(&conf).unwrap(),
            free_port(),
            dir.path().display()
        );
        fs::write(&conf, settings).unwrap();
        let process = Some(serve(dir.path()));
        Self { dir, process }
    }

    /// Runs SQL on the server itself.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.sql_in("postgres", sql)
    }

    /// Runs SQL in one of its databases.
    pub(crate) fn sql_in(&self, database: &str, sql: &str) -> String {
        run(self.dir.path(), "psql", &["-d", database, "-v", "ON_ERROR_STOP=1", "-qAtc", sql])
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let port = port(self.dir.path()).parse().unwrap();
        (Ipv4Addr::LOCALHOST, port).into()
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
