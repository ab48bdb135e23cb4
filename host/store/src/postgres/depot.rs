//! The bytes of components in the database.
//!
//! **Bounds.** One operation at a time, on a connection of its own, so that no job waits for a part
//! of 1 MiB.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::depot::Depot;
use gristmill_postgres::{Connection, DatabaseError, SqlQuery, Value};

use crate::postgres::numbered::Numbered;
use crate::sync::Mutex;

/// The parts in the table `component_part`.
#[derive(Debug)]
pub(crate) struct PostgresDepot(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    connection: Mutex<Connection>,
    /// `None` on a host that does not own the database: it only reads.
    changes: Option<Arc<Numbered>>,
}

impl PostgresDepot {
    /// The depot of the host that owns the database.
    pub(crate) fn new(connection: Connection, changes: Numbered) -> Self {
        let changes = Some(Arc::new(changes));
        Self(Arc::new(Parts { connection: Mutex::new(connection), changes }))
    }

    /// A depot that refuses changes.
    pub(crate) fn reading(connection: Connection) -> Self {
        Self(Arc::new(Parts { connection: Mutex::new(connection), changes: None }))
    }

    /// Runs `work`, which changes the depot, on a thread that may block.
    async fn change(
        &self,
        work: impl FnOnce(&mut Connection, &Numbered) -> Result<(), DatabaseError> + Send + 'static,
    ) -> io::Result<()> {
        let changes = self.0.changes.clone().ok_or(io::ErrorKind::ReadOnlyFilesystem)?;
        self.run(move |connection| work(connection, &changes)).await
    }

    /// Runs `work` on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> io::Result<T> {
        let parts = self.0.clone();
        let work = move || work(&mut parts.connection.lock());
        let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?;
        done.map_err(|error| match error {
            DatabaseError::NoSpace(_) => io::Error::new(io::ErrorKind::StorageFull, error),
            error => io::Error::other(error),
        })
    }
}

#[async_trait]
impl Depot for PostgresDepot {
    async fn put_part(
        &self,
        component: ComponentDigest,
        part: u32,
        bytes: Bytes,
    ) -> io::Result<()> {
        self.change(move |connection, changes| {
            let insert = "INSERT INTO component_part (component, part, body) \
                 VALUES ($1::text, $2::integer, $3::bytea) ON CONFLICT DO NOTHING";
            let values: Vec<Value<'_>> =
                vec![Box::new(component.to_string()), Box::new(number(part)), Box::new(&bytes[..])];
            changes.transaction(connection, vec![SqlQuery::new(insert, values)])
        })
        .await
    }

    async fn part(&self, component: ComponentDigest, part: u32) -> io::Result<Option<Bytes>> {
        self.run(move |connection| {
            let sql =
                "SELECT body FROM component_part WHERE component = $1::text AND part = $2::integer";
            let values: Vec<Value<'_>> =
                vec![Box::new(component.to_string()), Box::new(number(part))];
            let rows = connection.query(&SqlQuery::new(sql, values))?;
            Ok(rows.first().map(|row| row.get::<_, Vec<u8>>(0).into()))
        })
        .await
    }

    async fn remove(&self, component: ComponentDigest) -> io::Result<()> {
        self.change(move |connection, changes| {
            let delete = "DELETE FROM component_part WHERE component = $1::text";
            let query = SqlQuery::new(delete, vec![Box::new(component.to_string())]);
            changes.transaction(connection, vec![query])
        })
        .await
    }

    async fn components(&self) -> io::Result<Vec<ComponentDigest>> {
        self.run(move |connection| {
            let sql = "SELECT DISTINCT component FROM component_part";
            let rows = connection.query(&SqlQuery::new(sql, Vec::new()))?;
            Ok(rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect())
        })
        .await
    }
}

/// A component has at most 64 parts.
fn number(part: u32) -> i32 {
    i32::try_from(part).unwrap_or(i32::MAX)
}
