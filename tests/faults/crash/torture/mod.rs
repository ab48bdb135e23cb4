//! Repeated `kill -9` under a load of all operations, followed by a check of everything that was
//! acknowledged. `make full` kills a few times, `make crash N=1000` as often as requested; a run
//! prints its seed, and `SEED` repeats its choices.

mod audit;
mod deploys;
mod ledger;
mod load;
mod purges;
mod random;
mod session;
mod streams;
mod submission;
mod timers;
mod webhooks;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gristmill_tests::{PATIENCE, TestHost, guests, percentile};
use serde_json::json;
use tempfile::NamedTempFile;

use self::deploys::Deployer;
use self::ledger::Ledger;
use self::purges::Purger;
pub(crate) use self::random::Random;
use self::session::Session;
use self::streams::StreamReader;
use self::submission::MILL;
use self::timers::Timers;
use self::webhooks::ReceivedWebhooks;

const SUBMITTERS: usize = 4;
const STREAM_READERS: usize = 2;

/// Kills between two audits.
const ROUND: u64 = 25;

/// The minimum, so that checkpoint and compaction are busy all the time.
const JOURNAL_MIB: &str = "16";

const OPERATIONS: [&str; 7] =
    ["run", "runsync", "status", "stream", "cancel", "purge-queue", "requests"];

const OUT_OF_REACH: &str = "calls-per-10s = 1000000\nconcurrent = 100000\ncalls-per-worker = 0";

/// A number from the environment; an empty one counts as not set.
pub(crate) fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_ends_twice() {
    let kills = setting("GRISTMILL_CRASH_KILLS").unwrap_or(5);
    let seed = setting("GRISTMILL_CRASH_SEED");
    let seed =
        seed.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into());
    println!("{kills} kills with SEED={seed}");
    let mut torture = Torture::start(Random::new(seed)).await;
    for kill in 1..=kills {
        torture.load(End::Kill).await;
        torture.start_again();
        if kill % ROUND == 0 || kill == kills {
            torture.audit().await;
            println!("kill {kill} of {kills}, {:?}: {}", torture.begun.elapsed(), torture.totals());
        }
    }
    torture.stop_and_audit().await;
    torture.summary(kills);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_load_loses_nothing_and_repeats_nothing() {
    let mut torture = Torture::start(Random::new(1)).await;
    for _ in 0..2 {
        torture.load(End::Drain).await;
        torture.host.start_again();
        assert_eq!(torture.host.ready()["wasClean"], true);
    }
    torture.audit().await;
    assert_eq!(torture.ledger.ran_again(), 0, "a drain is no crash");
    // The second signal leaves no time for an orderly end, and loses nothing either.
    torture.load(End::Interrupted).await;
    torture.host.start_again();
    torture.audit().await;
    println!("{}", torture.totals());
}

/// The kind of a host process's end.
#[derive(Debug, Clone, Copy)]
enum End {
    Kill,
    /// SIGTERM. The load continues until it is refused.
    Drain,
    /// SIGTERM, and a second one soon after it.
    Interrupted,
}

/// A host, its load, and the recorded knowledge.
struct Torture {
    host: TestHost,
    /// Rate limits out of reach; read at each start.
    _config: NamedTempFile,
    begun: Instant,
    random: Random,
    ledger: Arc<Ledger>,
    received: ReceivedWebhooks,
    purger: Purger,
    deployer: Deployer,
    timers: Timers,
    readers: Vec<StreamReader>,
    /// The time of each start, from its command to the ready line.
    starts: Vec<Duration>,
    /// Starts that were killed, most of them before they were ready.
    killed_starts: usize,
}

impl Torture {
    async fn start(random: Random) -> Self {
        let received = ReceivedWebhooks::start().await;
        let mut config = NamedTempFile::new().unwrap();
        for operation in OPERATIONS {
            writeln!(config, "[rate-limits.{operation}]\n{OUT_OF_REACH}").unwrap();
        }
        let path = config.path().to_str().unwrap();
        let webhooks = received.host();
        let arguments = ["--config", path, "--webhook-allow", &webhooks];
        let further = ["--journal-mib", JOURNAL_MIB, "--log", "warn", "--drain-timeout", "1"];
        let host = TestHost::start_with(&[&arguments[..], &further].concat());
        host.deploy(&guests::playground(), MILL, json!({ "workersMax": 6 })).await;
        host.deploy(&guests::playground(), purges::QUEUE, purges::settings()).await;
        Self {
            begun: Instant::now(),
            random,
            ledger: Arc::default(),
            received,
            purger: Purger::default(),
            deployer: Deployer::start(&host).await,
            timers: Timers::start(&host).await,
            readers: std::iter::repeat_with(StreamReader::default).take(STREAM_READERS).collect(),
            starts: vec![],
            killed_starts: 0,
            host,
            _config: config,
        }
    }

    fn session(&self) -> Session {
        Session::new(self.host.client(), self.ledger.clone())
    }

    /// Runs the load for a while, and then ends the host.
    async fn load(&mut self, end: End) {
        let session = self.session();
        let mut tasks = vec![];
        for _ in 0..SUBMITTERS {
            let (random, url) = (self.random.fork(), self.received.url());
            tasks.push(tokio::spawn(load::submit(session.clone(), random, url)));
        }
        tasks.push(tokio::spawn(load::read(session.clone(), self.random.fork())));
        tasks.push(tokio::spawn(load::settle_and_retry(session.clone(), self.random.fork())));
        let purger = std::mem::take(&mut self.purger);
        let purger = tokio::spawn(purger.run(session.clone(), self.random.fork()));
        let deployer = std::mem::take(&mut self.deployer);
        let deployer = tokio::spawn(deployer.run(session.clone(), self.random.fork()));
        let timers = std::mem::take(&mut self.timers);
        let timers = tokio::spawn(timers.run(session.clone(), self.random.fork()));
        let readers: Vec<_> = std::mem::take(&mut self.readers)
            .into_iter()
            .map(|reader| tokio::spawn(reader.run(session.clone(), self.random.fork())))
            .collect();

        // The subject: a kill at a random time. Sometimes at once, while the host still recovers
        // from the last kill.
        let life = if self.random.one_in(8) { (0, 30) } else { (100, 600) };
        tokio::time::sleep(self.random.ms(life.0, life.1)).await;
        session.announce_kill();
        match end {
            End::Kill => self.host.kill9(),
            End::Drain => {
                self.host.ask_to_end();
                assert!(self.host.wait(PATIENCE).success(), "{}", self.host.log());
            }
            End::Interrupted => {
                self.host.ask_to_end();
                tokio::time::sleep(self.random.ms(1, 100)).await;
                self.host.ask_to_end();
                assert!(self.host.wait(PATIENCE).success(), "{}", self.host.log());
            }
        }
        session.end();

        for task in tasks {
            task.await.unwrap();
        }
        self.purger = purger.await.unwrap();
        self.deployer = deployer.await.unwrap();
        self.timers = timers.await.unwrap();
        for reader in readers {
            self.readers.push(reader.await.unwrap());
        }
        self.received.record_new_calls();
    }

    /// Starts the host again; sometimes it is killed during the start.
    fn start_again(&mut self) {
        while self.random.one_in(5) {
            self.host.start_and_kill(self.random.ms(1, 60));
            self.killed_starts += 1;
        }
        let begun = Instant::now();
        self.host.start_again();
        self.starts.push(begun.elapsed());
    }

    async fn audit(&mut self) {
        let session = self.session();
        audit::audit(&session, &mut self.received).await;
        self.purger.audit(&session).await;
        self.deployer.check(&session).await.unwrap();
        self.timers.audit(&session).await;
        assert!(!self.host.log().contains("panicked"), "wrong: {}", self.host.log());
    }

    /// An orderly end changes nothing either.
    async fn stop_and_audit(&mut self) {
        self.host.ask_to_end();
        assert!(self.host.wait(PATIENCE).success());
        self.host.start_again();
        assert_eq!(self.host.ready()["wasClean"], true);
        self.audit().await;
    }

    fn totals(&self) -> String {
        let calls: u64 = self.ledger.answers().values().sum();
        let webhooks = self.received.calls;
        format!("{calls} calls answered, {webhooks} webhooks received, all as promised")
    }

    fn summary(&mut self, kills: u64) {
        println!("{kills} kills under load, and {} while starting", self.killed_starts);
        for (what, count) in self.ledger.answers() {
            println!("{count:>9} {what}");
        }
        let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(&mut self.starts, percent));
        println!("{:>9} webhooks received", self.received.calls);
        println!("{:>9} failing jobs had their attempts", self.timers.checked());
        println!(
            "{:>9} jobs ran more than once, because a kill broke them off",
            self.ledger.ran_again()
        );
        println!("starts took {p50:?} (p50), {p99:?} (p99), {most:?} (longest)");
        // Each of these faults stops the test where it is found.
        println!("lost 0, double 0, stuck 0");
    }
}
