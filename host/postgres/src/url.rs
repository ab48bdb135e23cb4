//! The URL of a database, without its password wherever it is shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::{Proof, Tls};

/// The URL of a PostgreSQL database. It is shown without the password and without further
/// parameters.
#[derive(Clone)]
pub struct DatabaseUrl {
    text: String,
    config: Config,
    tls: Tls,
}

/// URLs are equal if their texts are.
impl PartialEq for DatabaseUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for DatabaseUrl {}

impl DatabaseUrl {
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }
}

/// Why a text is not the URL of a database that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatabaseUrl {
    /// It is no such URL.
    #[error(
        "`{0}` is not the URL of a PostgreSQL database, such as postgres://user:password@host:5432/name"
    )]
    Url(String),
    /// Its parameters that concern TLS cannot be used.
    #[error("the URL of the database: {0}")]
    Tls(String),
}

/// The parameters of a URL that concern TLS.
#[derive(Default)]
struct TlsParameters {
    mode: Option<String>,
    authorities: Option<PathBuf>,
}

impl TlsParameters {
    /// Takes them out of a URL, and returns the rest of it.
    fn take(text: &str) -> (Self, String) {
        let mut found = Self::default();
        let Some((head, query)) = text.split_once('?') else { return (found, text.to_owned()) };
        let is_other = |parameter: &&str| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "sslmode" => found.mode = Some(value),
                "sslrootcert" => found.authorities = Some(value.into()),
                _ => return true,
            }
            false
        };
        let rest: Vec<_> = query.split('&').filter(is_other).collect();
        let rest =
            if rest.is_empty() { head.to_owned() } else { format!("{head}?{}", rest.join("&")) };
        (found, rest)
    }

    /// The mode of the driver, and the connections.
    fn settings(&self) -> Result<(SslMode, Tls), String> {
        let authorities = self.authorities.as_deref();
        let (mode, proof) = match (self.mode.as_deref(), authorities) {
            (Some("disable"), _) => (SslMode::Disable, Proof::Nothing),
            (None | Some("prefer"), None) => (SslMode::Prefer, Proof::Nothing),
            (Some("require"), None) => (SslMode::Require, Proof::Nothing),
            (Some("require" | "verify-ca"), Some(_)) => (SslMode::Require, Proof::Authority),
            (Some("verify-full"), Some(_)) => (SslMode::Require, Proof::AuthorityAndName),
            (Some(mode @ ("verify-ca" | "verify-full")), None) => {
                return Err(format!(
                    "sslmode={mode} needs sslrootcert, a file of certificates in PEM"
                ));
            }
            (None | Some("prefer"), Some(_)) => {
                return Err("sslrootcert needs sslmode=verify-full, or verify-ca".to_owned());
            }
            (Some(other), _) => {
                return Err(format!(
                    "sslmode is `{other}`, and may be disable, prefer, require, verify-ca or verify-full"
                ));
            }
        };
        let authorities = authorities.filter(|_| mode != SslMode::Disable);
        Ok((mode, Tls::new(proof, authorities)?))
    }
}

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidDatabaseUrl> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        let (tls, rest) = TlsParameters::take(text);
        let config = rest.parse().ok().filter(|config: &Config| {
            is_url && (!config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty())
        });
        let mut config = config.ok_or_else(|| InvalidDatabaseUrl::Url(redacted(text)))?;
        let (mode, tls) = tls.settings().map_err(InvalidDatabaseUrl::Tls)?;
        config.ssl_mode(mode);
        Ok(Self { text: text.to_owned(), config, tls })
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        f.write_str("postgres://")?;
        if let Some(user) = config.get_user() {
            write!(f, "{user}@")?;
        }
        let names = config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(directory) => directory.display().to_string(),
        });
        let addresses = config.get_hostaddrs().iter().map(ToString::to_string);
        let hosts: Vec<_> = match config.get_hosts().is_empty() {
            true => addresses.collect(),
            false => names.collect(),
        };
        for (index, host) in hosts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{host}")?;
            let ports = config.get_ports();
            if let Some(port) = ports.get(index).or_else(|| ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", config.get_dbname().or_else(|| config.get_user()).unwrap_or_default())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no URL of a database, without what may be a user and a password.
fn redacted(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => {
            [text.get(..scheme + 3), Some("…"), text.get(at..)].into_iter().flatten().collect()
        }
        _ if text.contains("password") => "…".to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (text, shown) in [
            ("postgres://me:secret@db.lan:5433/mill", "postgres://me@db.lan:5433/mill"),
            ("postgresql://me@h/d?password=secret&sslmode=disable", "postgres://me@h:5432/d"),
            ("postgresql:///d?user=u&host=/run/pg", "postgres://u@/run/pg/d"),
            ("postgres://u:secret@a:1,b:2/d", "postgres://u@a:1,b:2/d"),
        ] {
            let url: DatabaseUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
        }
    }

    #[test]
    fn tls_parameters_that_do_not_fit_together_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("no certificate.pem");
        std::fs::write(&file, "x").unwrap();
        let named = format!("verify-full&sslrootcert={}", file.display()).replace(' ', "%20");
        for (parameters, refusal) in [
            ("verify-full", Some("sslmode=verify-full needs sslrootcert")),
            ("verify-ca", Some("sslmode=verify-ca needs sslrootcert")),
            ("allow", Some("may be disable, prefer, require, verify-ca or verify-full")),
            ("prefer&sslrootcert=a", Some("sslrootcert needs sslmode=verify-full")),
            (
                "verify-full&sslrootcert=/nowhere/ca.pem",
                Some("sslrootcert `/nowhere/ca.pem`: No such"),
            ),
            (&named, Some("no certificate.pem`: it has no certificate in PEM")),
            ("require", None),
            ("disable&application_name=x", None),
        ] {
            let parsed =
                format!("postgres://u:secret@h/d?sslmode={parameters}").parse::<DatabaseUrl>();
            match (parsed, refusal) {
                (Ok(url), None) => assert_eq!(url.to_string(), "postgres://u@h:5432/d"),
                (Err(error), Some(refusal)) => {
                    let said = error.to_string();
                    assert!(said.contains(refusal) && !said.contains("secret"), "{said}");
                }
                (other, _) => panic!("{parameters}: {other:?}"),
            }
        }
    }

    #[test]
    fn other_texts_are_refused_without_a_password() {
        for text in
            ["", "h", "mysql://h/d", "postgres://me:secret@/x y", "host=h password=secret user=u"]
        {
            let refused = text.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(refused.contains("postgres://user:password@host:5432/name"), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
