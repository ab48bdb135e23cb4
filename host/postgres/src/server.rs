//! The settings of a server, on which the safety of the jobs depends. They are read when a
//! connection is opened, so that a host neither starts on a server that could lose commits, nor
//! continues on one after a failover.

use tokio_postgres::Row;

/// The oldest server that this store is tested with, as the server writes its version.
const SERVER_VERSION_MIN: i32 = 150_000;

/// The settings of a server, on which the safety of the jobs depends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerSettings<'a> {
    version: i32,
    shown_version: &'a str,
    synchronous_commit: &'a str,
    fsync: &'a str,
    is_read_only: bool,
}

impl<'a> ServerSettings<'a> {
    /// Reads them, and keeps `synchronous_commit` for this connection: a change for the whole
    /// server, or for the role, affects later connections only.
    pub(crate) const SQL: &'static str = "SELECT current_setting('server_version_num')::integer, \
         current_setting('server_version'), \
         set_config('synchronous_commit', current_setting('synchronous_commit'), false), \
         current_setting('fsync'), \
         pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'";

    /// The answer to [`Self::SQL`].
    pub(crate) fn of(row: &'a Row) -> Self {
        Self {
            version: row.get(0),
            shown_version: row.get(1),
            synchronous_commit: row.get(2),
            fsync: row.get(3),
            is_read_only: row.get(4),
        }
    }

    /// The reason why a host does not use the server.
    pub(crate) fn fault(self) -> Option<String> {
        let Self { version, shown_version, synchronous_commit, fsync, is_read_only } = self;
        if version < SERVER_VERSION_MIN {
            return Some(format!(
                "the server is PostgreSQL {shown_version}, and at least 15 is needed"
            ));
        }
        if is_read_only {
            return Some(
                "the server is read only, as a standby is: name the primary server".to_owned(),
            );
        }
        if !["on", "remote_apply"].contains(&synchronous_commit) {
            return Some(format!(
                "synchronous_commit is `{synchronous_commit}`, so a crash of the server could lose \
                 acknowledged jobs: set it to `on` or `remote_apply`"
            ));
        }
        (fsync != "on").then(|| {
            "fsync is `off`, so a crash of the server could lose acknowledged jobs: set it to `on`"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_could_lose_jobs_is_refused() {
        let good = ServerSettings {
            version: 150_018,
            shown_version: "15.18 (Debian 15.18-0+deb12u1)",
            synchronous_commit: "on",
            fsync: "on",
            is_read_only: false,
        };
        assert_eq!(good.fault(), None);
        for synchronous_commit in ["on", "remote_apply"] {
            assert_eq!(ServerSettings { synchronous_commit, ..good }.fault(), None);
        }
        let old = ServerSettings { version: 140_022, shown_version: "14.22", ..good };
        let reason = "the server is PostgreSQL 14.22, and at least 15 is needed";
        assert_eq!(old.fault().as_deref(), Some(reason));
        for (settings, part) in [
            (ServerSettings { version: 149_999, ..good }, "at least 15 is needed"),
            (ServerSettings { is_read_only: true, ..good }, "name the primary server"),
            (ServerSettings { synchronous_commit: "off", ..good }, "synchronous_commit is `off`"),
            (
                ServerSettings { synchronous_commit: "local", ..good },
                "synchronous_commit is `local`",
            ),
            (ServerSettings { synchronous_commit: "remote_write", ..good }, "is `remote_write`"),
            (ServerSettings { fsync: "off", ..good }, "fsync is `off`"),
        ] {
            let fault = settings.fault().unwrap();
            assert!(fault.contains(part), "{fault}");
        }
    }
}
