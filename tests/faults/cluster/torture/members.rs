//! The hosts: each has links to the database and to the other hosts, and a clock of its own.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gristmill_tests::{Client, TestHost, disk_shim, set_clock_lead};
use rustix::process::Signal;
use tokio::task::block_in_place;

use crate::hosts::{arguments_by, cluster_address, signal};
use crate::postgres::{Database, Server};
use crate::proxy::Proxy;

/// A host with its links and its clock, which a supervisor starts again when it has ended.
pub(crate) struct Member {
    pub(crate) host: Mutex<TestHost>,
    client: Mutex<Client>,
    pub(crate) to_database: Proxy,
    pub(crate) to_host: Proxy,
    clock: PathBuf,
    /// It moves the clock. It is built before the first fault, since a build may take minutes.
    shim: &'static Path,
}

impl Member {
    /// Starts a host that may send webhooks to `receiver`. A further host has the key of the first
    /// one.
    pub(crate) async fn start(
        database: &Database,
        server: &Server,
        receiver: &str,
        admin_key: Option<&str>,
    ) -> Self {
        let (to_database, to_host) = (Proxy::to(server.address()).await, Proxy::start().await);
        let mut arguments = arguments_by(database, &to_database, &to_host);
        arguments.extend(["--drain-timeout", "5", "--webhook-allow", receiver].map(str::to_owned));
        let host = match admin_key {
            None => TestHost::start_with(&arguments),
            Some(key) => TestHost::join(&arguments, key),
        };
        let clock = host.scratch().join("clock");
        let client = Mutex::new(host.client());
        let shim = block_in_place(disk_shim);
        let member = Self { host: Mutex::new(host), client, to_database, to_host, clock, shim };
        member.set_clock(0);
        member.found(&member.host.lock().unwrap());
        member
    }

    pub(crate) fn set_clock(&self, lead: i64) {
        set_clock_lead(&self.clock, &lead.to_string());
    }

    /// The addresses of a host that has started.
    fn found(&self, host: &TestHost) {
        self.to_host.set_target(cluster_address(host));
        *self.client.lock().unwrap() = host.client();
    }

    pub(crate) fn client(&self) -> Client {
        self.client.lock().unwrap().clone()
    }

    /// Starts the host again if it has ended, and can start at present.
    pub(crate) fn supervise(&self) {
        let mut host = self.host.lock().unwrap();
        let environment =
            [("LD_PRELOAD", self.shim.as_os_str()), ("CLOCK_FILE", self.clock.as_os_str())];
        if host.has_ended() && host.try_start_again_in(&environment).is_ok() {
            self.found(&host);
        }
    }

    pub(crate) fn signal(&self, sent: Signal) {
        let mut host = self.host.lock().unwrap();
        if !host.has_ended() {
            signal(&host, sent);
        }
    }
}
