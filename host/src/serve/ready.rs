//! The ready line: one line on standard output, for people or, with `--json`, for scripts.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use gristmill_runtime::Pool;
use gristmill_store::{Recovery, SchemaUpgrade};
use serde_json::json;

/// The content of the line.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    /// The address that was bound.
    pub(crate) addr: SocketAddr,
    /// The second address, for metrics.
    pub(crate) metrics_addr: Option<SocketAddr>,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    pub(crate) data_dir: &'a Path,
    /// The allocation of memory for sandboxes.
    pub(crate) pool: Pool,
    /// The findings of opening the store.
    pub(crate) recovery: Recovery,
    pub(crate) started_in: Duration,
    /// The admin key's text, on the first start only.
    pub(crate) admin_key: Option<&'a str>,
    pub(crate) as_json: bool,
}

/// Prints the line.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn announce(ready: &Ready<'_>) -> anyhow::Result<()> {
    let text = if ready.as_json { as_json(ready) } else { as_text(ready) };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot print the ready line")
}

fn as_json(ready: &Ready<'_>) -> String {
    let Ready { addr, scheme, recovery, .. } = ready;
    let mut line = json!({
        "addr": addr.to_string(),
        "url": format!("{scheme}://{addr}"),
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "dataDir": ready.data_dir,
        "pool": ready.pool.to_string(),
        "startedInMs": ready.started_in.as_millis(),
        "jobs": {
            "waiting": recovery.waiting,
            "requeued": recovery.requeued,
            "givenUp": recovery.given_up,
            "expired": recovery.expired,
        },
        "wasClean": recovery.was_clean,
    });
    if let Some(fields) = line.as_object_mut() {
        if let Some(upgrade @ SchemaUpgrade { from, to }) = recovery.upgraded {
            let copy = ready.data_dir.join(upgrade.copy());
            fields.insert("upgraded".into(), json!({ "from": from, "to": to, "copy": copy }));
        }
        if let Some(addr) = ready.metrics_addr {
            fields.insert("metricsAddr".into(), addr.to_string().into());
        }
        if let Some(key) = ready.admin_key {
            fields.insert("adminKey".into(), key.into());
        }
    }
    json!({ "ready": line }).to_string()
}

fn as_text(ready: &Ready<'_>) -> String {
    let Ready { addr, scheme, recovery, .. } = ready;
    let mut line = format!(
        "gristmill is ready on {scheme}://{addr} in {} ms (data: {}, sandboxes: {}",
        ready.started_in.as_millis(),
        ready.data_dir.display(),
        ready.pool
    );
    if recovery.waiting + recovery.requeued + recovery.given_up > 0 {
        line += &format!(
            ", jobs: {} waiting, {} of them to run again, {} given up",
            recovery.waiting, recovery.requeued, recovery.given_up
        );
    }
    if let Some(SchemaUpgrade { from, to }) = recovery.upgraded {
        line += &format!(", upgraded from schema {from} to {to}");
    }
    if let Some(addr) = ready.metrics_addr {
        line += &format!(", metrics: http://{addr}/metrics");
    }
    line.push(')');
    line += &format!(
        "\nweb console: {scheme}://{addr}/console/ (`gristmill console` makes a link with a login)"
    );
    if let Some(upgrade) = recovery.upgraded {
        line += &format!(
            "\nthe tables and the journal before the upgrade are in {}: remove it once you need no \
             way back",
            ready.data_dir.join(upgrade.copy()).display()
        );
    }
    if let Some(key) = ready.admin_key {
        line += &format!(
            "\nadmin key, shown this once and kept in {}: {key}",
            ready.data_dir.join(crate::ADMIN_KEY_FILE).display()
        );
    }
    line
}
