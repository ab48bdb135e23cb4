//! The ready line: one line on standard output, for people or, with `--json`, for scripts.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use gristmill_runtime::Pool;
use gristmill_store::{Recovery, SchemaUpgrade};
use serde_json::{Value, json};

use super::process::{ListenAddresses, Process};
use super::settings::Database;

/// The content of the line.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    pub(crate) addresses: ListenAddresses,
    pub(crate) data_dir: &'a Path,
    /// The database of the active host; `None` for a host with the jobs in its data directory.
    pub(crate) database: Option<&'a Database>,
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
    // Other outputs are kept: the journal of systemd, a file, the log of a container.
    let is_kept = !std::io::stdout().is_terminal();
    print(&if ready.as_json { as_json(ready, is_kept) } else { as_text(ready, is_kept) })
}

/// Prints the line of a host that stands by. Another line follows when it becomes active.
///
/// # Errors
/// When standard output is closed.
pub(super) fn announce_standby(process: &Process<'_>, database: &Database) -> anyhow::Result<()> {
    let Process { settings, listens_on, .. } = process;
    let ListenAddresses { clients: addr, scheme, .. } = listens_on;
    let url = database.url();
    if !settings.json {
        return print(&format!(
            "gristmill is ready on {scheme}://{addr} (data: {}, database: {url}), and stands by: another host \
             is active",
            settings.data_dir.display()
        ));
    }
    let mut line = json!({
        "addr": addr.to_string(),
        "url": format!("{scheme}://{addr}"),
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "dataDir": settings.data_dir,
        "database": url.to_string(),
        "role": "standby",
    });
    add_addresses(&mut line, *listens_on);
    print(&json!({ "ready": line }).to_string())
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot print the ready line")
}

fn add_addresses(line: &mut Value, at: ListenAddresses) {
    let addresses =
        [("metricsAddr", at.collectors), ("clusterAddr", at.hosts), ("httpAddr", at.pages)];
    if let Some(fields) = line.as_object_mut() {
        let known = addresses.into_iter().filter_map(|(name, addr)| Some((name, addr?)));
        fields.extend(known.map(|(name, addr)| (name.to_owned(), addr.to_string().into())));
    }
}

/// The line of the first start about its admin key. An output that is kept gets the file alone.
fn admin_key_line(file: &Path, key: &str, is_kept: bool) -> String {
    let file = file.display();
    match is_kept {
        true => format!("the admin key is in {file}"),
        false => format!("admin key, shown this once and kept in {file}: {key}"),
    }
}

fn as_json(ready: &Ready<'_>, is_kept: bool) -> String {
    let Ready { addresses, recovery, .. } = ready;
    let ListenAddresses { clients: addr, scheme, .. } = addresses;
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
            "left": recovery.left,
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
        if let Some(database) = ready.database {
            fields.insert("database".into(), database.url().to_string().into());
            fields.insert("role".into(), "active".into());
        }
        if let Some(key) = ready.admin_key {
            let file = ready.data_dir.join(gristmill_client::ADMIN_KEY_FILE);
            fields.insert("adminKeyFile".into(), json!(file));
            if !is_kept {
                fields.insert("adminKey".into(), key.into());
            }
        }
    }
    add_addresses(&mut line, *addresses);
    json!({ "ready": line }).to_string()
}

fn as_text(ready: &Ready<'_>, is_kept: bool) -> String {
    let Ready { addresses, recovery, .. } = ready;
    let ListenAddresses { clients: addr, scheme, .. } = addresses;
    let mut line = format!(
        "gristmill is ready on {scheme}://{addr} in {} ms (data: {}, sandboxes: {}",
        ready.started_in.as_millis(),
        ready.data_dir.display(),
        ready.pool
    );
    if let Some(database) = ready.database {
        line += &format!(", database: {}, active", database.url());
    }
    if recovery.waiting + recovery.requeued + recovery.given_up + recovery.left > 0 {
        line += &format!(
            ", jobs: {} waiting, {} of them to run again",
            recovery.waiting, recovery.requeued
        );
        if recovery.left > 0 {
            line += &format!(", {} on other hosts", recovery.left);
        }
        if recovery.given_up > 0 {
            line += &format!(
                ", {} FAILED since the host ended too often while they ran",
                recovery.given_up
            );
        }
    }
    if let Some(SchemaUpgrade { from, to }) = recovery.upgraded {
        line += &format!(", upgraded from schema {from} to {to}");
    }
    if let Some(addr) = addresses.collectors {
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
        let file = ready.data_dir.join(gristmill_client::ADMIN_KEY_FILE);
        line.push('\n');
        line += &admin_key_line(&file, key, is_kept);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_key_is_printed_on_a_terminal_alone() {
        let file = Path::new("data/admin.key");
        let on_terminal = admin_key_line(file, "gm_a_b", false);
        assert!(on_terminal.contains("data/admin.key: gm_a_b"), "{on_terminal}");
        let kept = admin_key_line(file, "gm_a_b", true);
        assert!(kept.contains("data/admin.key") && !kept.contains("gm_"), "{kept}");
    }

    #[test]
    fn an_upgrade_is_reported_with_its_way_back() {
        let addresses = ListenAddresses {
            clients: ([127, 0, 0, 1], 8080).into(),
            collectors: None,
            pages: None,
            hosts: None,
            advertised: None,
            scheme: "http",
        };
        let line = |upgraded| Ready {
            addresses,
            data_dir: Path::new("data"),
            database: None,
            pool: Pool::OnDemand,
            recovery: Recovery { upgraded, ..Recovery::default() },
            started_in: Duration::ZERO,
            admin_key: None,
            as_json: true,
        };
        let upgraded = line(Some(SchemaUpgrade { from: 1, to: 2 }));
        let json: Value = serde_json::from_str(&as_json(&upgraded, true)).unwrap();
        let copy = Path::new("data/before-upgrade-1");
        assert_eq!(json["ready"]["upgraded"], json!({ "from": 1, "to": 2, "copy": copy }));
        let text = as_text(&upgraded, true);
        assert!(text.contains("upgraded from schema 1 to 2"), "{text}");
        assert!(text.contains("are in data/before-upgrade-1: remove it"), "{text}");
        let opened = line(None);
        assert!(!as_json(&opened, true).contains("upgrade"));
        assert!(!as_text(&opened, true).contains("upgrade"));
    }
}
