//! The URL of a database, without its password wherever it is shown.

use std::fmt;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error::OpenError;

/// The URL of a PostgreSQL database. It is shown without the password and without further parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Config);

impl DatabaseUrl {
    pub(crate) fn config(&self) -> &Config {
        &self.0
    }
}

impl FromStr for DatabaseUrl {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        let config = text.parse().ok().filter(|config: &Config| {
            is_url && (!config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty())
        });
        config.map(Self).ok_or_else(|| OpenError::DatabaseUrl(redacted(text)))
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.0;
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
