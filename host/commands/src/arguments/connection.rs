//! The host that a client command calls, and its key.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gristmill_client::{ADMIN_KEY_FILE, Client, Retries, is_loopback};
use url::Url;

use super::parse;

/// The options of every client command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The URL of the host.
    #[arg(
        long,
        env = "GRISTMILL_URL",
        default_value = "http://127.0.0.1:8080",
        value_parser = parse::host_url,
        hide_env_values = true
    )]
    url: Url,

    /// The API key. Prefer the environment variable: other users can read command lines.
    #[arg(long, value_name = "KEY", env = "GRISTMILL_API_KEY", hide_env_values = true)]
    api_key: Option<String>,

    /// A file with the certificates, as PEM, of the authorities to trust instead of the system's.
    #[arg(long, value_name = "FILE", env = "GRISTMILL_CA_CERT", hide_env_values = true)]
    ca_cert: Option<PathBuf>,

    /// The host's data directory. Without an API key, and only for a host on this machine, the
    /// command uses the file admin.key in it.
    #[arg(
        long,
        value_name = "DIR",
        env = "GRISTMILL_DATA_DIR",
        default_value = "./gristmill-data",
        hide_env_values = true
    )]
    data_dir: PathBuf,
}

impl ConnectionArgs {
    /// A client with the available key.
    ///
    /// # Errors
    /// When the key has invalid characters, or the file of certificates cannot be used.
    pub fn client(self) -> anyhow::Result<Client> {
        let given = self.api_key.filter(|key| !key.is_empty());
        let key = match given {
            Some(key) => Some(key),
            // The admin key permits everything, so it is not sent to other machines by default.
            None if is_loopback(&self.url) => read_admin_key(&self.data_dir),
            None => None,
        };
        // A command reports a failure at once. Those that wait for a job try again themselves.
        let mut builder = Client::builder(self.url).retries(Retries::NONE);
        if let Some(key) = &key {
            builder = builder.key(key.trim());
        }
        if let Some(file) = &self.ca_cert {
            let name = file.display();
            let pem = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
            return builder.authorities(pem).build().with_context(|| format!("cannot use {name}"));
        }
        Ok(builder.build()?)
    }
}

fn read_admin_key(data_dir: &Path) -> Option<String> {
    // The host may need no key, or belong to another user; its answer will show this.
    let text = std::fs::read_to_string(data_dir.join(ADMIN_KEY_FILE)).ok()?;
    let key = text.trim();
    (!key.is_empty()).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_key(url: &str, api_key: Option<&str>, data_dir: &Path) -> bool {
        let args = ConnectionArgs {
            url: url.parse().unwrap(),
            api_key: api_key.map(str::to_owned),
            data_dir: data_dir.to_owned(),
            ca_cert: None,
        };
        args.client().unwrap().has_key()
    }

    #[test]
    fn the_admin_key_is_used_on_this_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        let local = "http://127.0.0.1:8080";
        let remote = "http://example.com";
        assert!(!has_key(local, None, dir.path()));
        std::fs::write(dir.path().join(ADMIN_KEY_FILE), "gm_a_b\n").unwrap();
        assert!(has_key(local, None, dir.path()));
        assert!(has_key(local, Some(""), dir.path()));
        assert!(!has_key(remote, None, dir.path()));
        assert!(has_key(remote, Some("gm_c_d"), dir.path()));
    }
}
