//! Random walks through the [model of the fence](super::model), statement by statement on a
//! PostgreSQL server, with the statements of this program. The server must do what the model says:
//! which statement waits, which one fails, and which rows are there after each commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_postgres::{Connection, DatabaseError, DatabaseUrl, SqlQuery, Value};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::model::{
    Failed, ModelBounds, ModelStep, ModelTransaction, Outcome, RULES, Rows, State, Statement,
};
use crate::format::EndpointKey;
use crate::postgres::server_of_tests as server;
use crate::postgres::session::Session;
use crate::postgres::{rows, schema};
use crate::seal::Seal;
use crate::state::batch::Batch;

const BOUNDS: ModelBounds = ModelBounds { sessions: 3, commits: 2, losses: 2 };
const WALKS: u64 = 60;

/// Longest time for the server to carry out a statement, or to wait for a lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// A transaction on a connection of its own.
struct Process {
    pid: i32,
    statements: Sender<Statement>,
    answers: Receiver<Result<u64, DatabaseError>>,
    /// Whether a statement has no answer yet.
    is_waiting: bool,
}

impl Process {
    fn start(url: &DatabaseUrl, seal: &Arc<Seal>) -> Self {
        let mut connection = Connection::new(url).unwrap();
        let pid = connection.query(&SqlQuery::new("SELECT pg_backend_pid()", Vec::new())).unwrap();
        let pid = pid.first().unwrap().get(0);
        let (statements, received) = channel();
        let (answer, answers) = channel();
        let seal = seal.clone();
        thread::spawn(move || {
            // A walk that has ended has ended the connection.
            let mut transaction = connection.begin().ok();
            while let (Ok(statement), Some(mut running)) = (received.recv(), transaction.take()) {
                let mut batch = Batch::default();
                let answered = match query(statement, &mut batch, &seal) {
                    Some(query) => {
                        let answered = running.execute(&query);
                        transaction = Some(running);
                        answered
                    }
                    None => running.commit().map(|()| 0),
                };
                // A walk that has ended does not read it.
                let _ = answer.send(answered);
            }
        });
        Self { pid, statements, answers, is_waiting: false }
    }

    fn send(&mut self, statement: Statement) {
        self.statements.send(statement).unwrap();
        self.is_waiting = true;
    }

    /// Ends the connection, and waits for the end of its process.
    fn end(&self, admin: &mut Connection) {
        let end = "SELECT pg_terminate_backend($1, 30000)";
        admin.query(&SqlQuery::new(end, vec![Box::new(self.pid)])).unwrap();
    }

    /// The answer, or none when the server waits for a lock, as it must if it `should_wait`.
    fn answer(
        &mut self,
        admin: &mut Connection,
        should_wait: bool,
    ) -> Option<Result<u64, DatabaseError>> {
        let sql = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1";
        let begun = Instant::now();
        // A lock that was released a moment ago is no wait.
        let mut looks = 0;
        while begun.elapsed() < PATIENCE {
            if let Ok(answer) = self.answers.recv_timeout(Duration::from_millis(1)) {
                self.is_waiting = false;
                return Some(answer);
            }
            let found = admin.query(&SqlQuery::new(sql, vec![Box::new(self.pid)])).unwrap();
            let event: Option<&str> = found.first().and_then(|row| row.get(0));
            looks = if event == Some("Lock") { looks + 1 } else { 0 };
            if looks >= (if should_wait { 1 } else { 200 }) {
                return None;
            }
        }
        None
    }
}

/// The statement of this program for one of the model; `None` for the end of the transaction.
fn query<'a>(statement: Statement, batch: &'a mut Batch, seal: &Seal) -> Option<SqlQuery<'a>> {
    let begins = |session: u8, beginning: &str| {
        let queries = of(session).begin_queries(None, None).into_iter();
        queries.into_iter().find(|query| query.sql.starts_with(beginning)).unwrap()
    };
    Some(match statement {
        Statement::EndOthers => begins(1, "UPDATE session"),
        Statement::DeleteLog => begins(1, "DELETE FROM commit_log"),
        Statement::AddSession(session) => begins(session, "INSERT INTO session"),
        Statement::AddFirst(session) => begins(session, "INSERT INTO commit_log"),
        Statement::AddJob(commit) => {
            batch.endpoints.push((EndpointKey(key(commit)), "endpoint".to_owned()));
            rows::queries(batch, seal).remove(0)
        }
        Statement::Log((session, number)) => of(session).log_commit(number.into()),
        Statement::Fence(session) => of(session).fence(),
        Statement::Commit => return None,
    })
}

fn of(session: u8) -> Session {
    Session { number: session.into() }
}

/// The number of the row that stands for the job of a commit.
fn key((session, number): (u8, u8)) -> u32 {
    u32::from(session) * 100 + u32::from(number)
}

/// The sessions, the log of commits, and the rows that stand for jobs.
type Tables = (BTreeMap<u8, bool>, BTreeSet<(u8, u8)>, BTreeSet<u32>);

/// The rows of the server, as the model has them.
fn rows_of(admin: &mut Connection) -> Tables {
    let small = |number: i64| u8::try_from(number).unwrap();
    let mut query = |sql| admin.query(&SqlQuery::new(sql, Vec::<Value<'_>>::new())).unwrap();
    let sessions = query("SELECT session, is_alive FROM session");
    let log = query("SELECT session, n FROM commit_log");
    let jobs = query("SELECT seq FROM endpoint");
    (
        sessions.iter().map(|row| (small(row.get(0)), row.get(1))).collect(),
        log.iter().map(|row| (small(row.get(0)), small(row.get(1)))).collect(),
        jobs.iter().map(|row| u32::try_from(row.get::<_, i64>(0)).unwrap()).collect(),
    )
}

fn expected(rows: &Rows) -> Tables {
    let jobs = rows.jobs.iter().map(|commit| key(*commit)).collect();
    (rows.sessions.clone(), rows.commit_log.clone(), jobs)
}

/// One walk; returns the numbers of its statements and of those that waited.
fn walk(url: &DatabaseUrl, admin: &mut Connection, seal: &Arc<Seal>, seed: u64) -> (u64, u64) {
    admin.script("TRUNCATE session, commit_log, endpoint CASCADE").unwrap();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut state = State::new();
    let mut processes: Vec<Process> = Vec::new();
    let mut path = Vec::new();
    let (mut statements, mut waits) = (0, 0);
    for _ in 0..60 {
        let is_waiting = |it: &&ModelTransaction| it.snapshot.is_some();
        // The server decides which one of two goes on first, and ends one of two that wait for each
        // other.
        if state.transactions.iter().filter(is_waiting).count() > 1 {
            break;
        }
        // A statement goes on as soon as it can.
        let released = (0..state.transactions.len())
            .find(|n| state.transactions[*n].snapshot.is_some() && state.is_ready(*n));
        let steps = state.steps(BOUNDS);
        let step = match released {
            Some(n) => ModelStep::Execute(n),
            None if steps.is_empty() => break,
            None => steps[random.random_range(0..steps.len())],
        };
        path.push(step);
        let before = state.clone();
        let outcome = state.take(step, RULES);
        let context = || format!("seed {seed}: {path:?}");
        match step {
            ModelStep::Begin(_) | ModelStep::BeginCommit(_) => {
                processes.push(Process::start(url, seal))
            }
            ModelStep::Load(_) | ModelStep::Lose(_) => {}
            ModelStep::Look(_) => {
                assert_eq!(rows_of(admin), expected(&state.rows), "{}", context());
                if state.transactions.len() > before.transactions.len() {
                    processes.push(Process::start(url, seal));
                }
            }
            ModelStep::Undo(n) => processes.remove(n).end(admin),
            ModelStep::Execute(n) => {
                let transaction = &before.transactions[n];
                let statement = *transaction.left.front().unwrap();
                let is_commit = statement == Statement::Commit;
                // The commit of a failed transaction undoes it, and succeeds.
                if transaction.failed.is_some() && !is_commit {
                    continue;
                }
                let process = &mut processes[n];
                if !process.is_waiting {
                    process.send(statement);
                    statements += 1;
                }
                let found = match process.answer(admin, outcome == Outcome::Waits) {
                    None => Outcome::Waits,
                    Some(Ok(_)) => Outcome::Done,
                    Some(Err(DatabaseError::Fenced)) => Outcome::Failed(Failed::Fenced),
                    Some(Err(DatabaseError::Duplicate(_))) => Outcome::Failed(Failed::Duplicate),
                    Some(Err(error)) => panic!("{error}: {}", context()),
                };
                waits += u64::from(found == Outcome::Waits);
                assert_eq!(found, outcome, "{}", context());
                if is_commit {
                    drop(processes.remove(n));
                    assert_eq!(rows_of(admin), expected(&state.rows), "{}", context());
                }
            }
        }
    }
    processes.iter().for_each(|process| process.end(admin));
    (statements, waits)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the seed of a test is no setting of the program")]
fn the_server_does_what_the_model_of_the_fence_says() {
    let Some(database) = server::Database::new() else { return };
    let url: DatabaseUrl = database.url().parse().unwrap();
    let seal = Arc::new(Seal::open(&database.key_file(), true).unwrap());
    let mut admin = Connection::new(&url).unwrap();
    schema::prepare(&mut admin).unwrap();
    let seed: u64 = std::env::var("GRISTMILL_FENCE_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("GRISTMILL_FENCE_SEED={seed}");
    let walks = (0..WALKS).map(|n| walk(&url, &mut admin, &seal, seed.wrapping_add(n)));
    let (statements, waits) = walks.fold((0, 0), |sum, walk| (sum.0 + walk.0, sum.1 + walk.1));
    println!("{statements} statements, {waits} waited for a lock");
    assert!(statements > 10 * WALKS && waits > 0, "{statements} statements, {waits} waited");
}
