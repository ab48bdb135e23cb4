//! Three hosts under load, and one fault after another, chosen by a seed: nothing acknowledged is lost, no result
//! changes, and no job waits for ever.
//!
//! `GRISTMILL_TORTURE_FAULTS` sets the number of faults, `GRISTMILL_TORTURE_SEED` repeats the choices of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gristmill_tests::{
    Answer, Client, PATIENCE, TestHost, disk_shim, eventually, guests, set_clock_lead,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::{Method, RequestBuilder};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::hosts::{arguments_by, cluster_address, signal, sleep};
use crate::postgres::{Database, Server};
use crate::proxy::{Link, Proxy};

/// A paused host does not answer, and a link may be silent.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);

const SUBMITTERS: usize = 4;
const READERS: usize = 2;

/// Jobs whose results are read again and again.
const RECENT: usize = 200;

/// A fault, and for how long it lasts.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Drain,
    Pause(Duration),
    /// The link of a host to the database.
    ToDatabase(Link, Duration),
    /// The link of the other hosts to this one.
    ToHost(Link, Duration),
    /// The wall clock of a host jumps by so many seconds.
    Clock(i64),
    /// The database is stopped as by a loss of power, and starts again.
    StopServer,
    /// The database ends all connections.
    EndConnections,
}

impl Fault {
    fn choose(random: &mut StdRng) -> Self {
        // Some are shorter than the time after which a host is replaced, and some longer.
        let duration = Duration::from_millis(random.random_range(200..14_000));
        let link = *Link::FAULTS.choose(random).unwrap();
        match random.random_range(0..10) {
            0 | 1 => Self::Kill,
            2 => Self::Drain,
            3 => Self::Pause(duration),
            4 | 5 => Self::ToDatabase(link, duration),
            6 => Self::ToHost(link, duration),
            7 => Self::Clock(random.random_range(-90..=90)),
            8 => Self::StopServer,
            _ => Self::EndConnections,
        }
    }
}

/// A host with its links and its clock, which a supervisor starts again when it has ended.
struct Member {
    host: Mutex<TestHost>,
    client: Mutex<Client>,
    to_database: Proxy,
    to_host: Proxy,
    clock: PathBuf,
}

impl Member {
    async fn start(database: &Database, server: &Server, admin_key: Option<&str>) -> Self {
        let (to_database, to_host) = (Proxy::to(server.address()).await, Proxy::start().await);
        let mut arguments = arguments_by(database, &to_database, &to_host);
        arguments.extend(["--drain-timeout", "5"].map(str::to_owned));
        let host = match admin_key {
            None => TestHost::start_with(&arguments),
            Some(key) => TestHost::join(&arguments, key),
        };
        let clock = host.scratch().join("clock");
        let client = Mutex::new(host.client());
        let member = Self { host: Mutex::new(host), client, to_database, to_host, clock };
        member.set_clock(0);
        member.found(&member.host.lock().unwrap());
        member
    }

    fn set_clock(&self, lead: i64) {
        set_clock_lead(&self.clock, &lead.to_string());
    }

    /// The addresses of a host that has started.
    fn found(&self, host: &TestHost) {
        self.to_host.set_target(cluster_address(host));
        *self.client.lock().unwrap() = host.client();
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap().clone()
    }

    /// Starts the host again if it has ended, and can start at present.
    fn supervise(&self) {
        let mut host = self.host.lock().unwrap();
        let environment =
            [("LD_PRELOAD", disk_shim().as_os_str()), ("CLOCK_FILE", self.clock.as_os_str())];
        if host.has_ended() && host.try_start_again_in(&environment).is_ok() {
            self.found(&host);
        }
    }

    fn signal(&self, sent: Signal) {
        let mut host = self.host.lock().unwrap();
        if !host.has_ended() {
            signal(&host, sent);
        }
    }
}

/// An acknowledged job.
#[derive(Debug, Clone)]
struct Job {
    number: u64,
    id: String,
}

/// Everything that clients have seen.
#[derive(Debug, Default)]
struct History {
    jobs: Mutex<Vec<Job>>,
    /// The results that were seen, with the time at which each was known.
    results: Mutex<BTreeMap<String, (Instant, Value)>>,
    reads: AtomicU64,
}

impl History {
    /// Compares a document with those that were seen before the read began.
    fn check(&self, job: &Job, began: Instant, document: &Value) -> bool {
        let result = json!([document["status"], document["output"], document["error"]]);
        let is_final = !matches!(document["status"].as_str(), Some("IN_QUEUE" | "IN_PROGRESS"));
        let mut results = self.results.lock().unwrap();
        self.reads.fetch_add(1, Ordering::Relaxed);
        if let Some((seen, first)) = results.get(&job.id)
            && *seen < began
        {
            assert_eq!(first, &result, "the result of job {job:?} has changed");
        }
        if is_final {
            assert_eq!(document["status"], "COMPLETED", "{job:?}: {document}");
            assert_eq!(document["output"]["echo"], json!(job.number), "{job:?}: {document}");
            results.entry(job.id.clone()).or_insert_with(|| (Instant::now(), result));
        }
        is_final
    }
}

/// The hosts, and the clients that use them.
struct Torture {
    members: Vec<Member>,
    history: History,
    is_over: AtomicBool,
    numbers: AtomicU64,
}

impl Torture {
    fn random_client(&self) -> Client {
        self.members.choose(&mut rand::rng()).unwrap().client()
    }

    /// Calls one host after the other until one of them answers.
    async fn call(&self, build: impl Fn(&Client) -> RequestBuilder) -> (Instant, Answer) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (client, began) = (self.random_client(), Instant::now());
            match client.try_send(build(&client).timeout(CALL_TIME_MAX)).await {
                Ok(answer) if !matches!(answer.status, 409 | 429 | 502 | 503 | 504) => {
                    return (began, answer);
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            assert!(Instant::now() < deadline, "no host has answered");
        }
    }

    /// Submits one numbered job after the other.
    async fn submit(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let ms = [5, 5, 5, 50, 700][number as usize % 5];
            let body = json!({ "input": sleep(ms, number) });
            let (_, answer) = self
                .call(|client| {
                    client
                        .request(Method::POST, &client.path("play", "run"))
                        .header("idempotency-key", format!("n-{number}"))
                        .json(&body)
                })
                .await;
            let id = answer.ok()["id"].as_str().unwrap().to_owned();
            self.history.jobs.lock().unwrap().push(Job { number, id });
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reads the results of recent jobs.
    async fn read(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let job = {
                let jobs = self.history.jobs.lock().unwrap();
                jobs[jobs.len().saturating_sub(RECENT)..].choose(&mut rand::rng()).cloned()
            };
            if let Some(job) = job {
                self.status(&job).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads the status of a job; true when it has ended.
    async fn status(&self, job: &Job) -> bool {
        let path = format!("status/{}", job.id);
        let (began, answer) =
            self.call(|client| client.request(Method::GET, &client.path("play", &path))).await;
        assert_eq!(answer.status, 200, "{job:?} is lost: {answer:?}");
        self.history.check(job, began, &answer.json())
    }

    /// Starts hosts that have ended.
    async fn supervise(self: Arc<Self>, index: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            let it = self.clone();
            tokio::task::spawn_blocking(move || it.members[index].supervise()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn inflict(&self, fault: Fault, index: usize, server: &mut Server, database: &Database) {
        let member = &self.members[index];
        match fault {
            Fault::Kill => tokio::task::block_in_place(|| member.signal(Signal::KILL)),
            Fault::Drain => tokio::task::block_in_place(|| member.signal(Signal::TERM)),
            Fault::Pause(duration) => {
                tokio::task::block_in_place(|| member.signal(Signal::STOP));
                tokio::time::sleep(duration).await;
                tokio::task::block_in_place(|| member.signal(Signal::CONT));
            }
            Fault::ToDatabase(link, duration) => {
                member.to_database.set(link);
                tokio::time::sleep(duration).await;
                member.to_database.set(Link::Open);
            }
            Fault::ToHost(link, duration) => {
                member.to_host.set(link);
                tokio::time::sleep(duration).await;
                member.to_host.set(Link::Open);
            }
            Fault::Clock(lead) => member.set_clock(lead),
            Fault::StopServer => tokio::task::block_in_place(|| {
                server.kill();
                server.start_again();
            }),
            Fault::EndConnections => tokio::task::block_in_place(|| database.cut_connections()),
        }
    }

    /// Waits until all jobs that were acknowledged until now have ended.
    async fn until_ended(&self, checked: &mut usize) {
        let jobs: Vec<_> = self.history.jobs.lock().unwrap()[*checked..].to_vec();
        for job in &jobs {
            eventually(&format!("the end of {job:?}"), async || {
                self.status(job).await.then_some(())
            })
            .await;
        }
        *checked += jobs.len();
    }

    /// The same, and until ten more are acknowledged.
    async fn recover(&self, checked: &mut usize) {
        self.until_ended(checked).await;
        let enough = *checked + 10;
        eventually("further jobs", async || {
            (self.history.jobs.lock().unwrap().len() >= enough).then_some(())
        })
        .await;
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())
        .map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hosts_lose_nothing_while_one_fault_follows_the_other() {
    let faults = number("GRISTMILL_TORTURE_FAULTS", 8);
    let seed = number("GRISTMILL_TORTURE_SEED", rand::random_range(0..1_000_000));
    println!("GRISTMILL_TORTURE_SEED={seed}");
    let Some(mut server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let first = Member::start(&database, &server, None).await;
    let admin_key = first.host.lock().unwrap().admin_key().to_owned();
    let mut members = vec![first];
    for _ in 0..2 {
        members.push(Member::start(&database, &server, Some(&admin_key)).await);
    }
    let kept = json!({ "completed": 86_400_000, "failed": 86_400_000 });
    let settings = json!({ "workersMax": 6, "retention": kept });
    tokio::task::block_in_place(|| {
        let host = members[0].host.lock().unwrap();
        tokio::runtime::Handle::current().block_on(host.deploy(
            &guests::playground(),
            "play",
            settings,
        ))
    });
    let torture = Arc::new(Torture {
        members,
        history: History::default(),
        is_over: AtomicBool::new(false),
        numbers: AtomicU64::new(0),
    });
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    tasks.extend((0..3).map(|index| tokio::spawn(torture.clone().supervise(index))));
    tasks.extend((0..SUBMITTERS).map(|_| tokio::spawn(torture.clone().submit())));
    tasks.extend((0..READERS).map(|_| tokio::spawn(torture.clone().read())));

    let mut random = StdRng::seed_from_u64(seed);
    let mut checked = 0;
    for count in 1..=faults {
        let (fault, index) = (Fault::choose(&mut random), random.random_range(0..3));
        // The faults of two hosts may overlap.
        let second = random.random_bool(0.2).then(|| (index + 1) % 3);
        let begun = Instant::now();
        if let Some(second) = second {
            tokio::task::block_in_place(|| torture.members[second].signal(Signal::KILL));
        }
        torture.inflict(fault, index, &mut server, &database).await;
        torture.recover(&mut checked).await;
        let also =
            second.map(|second| format!(", and the end of host {second}")).unwrap_or_default();
        println!(
            "{count}: {fault:?} of host {index}{also}; all jobs had ended after {:?}",
            begun.elapsed()
        );
        assert!(tasks.iter().all(|task| !task.is_finished()), "a client has failed: see above");
    }
    torture.is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    torture.until_ended(&mut checked).await;
    let (_, health) =
        torture.call(|client| client.request(Method::GET, &client.path("play", "health"))).await;
    let jobs = health.ok()["jobs"].clone();
    assert_eq!(jobs["completed"], json!(checked), "one job for each number: {jobs}");
    assert_eq!(
        (&jobs["failed"], &jobs["inQueue"], &jobs["inProgress"]),
        (&json!(0), &json!(0), &json!(0))
    );
    let reads = torture.history.reads.load(Ordering::Relaxed);
    println!("{faults} faults, {checked} jobs, {reads} reads: nothing was lost or changed");
}
