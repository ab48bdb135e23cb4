//! PostgreSQL's client, for a thread that may block.
//!
//! *Promise:* a [`Connection`] belongs to a server that loses no commit, as far as its settings
//! show, and is opened again after it was lost. A [`DatabaseError`] says whether something was
//! written. Nothing here knows a table or a job.
//!
//! **Bounds.** An operation takes 30 s at most, unless its caller names another bound. **Cost.**
//! One round trip for a transaction.

mod connection;
mod server;
mod tls;
mod url;

pub use connection::{Connection, DatabaseError, SqlQuery, Transaction, Value};
pub use tokio_postgres::Row;
pub use tokio_postgres::types::ToSql;
pub use url::{DatabaseUrl, InvalidDatabaseUrl};
