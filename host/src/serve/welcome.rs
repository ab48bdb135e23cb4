//! What a person at a terminal reads when the host is ready: a link that logs in to the web
//! console, and the first commands as long as there is no endpoint.
//!
//! **Promise.** Without a terminal nothing is printed and no link is made: the journal of a service
//! manager keeps what it gets.

use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use gristmill_client::ADMIN_KEY_FILE;
use gristmill_control::{SecretText, Sessions};
use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::Catalog;
use gristmill_core::time::Timestamp;

use super::process::ListenAddresses;
use super::settings::ServeSettings;

/// The terminal that shows it; `None` when neither output is one.
#[derive(Debug, Clone, Copy)]
enum Terminal {
    Stdout,
    Stderr,
}

impl Terminal {
    fn find() -> Option<Self> {
        match (stdout().is_terminal(), stderr().is_terminal()) {
            (true, _) => Some(Self::Stdout),
            (false, true) => Some(Self::Stderr),
            (false, false) => None,
        }
    }

    /// A terminal that is closed meanwhile changes nothing for the host.
    fn show(self, text: &str) {
        let _ = match self {
            Self::Stdout => writeln!(stdout(), "{text}"),
            Self::Stderr => writeln!(stderr(), "{text}"),
        };
    }
}

/// Greets the person at the terminal, if there is one.
pub(super) fn greet(
    settings: &ServeSettings,
    at: ListenAddresses,
    catalog: &Catalog,
    sessions: &Sessions,
    now: Timestamp,
) {
    let Some(terminal) = Terminal::find().filter(|_| !settings.json) else { return };
    let url = format!("{}://{}", at.scheme, reachable(at.clients));
    let link = match settings.no_key {
        true => None,
        false => link(catalog, sessions, &settings.data_dir, now),
    };
    if let Some(link) = link {
        terminal.show(&format!(
            "this link logs in to the web console once, within a minute; `gristmill console` makes \
             another one:\n  {url}/console/#/enter/{}",
            link.reveal()
        ));
    }
    if catalog.view().deployments.is_empty() {
        terminal.show(&first_commands(settings, &url));
    }
}

/// A link of the key in the data directory, whose owner may read it anyway.
fn link(
    catalog: &Catalog,
    sessions: &Sessions,
    data_dir: &Path,
    now: Timestamp,
) -> Option<SecretText> {
    let text = fs::read_to_string(data_dir.join(ADMIN_KEY_FILE)).ok()?;
    let (id, secret) = ApiKey::parse_text(text.trim())?;
    let view = catalog.view();
    let key = view.keys.get(&id).filter(|key| key.accepts(secret, now))?;
    Some(sessions.create_link(key).0)
}

/// The address at which a program of this machine reaches a listener.
fn reachable(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

fn first_commands(settings: &ServeSettings, url: &str) -> String {
    let sample = gristmill_samples::first();
    let usual = ServeSettings::default();
    let mut lines = String::from("there is no endpoint yet; in another terminal");
    // The commands find the key of the data directory below the current one.
    if settings.data_dir.is_relative() {
        lines += ", in this directory";
    }
    lines += ":\n";
    if url != format!("http://{}", usual.listen) {
        lines += &format!("  export GRISTMILL_URL={url}\n");
    }
    if settings.data_dir != usual.data_dir {
        lines += &format!("  export GRISTMILL_DATA_DIR={}\n", settings.data_dir.display());
    }
    lines
        + &format!(
            "  gristmill deploy --sample {name}\n  gristmill submit {name} --input '{input}' --wait\n  \
             gristmill new my-handler --lang rust      # or python, typescript",
            name = sample.name,
            input = sample.input,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_reach_the_host_from_another_terminal() {
        let usual = first_commands(&ServeSettings::default(), "http://127.0.0.1:8080");
        assert!(usual.contains("in this directory") && !usual.contains("export"), "{usual}");
        let settings = ServeSettings { data_dir: "/srv/mill".into(), ..ServeSettings::default() };
        let other = first_commands(&settings, "http://127.0.0.1:9000");
        assert!(other.contains("export GRISTMILL_URL=http://127.0.0.1:9000\n"), "{other}");
        assert!(other.contains("export GRISTMILL_DATA_DIR=/srv/mill\n"), "{other}");
        assert!(!other.contains("in this directory"), "{other}");
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
    }
}
