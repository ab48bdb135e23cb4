//! PostgreSQL in four shapes, each on a server of its own that this process starts.
//!
//! * `pg-rows`: one table; a batch is one upsert of the newest state of each changed job, payloads
//!   inline;
//! * `pg-rows3`: the same with inputs and outputs in tables of their own;
//! * `pg-frames`: a batch is one opaque value, as in a journal;
//! * `pg-claims`: no queue in memory; jobs are claimed by `FOR UPDATE SKIP LOCKED` ([`Claims`]).
//!
//! With the suffix `+standby`, a second server receives every commit before it is acknowledged. In
//! all shapes but the last, a transaction checks in its last statement that its host's session is
//! alive, and records its number; both statements are part of the design that this measures.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use crate::count;
use crate::engines::{COMPLETED, Engine, WAITING, state};
use crate::peer::{Change, Queue};

/// Settings of each server. Every commit is synced.
const SETTINGS: &str = "listen_addresses = ''\nfsync = on\nsynchronous_commit = on\nshared_buffers = 256MB\n\
    max_wal_size = 4GB\nwal_compression = lz4\nautovacuum_naptime = 10s\nmax_connections = 20\n";

/// The servers of a directory; they end with this value.
pub struct Servers {
    processes: Vec<Child>,
    socket: PathBuf,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.processes {
            // A quick end: SIGINT closes the connections.
            unsafe { libc::kill(server.id() as i32, libc::SIGINT) };
            let _ = server.wait();
        }
    }
}

/// A program of PostgreSQL, as a user that it accepts: it refuses root.
fn program(name: &str) -> Command {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .unwrap()
        .map(|version| version.unwrap().path().join("bin").join(name))
        .collect();
    found.sort();
    let mut command = Command::new(found.pop().unwrap());
    if unsafe { libc::geteuid() } == 0 {
        let user = unsafe { libc::getpwnam(c"postgres".as_ptr()) };
        assert!(!user.is_null(), "there is no user postgres");
        unsafe { command.uid((*user).pw_uid).gid((*user).pw_gid) };
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

impl Servers {
    pub fn start(dir: &Path, has_standby: bool) -> Self {
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).unwrap();
        if unsafe { libc::geteuid() } == 0 {
            run(Command::new("chown").arg("postgres").arg(dir));
        }
        let dir = dir.canonicalize().unwrap();
        let (data, standby) = (dir.join("data"), dir.join("standby"));
        run(program("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "postgres"]));
        let socket = dir.display().to_string();
        let mut settings = format!("{SETTINGS}unix_socket_directories = '{socket}'\n");
        if has_standby {
            settings.push_str("synchronous_standby_names = '*'\n");
        }
        let file = data.join("postgresql.conf");
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + &settings).unwrap();
        let mut it = Self { processes: Vec::new(), socket: dir.clone() };
        it.serve(&data, 5432);
        if has_standby {
            let mut copy = program("pg_basebackup");
            copy.arg("-h").arg(&dir).args(["-U", "postgres", "-R", "-X", "stream", "-D"]);
            run(copy.arg(&standby));
            it.serve(&standby, 5433);
        }
        it
    }

    fn serve(&mut self, data: &Path, port: u16) {
        let mut server = program("postgres");
        server.arg("-D").arg(data).args(["-p", &port.to_string()]);
        let log = std::fs::File::create(self.socket.join(format!("log-{port}"))).unwrap();
        server.stderr(log);
        // The server ends with this process, which the bench kills.
        unsafe {
            server.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT);
                Ok(())
            });
        }
        let child = server.spawn().unwrap();
        count::SERVERS.lock().push(child.id());
        self.processes.push(child);
        for _ in 0..300 {
            let mut ready = program("pg_isready");
            ready.arg("-h").arg(&self.socket).args(["-p", &port.to_string()]);
            if ready.status().unwrap().success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("no server after 30 s");
    }

    async fn connect(&self) -> Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.socket).user("postgres").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

type Values = Vec<Box<dyn ToSql + Sync + Send>>;

/// Runs the statements of one transaction without waiting between them.
async fn transaction(client: &Client, statements: Vec<(&Statement, Values)>) -> Result<(), tokio_postgres::Error> {
    let begin = client.batch_execute("BEGIN");
    let commit = client.batch_execute("COMMIT");
    let each = statements.iter().map(|(statement, values)| async move {
        let values: Vec<&(dyn ToSql + Sync)> =
            values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        client.execute(*statement, &values).await
    });
    // `join` polls in this order, and each first poll queues its message.
    let (begun, done, committed) = futures::join!(begin, try_join_all(each), commit);
    begun?;
    done?;
    committed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    OneTable,
    ThreeTables,
    Frames,
}

/// Batches of a single writer.
struct Batches {
    shape: Shape,
    client: Client,
    runtime: Runtime,
    number: i64,
    statements: BTreeMap<&'static str, Statement>,
    /// Of frames that are not deleted: their numbers and bytes.
    frames: std::collections::VecDeque<(i64, usize)>,
    frame_bytes: usize,
    _servers: Servers,
}

const TABLES: &str = "
    CREATE TABLE host (session bigint PRIMARY KEY, alive boolean NOT NULL);
    INSERT INTO host VALUES (1, true);
    CREATE TABLE commit_log (session bigint, n bigint, PRIMARY KEY (session, n));
    INSERT INTO commit_log VALUES (1, 0);
    CREATE TABLE job (seq bigint PRIMARY KEY, state bytea NOT NULL, input bytea, output bytea) WITH (fillfactor = 60);
    CREATE TABLE job3 (seq bigint PRIMARY KEY, state bytea NOT NULL) WITH (fillfactor = 60);
    CREATE TABLE input (seq bigint PRIMARY KEY, body bytea NOT NULL);
    CREATE TABLE output (seq bigint PRIMARY KEY, body bytea NOT NULL);
    CREATE TABLE frame (n bigint PRIMARY KEY, body bytea NOT NULL);
    ALTER TABLE job ALTER input SET STORAGE EXTERNAL, ALTER output SET STORAGE EXTERNAL;
    ALTER TABLE input ALTER body SET STORAGE EXTERNAL;
    ALTER TABLE output ALTER body SET STORAGE EXTERNAL;
    ALTER TABLE frame ALTER body SET STORAGE EXTERNAL;";

const STATEMENTS: [(&str, &str); 12] = [
    ("log", "INSERT INTO commit_log SELECT 1, $1::bigint WHERE EXISTS (SELECT 1 FROM commit_log WHERE session = 1 AND n = $1::bigint - 1)"),
    ("prune", "DELETE FROM commit_log WHERE session = 1 AND n < $1"),
    ("fence", "SELECT 1 / count(*) FROM (SELECT 1 FROM host WHERE session = 1 AND alive FOR SHARE) alive"),
    ("upsert", "INSERT INTO job SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[])
        ON CONFLICT (seq) DO UPDATE SET state = excluded.state, input = excluded.input, output = excluded.output"),
    ("delete", "DELETE FROM job WHERE seq = ANY ($1::bigint[])"),
    ("upsert3", "INSERT INTO job3 SELECT * FROM unnest($1::bigint[], $2::bytea[])
        ON CONFLICT (seq) DO UPDATE SET state = excluded.state"),
    ("delete3", "DELETE FROM job3 WHERE seq = ANY ($1::bigint[])"),
    ("input", "INSERT INTO input SELECT * FROM unnest($1::bigint[], $2::bytea[])"),
    ("output", "INSERT INTO output SELECT * FROM unnest($1::bigint[], $2::bytea[])"),
    ("no input", "DELETE FROM input WHERE seq = ANY ($1::bigint[])"),
    ("no output", "DELETE FROM output WHERE seq = ANY ($1::bigint[])"),
    ("frame", "INSERT INTO frame VALUES ($1, $2)"),
];

pub fn open(engine: &str, dir: &Path) -> Box<dyn Engine> {
    let (name, has_standby) = match engine.strip_suffix("+standby") {
        Some(name) => (name, true),
        None => (engine, false),
    };
    let shape = match name {
        "pg-rows" => Shape::OneTable,
        "pg-rows3" => Shape::ThreeTables,
        "pg-frames" => Shape::Frames,
        _ => panic!("no engine {engine}"),
    };
    let servers = Servers::start(dir, has_standby);
    let runtime = runtime();
    let (client, statements) = runtime.block_on(async {
        let client = servers.connect().await;
        client.batch_execute(TABLES).await.unwrap();
        let mut statements = BTreeMap::new();
        for (name, sql) in STATEMENTS {
            statements.insert(name, client.prepare(sql).await.unwrap());
        }
        (client, statements)
    });
    let frames = std::collections::VecDeque::new();
    Box::new(Batches { shape, client, runtime, number: 0, statements, frames, frame_bytes: 0, _servers: servers })
}

/// The newest state of a job after a batch.
#[derive(Default)]
struct Newest {
    input: Option<Bytes>,
    output: Option<Bytes>,
    was_stored: bool,
}

impl Batches {
    fn statements(&self, changes: &[Change], deleted: &[i64]) -> Vec<(&'static str, Values)> {
        let mut newest: BTreeMap<i64, Newest> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Submit(id, input) => {
                    newest.insert(*id as i64, Newest { input: Some(input.clone()), ..Newest::default() });
                }
                Change::Finish(id, output) => {
                    let job = newest.entry(*id as i64).or_default();
                    job.was_stored = job.input.take().is_none();
                    job.output = Some(output.clone());
                }
                Change::Delete(_) => {}
            }
        }
        let ids: Vec<i64> = newest.keys().copied().collect();
        let status = |job: &Newest| if job.output.is_some() { COMPLETED } else { WAITING };
        let states: Vec<Vec<u8>> =
            newest.iter().map(|(id, job)| state(*id as u64, status(job)).to_vec()).collect();
        let body = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
        let mut found: Vec<(&'static str, Values)> = Vec::new();
        if self.shape == Shape::OneTable {
            if !ids.is_empty() {
                let inputs: Vec<Option<Vec<u8>>> = newest.values().map(|job| body(&job.input)).collect();
                let outputs: Vec<Option<Vec<u8>>> = newest.values().map(|job| body(&job.output)).collect();
                found.push(("upsert", vec![Box::new(ids), Box::new(states), Box::new(inputs), Box::new(outputs)]));
            }
            if !deleted.is_empty() {
                found.push(("delete", vec![Box::new(deleted.to_vec())]));
            }
            return found;
        }
        let some = |get: fn(&Newest) -> &Option<Bytes>| -> (Vec<i64>, Vec<Vec<u8>>) {
            newest.iter().filter_map(|(id, job)| Some((*id, get(job).as_ref()?.to_vec()))).unzip()
        };
        let (input_ids, inputs) = some(|job| &job.input);
        let (output_ids, outputs) = some(|job| &job.output);
        let ended: Vec<i64> =
            newest.iter().filter(|(_, job)| job.was_stored).map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            found.push(("upsert3", vec![Box::new(ids), Box::new(states)]));
        }
        if !inputs.is_empty() {
            found.push(("input", vec![Box::new(input_ids), Box::new(inputs)]));
        }
        if !outputs.is_empty() {
            found.push(("output", vec![Box::new(output_ids), Box::new(outputs)]));
        }
        if !ended.is_empty() {
            found.push(("no input", vec![Box::new(ended)]));
        }
        if !deleted.is_empty() {
            found.push(("delete3", vec![Box::new(deleted.to_vec())]));
            found.push(("no output", vec![Box::new(deleted.to_vec())]));
        }
        found
    }

    /// All changes as one value, and the deletion of values that are older than the log's size.
    fn frame(&mut self, changes: &[Change]) -> Vec<(&'static str, Values)> {
        let mut bytes = Vec::new();
        for change in changes {
            match change {
                Change::Submit(id, body) | Change::Finish(id, body) => {
                    bytes.extend_from_slice(&state(*id, WAITING));
                    bytes.extend_from_slice(body);
                }
                Change::Delete(ids) => ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes())),
            }
        }
        self.frame_bytes += bytes.len();
        self.frames.push_back((self.number, bytes.len()));
        vec![("frame", vec![Box::new(self.number), Box::new(bytes)])]
    }
}

impl Engine for Batches {
    fn write(&mut self, changes: &[Change]) {
        self.number += 1;
        let deleted: Vec<i64> = changes
            .iter()
            .filter_map(|change| if let Change::Delete(ids) = change { Some(ids) } else { None })
            .flatten()
            .map(|id| *id as i64)
            .collect();
        let mut found = match self.shape {
            Shape::Frames => self.frame(changes),
            Shape::OneTable | Shape::ThreeTables => self.statements(changes, &deleted),
        };
        found.push(("log", vec![Box::new(self.number)]));
        if self.number % 1_000 == 0 {
            found.push(("prune", vec![Box::new(self.number - 100)]));
        }
        found.push(("fence", Vec::new()));
        let statements = found.into_iter().map(|(name, values)| (&self.statements[name], values));
        self.runtime.block_on(transaction(&self.client, statements.collect())).unwrap();
        if self.frame_bytes > 2 * crate::engines::LOG_BYTES as usize {
            // As a checkpoint that has copied the oldest half.
            while self.frame_bytes > crate::engines::LOG_BYTES as usize {
                let (_, bytes) = self.frames.pop_front().unwrap();
                self.frame_bytes -= bytes;
            }
            let first = self.frames.front().map_or(self.number, |(number, _)| *number);
            let delete = format!("DELETE FROM frame WHERE n < {first}");
            self.runtime.block_on(self.client.batch_execute(&delete)).unwrap();
        }
    }

    fn waiting(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// Jobs that are claimed in SQL: three commits for each, shared by all callers that wait for the
/// same kind.
pub struct Claims {
    submits: Arc<Queue<Bytes, ()>>,
    claims: Arc<Queue<(), i64>>,
    finishes: Arc<Queue<(i64, Bytes), ()>>,
    ended: parking_lot::Mutex<std::collections::VecDeque<i64>>,
    deletes: Arc<Queue<Vec<i64>, ()>>,
    commits: Arc<AtomicU64>,
    kept: u64,
    _servers: Servers,
}

const CLAIM_TABLES: &str = "
    CREATE TABLE job (seq bigint PRIMARY KEY, status smallint NOT NULL, worker text, state bytea NOT NULL,
        input bytea, output bytea) WITH (fillfactor = 60);
    CREATE INDEX waiting ON job (seq) WHERE status = 0;
    ALTER TABLE job ALTER input SET STORAGE EXTERNAL, ALTER output SET STORAGE EXTERNAL;";

impl Claims {
    pub fn open(dir: &Path, has_standby: bool, kept: u64) -> Arc<Self> {
        let servers = Servers::start(dir, has_standby);
        runtime().block_on(async {
            servers.connect().await.batch_execute(CLAIM_TABLES).await.unwrap();
        });
        let commits = Arc::new(AtomicU64::new(0));
        let sequence = Arc::new(AtomicU64::new(0));
        let next = sequence.clone();
        let submits = Self::serve(
            &servers,
            &commits,
            "INSERT INTO job SELECT seq, 0, NULL, state, input, NULL FROM
                unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS new (seq, state, input)",
            move |inputs: Vec<Bytes>| {
                let first = next.fetch_add(inputs.len() as u64, Relaxed) as i64;
                let ids: Vec<i64> = (first..first + inputs.len() as i64).collect();
                let states: Vec<Vec<u8>> = ids.iter().map(|id| state(*id as u64, WAITING).to_vec()).collect();
                let inputs: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
                vec![Box::new(ids) as _, Box::new(states) as _, Box::new(inputs) as _]
            },
            |_| (),
        );
        let claims = Self::serve(
            &servers,
            &commits,
            "WITH next AS (SELECT seq FROM job WHERE status = 0 ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED)
                UPDATE job SET status = 1, worker = 'worker' FROM next WHERE job.seq = next.seq
                RETURNING job.seq, job.input",
            |wanted: Vec<()>| vec![Box::new(wanted.len() as i64) as _],
            |row| row.get(0),
        );
        let finishes = Self::serve(
            &servers,
            &commits,
            "UPDATE job SET status = 2, worker = NULL, input = NULL, output = new.output FROM
                unnest($1::bigint[], $2::bytea[]) AS new (seq, output) WHERE job.seq = new.seq",
            |results: Vec<(i64, Bytes)>| {
                let (ids, outputs): (Vec<i64>, Vec<Vec<u8>>) =
                    results.into_iter().map(|(id, output)| (id, output.to_vec())).unzip();
                vec![Box::new(ids) as _, Box::new(outputs) as _]
            },
            |_| (),
        );
        let deletes = Self::serve(
            &servers,
            &commits,
            "DELETE FROM job WHERE seq = ANY ($1::bigint[])",
            |ids: Vec<Vec<i64>>| vec![Box::new(ids.concat()) as _],
            |_| (),
        );
        let ended = parking_lot::Mutex::default();
        Arc::new(Self { submits, claims, finishes, ended, deletes, commits, kept, _servers: servers })
    }

    /// A thread with a connection, which runs one statement for all callers that wait, again and
    /// again.
    fn serve<A: Send + 'static, R: Send + Default + 'static>(
        servers: &Servers,
        commits: &Arc<AtomicU64>,
        sql: &'static str,
        values: impl Fn(Vec<A>) -> Values + Send + 'static,
        answer: fn(&tokio_postgres::Row) -> R,
    ) -> Arc<Queue<A, R>> {
        let queue = Arc::new(Queue::default());
        let (served, commits) = (queue.clone(), commits.clone());
        let socket = Servers { processes: Vec::new(), socket: servers.socket.clone() };
        std::thread::spawn(move || {
            let runtime = runtime();
            let (client, statement) = runtime.block_on(async {
                let client = socket.connect().await;
                let statement = client.prepare(sql).await.unwrap();
                (client, statement)
            });
            served.serve(|asked| {
                let count = asked.len();
                let values = values(asked);
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                let rows = runtime.block_on(client.query(&statement, &values)).unwrap();
                commits.fetch_add(1, Relaxed);
                if statement.columns().is_empty() {
                    (0..count).map(|_| R::default()).collect()
                } else {
                    rows.iter().map(answer).collect()
                }
            });
        });
        queue
    }

    pub async fn submit(&self, input: Bytes) {
        self.submits.call(input).await;
    }

    pub async fn run(&self, result: Bytes) {
        let id = self.claims.call(()).await;
        self.finishes.call((id, result)).await;
        self.ended.lock().push_back(id);
    }

    pub async fn expire(&self) -> bool {
        let ids: Vec<i64> = {
            let mut ended = self.ended.lock();
            let due = (ended.len() as u64).saturating_sub(self.kept).min(500) as usize;
            ended.drain(..due).collect()
        };
        let (has_some, may_have_more) = (!ids.is_empty(), ids.len() == 500);
        if has_some {
            self.deletes.call(ids).await;
        }
        may_have_more
    }

    pub fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }
}
