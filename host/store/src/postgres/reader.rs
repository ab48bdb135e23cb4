//! The thread that answers everything that is not in memory, and watches the database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::access::secrets::RotateError;
use gristmill_core::backup::BackupError;
use gristmill_core::billing::usage::{Hour, UsageQuery};
use gristmill_core::job::payload::Json;
use gristmill_core::sharing::disk_space::Shortage;
use gristmill_core::store::{StoreError, StoreFull};
use gristmill_postgres::{Connection, DatabaseError, SqlQuery};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::checkpoint::bill_expiry::BillExpiry;
use crate::error::OpenError;
use crate::format::CatalogRow;
use crate::format::EndpointKey;
use crate::format::pages::{Answer, Page, Query};
use crate::format::payload::{Found, Kind, Payload, open_s3};
use crate::postgres::load::{self, NotLoaded, UsagePart};
use crate::postgres::numbered::Numbered;
use crate::postgres::outage::Outage;
use crate::postgres::session::{self, Backend, Session};
use crate::postgres::{Postgres, User};
use crate::shared::Shared;
use crate::state::index::Phase;
use crate::state::requests::DbRequest;
use crate::sync::thread::{Builder, JoinHandle};
use crate::tables::catalog;
use crate::tables::sql::integer;

/// Interval at which an idle thread asks the database whether the session is alive. New work is
/// refused at the latest this much later than the database's end.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before the next attempt to reach the database.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Attempts to reach the database, at the end of a store that has committed everything.
const TRIES_AT_END: u32 = 10;

/// Attempts to read a part of the usage, of 10 s each. The second one finds many rows in the
/// server's memory.
const USAGE_TRIES: u32 = 2;

/// Answers requests for rows.
#[derive(Debug)]
pub(crate) struct PostgresReader {
    shared: Arc<Shared>,
    medium: Arc<Postgres>,
    connection: Connection,
    /// The newest process of the server that had the session's lock.
    lock_holder: Backend,
    session: Session,
    changes: Numbered,
    bill_expiry: BillExpiry,
    outage: Outage,
}

/// Why the thread ends.
enum End {
    /// The store was closed, or has ended.
    Closed,
    Failed(String),
}

impl PostgresReader {
    /// `connection` holds the session's lock.
    pub(crate) fn new(
        shared: Arc<Shared>,
        medium: Arc<Postgres>,
        (connection, lock_holder): (Connection, Backend),
        session: Session,
        changes: Numbered,
    ) -> Self {
        let (bill_expiry, outage) = (BillExpiry::default(), Outage::default());
        Self { shared, medium, connection, lock_holder, session, changes, bill_expiry, outage }
    }

    /// Starts the thread. It ends when the index is closed, or drained.
    pub(crate) fn start(self) -> Result<JoinHandle<()>, OpenError> {
        let builder = Builder::new().name("store-reader".to_owned());
        builder.spawn(move || self.run()).map_err(OpenError::Thread)
    }

    fn run(mut self) {
        let shared = self.shared.clone();
        shared.end(match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(End::Closed) => None,
            Ok(End::Failed(reason)) => Some(reason),
            Err(_) => Some("the database's thread panicked".to_owned()),
        });
    }

    fn serve(&mut self) -> End {
        loop {
            let shared = self.shared.clone();
            let mut index = shared.index();
            let requests = index.take_requests();
            if requests.is_empty() {
                match index.phase() {
                    Phase::Closed => return End::Closed,
                    Phase::Drained => {
                        drop(index);
                        // The next host may be active before this process has ended.
                        self.medium.end();
                        if let Err(error) = self.session.close(&mut self.connection) {
                            warn!("the end of this host is not recorded in the database: {error}");
                        }
                        return End::Closed;
                    }
                    Phase::Open | Phase::Closing => {}
                }
                shared.wait_medium(&mut index, Some(LOOK_INTERVAL));
                let dropped = index.take_dropped_records(self.medium.committed_seq());
                drop(index);
                if let Err(end) = self.until_done(|it| it.look(&dropped)) {
                    return end;
                }
                continue;
            }
            drop(index);
            for request in requests {
                if let Err(end) = self.answer(request) {
                    return end;
                }
            }
        }
    }

    /// Repeats `work` while the database is unavailable.
    fn until_done<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, NotLoaded>,
    ) -> Result<T, End> {
        let mut tries_at_end = TRIES_AT_END;
        loop {
            if let Some(done) = self.attempt(&mut work)? {
                return Ok(done);
            }
            self.pause(&mut tries_at_end)?;
        }
    }

    /// The same for a caller that waits for `answer`; `None` when the caller has left: a read
    /// without a reader is not repeated.
    fn while_needed<A, T>(
        &mut self,
        answer: &oneshot::Sender<A>,
        mut work: impl FnMut(&mut Self) -> Result<T, NotLoaded>,
    ) -> Result<Option<T>, End> {
        let mut tries_at_end = TRIES_AT_END;
        while !answer.is_closed() {
            if let Some(done) = self.attempt(&mut work)? {
                return Ok(Some(done));
            }
            self.pause(&mut tries_at_end)?;
        }
        Ok(None)
    }

    /// Sends what `work` reads.
    fn send<T>(
        &mut self,
        answer: oneshot::Sender<T>,
        work: impl FnMut(&mut Self) -> Result<T, NotLoaded>,
    ) -> Result<(), End> {
        if let Some(read) = self.while_needed(&answer, work)? {
            let _ = answer.send(read);
        }
        Ok(())
    }

    /// Carries out `work`; `None` while the database is unavailable.
    fn attempt<T>(
        &mut self,
        work: &mut impl FnMut(&mut Self) -> Result<T, NotLoaded>,
    ) -> Result<Option<T>, End> {
        let done = match self.connection.is_closed() {
            true => self.lock_again().map_err(NotLoaded::from),
            false => Ok(()),
        };
        match done.and_then(|()| work(self)) {
            Ok(done) => {
                self.medium.set_cut_off(User::Reader, false);
                if self.outage.end() {
                    info!("the database is available again");
                }
                Ok(Some(done))
            }
            Err(NotLoaded::Failed(
                error @ (DatabaseError::Unavailable(_)
                | DatabaseError::Late
                | DatabaseError::NoSpace(_)),
            )) => {
                self.medium.set_cut_off(User::Reader, true);
                let reason = error.to_string();
                if self.outage.is_news(&reason) {
                    warn!("{reason}; new work is refused until it is available again");
                }
                Ok(None)
            }
            Err(error) => Err(End::Failed(error.to_string())),
        }
    }

    /// Waits for a moment before the next attempt.
    fn pause(&self, tries_at_end: &mut u32) -> Result<(), End> {
        let mut index = self.shared.index();
        match index.phase() {
            Phase::Closed => return Err(End::Closed),
            // Everything is committed, so nothing is lost if the end of the session is not
            // recorded.
            Phase::Drained if *tries_at_end == 0 => return Err(End::Closed),
            Phase::Drained => *tries_at_end -= 1,
            Phase::Open | Phase::Closing => {}
        }
        self.shared.wait_medium(&mut index, Some(RETRY_PAUSE));
        Ok(())
    }

    /// Takes the lock on a new connection. Another host that has it has ended this session. Without
    /// the lock the connection is of no use. The server may also be another one than before,
    /// without the newest commits, whose results this host must not answer from its memory.
    fn lock_again(&mut self) -> Result<(), DatabaseError> {
        let confirmed = self.medium.confirmed.newest();
        let is_locked = self.try_lock()?;
        let found = self.session.newest_commits(&mut self.connection);
        if !is_locked {
            self.connection.close();
        }
        match found? {
            Some(found) if is_locked => confirmed.check(found),
            // The work that follows finds that the session has ended.
            None if is_locked => Ok(()),
            Some(_) => Err(DatabaseError::Unavailable(
                "it has not released the session's lock yet".to_owned(),
            )),
            None => Err(DatabaseError::Fenced),
        }
    }

    /// Takes the lock. The server may still serve the connection that had it before: a network that
    /// loses packets does not show the server the end of a connection, and a statement in progress
    /// is carried out to its end. So that process is ended, which can do nothing any more that this
    /// host waits for.
    fn try_lock(&mut self) -> Result<bool, DatabaseError> {
        let mut holder = session::try_lock(&mut self.connection)?;
        if holder.is_none() {
            self.lock_holder.end(&mut self.connection)?;
            holder = session::try_lock(&mut self.connection)?;
        }
        self.lock_holder = holder.unwrap_or(self.lock_holder);
        Ok(holder.is_some())
    }

    /// Checks the session, and removes the rows of idempotency records that were dropped.
    fn look(&mut self, dropped: &[u64]) -> Result<(), NotLoaded> {
        let mut queries = Vec::with_capacity(2);
        if !dropped.is_empty() {
            let seqs: Vec<i64> = dropped.iter().map(|seq| integer(*seq)).collect();
            let delete = "DELETE FROM idempotency WHERE seq = ANY ($1::bigint[])";
            queries.push(SqlQuery::new(delete, vec![Box::new(seqs)]));
        }
        queries.push(self.session.fence());
        self.connection.transaction(&queries)?;
        Ok(())
    }

    fn answer(&mut self, request: DbRequest) -> Result<(), End> {
        // A dropped receiver means that the caller does not need the answer any more.
        match request {
            DbRequest::Payloads { seqs, kind, answer } => {
                self.send(answer, |it| it.payloads(&seqs, kind))?;
            }
            DbRequest::Chunks { seq, query, answer } => {
                self.send(answer, |it| it.chunks(seq, &query))?;
            }
            DbRequest::DeliveryBody { id, answer } => {
                self.send(answer, |it| it.delivery_body(integer(id.0)).map(Ok))?;
            }
            DbRequest::Catalog { answer } => {
                let seal = self.shared.seal.clone();
                self.send(answer, |it| load::catalog_bodies(&mut it.connection, &seal))?;
            }
            DbRequest::WriteCatalog(rows, answer) => {
                let deleted = self.shared.index().numbers_of_deleted(&rows);
                let written = self.until_done(|it| it.write_catalog(&rows, &deleted))?;
                let _ = answer.send(written);
            }
            DbRequest::Usage { query, mut found, answer } => {
                let read = |it: &mut Self| it.usage(&query, &answer);
                match self.while_needed(&answer, read)? {
                    Some(Some(UsagePart { rows, rest })) => {
                        found.extend(rows);
                        match rest {
                            // The other requests come first.
                            Some(query) => {
                                let rest = DbRequest::Usage { query, found, answer };
                                self.shared.index().push_request(rest);
                            }
                            None => drop(answer.send(Ok(found))),
                        }
                    }
                    Some(None) => drop(answer.send(Err(StoreError::Unavailable))),
                    None => {}
                }
            }
            // The batches have written all rows.
            DbRequest::StoreUsage => {
                let too_old = Hour::of(self.shared.clock.now()).first_kept();
                self.until_done(|it| it.delete_old_usage(too_old))?;
                let mut index = self.shared.index();
                let stored = index.meters_mut().unstored();
                index.meters_mut().stored(stored);
            }
            DbRequest::PutAction { action, answer } => {
                let body = serde_json::to_string(&action).expect("an action is plain data");
                let put = "INSERT INTO job_action (id, body) VALUES ($1, $2) \
                     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
                let query =
                    || SqlQuery::new(put, vec![Box::new(action.id.as_str()), Box::new(&body)]);
                let written = self.until_done(|it| it.write(vec![query()]))?;
                let _ = answer.send(written);
            }
            DbRequest::DeleteAction { id, answer } => {
                let delete = "DELETE FROM job_action WHERE id = $1";
                let query = || SqlQuery::new(delete, vec![Box::new(id.as_str())]);
                let written = self.until_done(|it| it.write(vec![query()]))?;
                let _ = answer.send(written);
            }
            DbRequest::Actions { answer } => {
                self.send(answer, Self::actions)?;
            }
            DbRequest::Backup { answer, .. } => {
                let sentence = "the data of this host is in PostgreSQL: back up the database with its own tools, \
                     such as pg_dump or continuous archiving, and keep a copy of the file with the key of \
                     stored secrets";
                let _ = answer.send(Err(BackupError::Elsewhere(sentence)));
            }
            DbRequest::Rotate { answer } => {
                let sentence = "the hosts of a database share the key of stored secrets, and it cannot be \
                     replaced yet: replace the secrets themselves if the key is known to others";
                let _ = answer.send(Err(RotateError::Shared(sentence)));
            }
            // Only a medium that archives jobs gets these requests.
            DbRequest::Locate { .. }
            | DbRequest::Load { .. }
            | DbRequest::Search { .. }
            | DbRequest::ExpireArchived { .. }
            | DbRequest::TrimArchived { .. }
            | DbRequest::DeleteArchived { .. } => {
                debug_assert!(false, "no job is archived");
            }
            #[cfg(test)]
            DbRequest::WatchRotation { .. } | DbRequest::JobRows { .. } => {}
        }
        Ok(())
    }

    /// Runs statements as one transaction of this session.
    fn write(&mut self, queries: Vec<SqlQuery<'_>>) -> Result<Result<(), StoreError>, NotLoaded> {
        match self.changes.transaction(&mut self.connection, queries) {
            Ok(()) => Ok(Ok(())),
            Err(DatabaseError::NoSpace(details)) => {
                warn!("the database's disk is full: {details}");
                Ok(Err(StoreFull::Disk(Shortage::Bytes).into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn payloads(&mut self, seqs: &[u64], kind: Kind) -> Result<Vec<Found<Payload>>, NotLoaded> {
        let sql = match kind {
            Kind::Input => "SELECT seq, input, s3 FROM job WHERE seq = ANY ($1::bigint[])",
            Kind::Output => {
                "SELECT seq, output, NULL::bytea FROM job WHERE seq = ANY ($1::bigint[])"
            }
        };
        let numbers: Vec<i64> = seqs.iter().map(|seq| integer(*seq)).collect();
        let rows = self.connection.query(&SqlQuery::new(sql, vec![Box::new(numbers)]))?;
        let payload = |seq: &u64| -> Found<Payload> {
            let Some(row) = rows.iter().find(|row| row.get::<_, i64>(0) == integer(*seq)) else {
                return Ok(None);
            };
            let Some(body) = row.get::<_, Option<Vec<u8>>>(1) else { return Ok(None) };
            let s3_config = match row.get::<_, Option<&[u8]>>(2) {
                Some(sealed) => Some(
                    open_s3(sealed, &self.shared.seal, *seq)
                        .ok_or_else(|| format!("the stored s3Config of row {seq} is damaged"))?,
                ),
                None => None,
            };
            let payload = Payload { body: Json::from_stored(body), s3_config };
            Ok(Some(payload))
        };
        Ok(seqs.iter().map(payload).collect())
    }

    fn chunks(
        &mut self,
        seq: u64,
        query: &Query,
    ) -> Result<Result<gristmill_core::job::record::ChunkPage, String>, NotLoaded> {
        /// Pages in one answer: of 256 KiB at most, beside a last chunk.
        const PAGES: i64 = 8;
        let sql = "SELECT first, body FROM chunk WHERE seq = $1::bigint AND first >= coalesce( \
             (SELECT max(first) FROM chunk WHERE seq = $1::bigint AND first <= $2::bigint), 0) \
             ORDER BY first LIMIT $3::bigint";
        let mut answer = Answer::new(query);
        while let Some(next) = answer.next_needed() {
            let values: Vec<_> = vec![
                Box::new(integer(seq)) as _,
                Box::new(integer(next)) as _,
                Box::new(PAGES) as _,
            ];
            let rows = self.connection.query(&SqlQuery::new(sql, values))?;
            for row in &rows {
                let first = row.get::<_, i64>(0).unsigned_abs();
                let Some(page) = Page::decode(first, row.get::<_, Vec<u8>>(1).into()) else {
                    let details =
                        format!("the stored chunks of row {seq} from {first} on are damaged");
                    return Ok(Err(details));
                };
                answer.take(&page);
            }
            if answer.next_needed() == Some(next) {
                break;
            }
        }
        Ok(Ok(answer.page))
    }

    fn delivery_body(&mut self, id: i64) -> Result<Option<Json>, NotLoaded> {
        let sql = "SELECT body FROM delivery WHERE id = $1::bigint";
        let rows = self.connection.query(&SqlQuery::new(sql, vec![Box::new(id)]))?;
        let body = rows.first().and_then(|row| row.get::<_, Option<Vec<u8>>>(0));
        Ok(body.map(Json::from_stored))
    }

    fn write_catalog(
        &mut self,
        rows: &[CatalogRow],
        deleted: &[EndpointKey],
    ) -> Result<Result<(), StoreError>, NotLoaded> {
        let mut queries = Vec::with_capacity(rows.len() + 2);
        for row in rows {
            let (kind, name) = (row.kind, row.name.as_str());
            queries.push(match &row.body {
                Some(body) => {
                    let sealed = catalog::seal(&self.shared.seal, row, body);
                    let put = "INSERT INTO catalog (kind, name, body) VALUES ($1, $2, $3) \
                         ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body";
                    SqlQuery::new(put, vec![Box::new(kind), Box::new(name), Box::new(sealed)])
                }
                None => SqlQuery::new(
                    "DELETE FROM catalog WHERE kind = $1 AND name = $2",
                    vec![Box::new(kind), Box::new(name)],
                ),
            });
        }
        if !deleted.is_empty() {
            let keys: Vec<i64> = deleted.iter().map(|key| key.0.into()).collect();
            let mark = "INSERT INTO deleting (endpoint) SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING";
            queries.push(SqlQuery::new(mark, vec![Box::new(keys)]));
        }
        self.write(queries)
    }

    /// A part of the usage; `None` when the server needs too long. Then only this request fails:
    /// the server works.
    fn usage<A>(
        &mut self,
        query: &UsageQuery,
        answer: &oneshot::Sender<A>,
    ) -> Result<Option<UsagePart>, NotLoaded> {
        let first_kept = Hour::of(self.shared.clock.now()).first_kept();
        for _ in 0..USAGE_TRIES {
            match load::usage_part(&mut self.connection, query, first_kept) {
                Err(NotLoaded::Failed(error @ DatabaseError::Late)) => {
                    warn!("the usage of {:?} was not read: {error}", query.hours);
                }
                read => return read.map(Some),
            }
            if answer.is_closed() {
                break;
            }
        }
        Ok(None)
    }

    /// Deletes the oldest hours of usage before `too_old`, as many as [`BillExpiry`] allows.
    fn delete_old_usage(&mut self, too_old: Hour) -> Result<(), NotLoaded> {
        let Some(oldest) = load::oldest_usage(&mut self.connection)? else { return Ok(()) };
        let elapsed = self.shared.clock.elapsed();
        let first_kept = self.bill_expiry.first_kept(oldest, too_old, elapsed);
        if first_kept <= oldest {
            return Ok(());
        }
        // Before the statement: one whose answer was lost may have deleted them.
        self.bill_expiry.record(elapsed);
        let delete = "DELETE FROM usage WHERE hour < $1::bigint";
        let query = SqlQuery::new(delete, vec![Box::new(i64::from(first_kept.0))]);
        self.connection.transaction(&[query, self.session.fence()])?;
        Ok(())
    }

    /// All actions that can be read. A damaged one is left out: the jobs do not depend on it.
    fn actions(&mut self) -> Result<Vec<gristmill_core::job::action::JobAction>, NotLoaded> {
        let sql = "SELECT id, body FROM job_action ORDER BY id";
        let rows = self.connection.query(&SqlQuery::new(sql, Vec::new()))?;
        let mut actions = Vec::new();
        for row in &rows {
            match serde_json::from_str(row.get(1)) {
                Ok(action) => actions.push(action),
                Err(reason) => {
                    let id: &str = row.get(0);
                    error!("the job action `{id}` is damaged, and is left out: {reason}");
                }
            }
        }
        Ok(actions)
    }
}
