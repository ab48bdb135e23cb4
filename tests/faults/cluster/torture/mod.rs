//! Three hosts under load of all operations, and one fault after another, chosen by a seed: nothing
//! acknowledged is lost, no result changes, and no job waits for ever.
//!
//! `GRISTMILL_TORTURE_FAULTS` sets the number of faults, `GRISTMILL_TORTURE_SEED` repeats the
//! choices of a run.

mod audit;
mod clients;
mod fault;
mod ledger;
mod members;
mod streams;
mod submission;
#[path = "../../crash/torture/webhooks.rs"]
#[allow(dead_code, reason = "only the torture of one host forgets jobs")]
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gristmill_tests::{eventually, guests};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::json;
use tokio::task::{JoinHandle, block_in_place};

use self::clients::Clients;
use self::fault::Fault;
use self::ledger::Ledger;
use self::members::Member;
use self::submission::ENDPOINT;
use self::webhooks::ReceivedWebhooks;
use crate::postgres::{Database, Server};

const SUBMITTERS: usize = 4;
const READERS: usize = 2;
const STREAM_READERS: usize = 2;

/// Further jobs that must be acknowledged after each fault.
const FURTHER: usize = 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())
        .map_or(default, |text| text.parse().unwrap())
}

/// Starts three hosts, and deploys the handler.
async fn members(database: &Database, server: &Server, receiver: &str) -> Vec<Member> {
    let first = Member::start(database, server, receiver, None).await;
    let admin_key = first.host.lock().unwrap().admin_key().to_owned();
    let mut members = vec![first];
    for _ in 0..2 {
        members.push(Member::start(database, server, receiver, Some(&admin_key)).await);
    }
    const DAY: u64 = 86_400_000;
    let kept = json!({ "completed": DAY, "failed": DAY, "cancelled": DAY });
    let settings = json!({ "workersMax": 6, "retention": kept });
    let handler = guests::playground();
    block_in_place(|| {
        let host = members[0].host.lock().unwrap();
        let deploy = host.deploy(&handler, ENDPOINT, settings);
        tokio::runtime::Handle::current().block_on(deploy)
    });
    members
}

fn start(clients: &Arc<Clients>) -> Vec<JoinHandle<()>> {
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    tasks.extend((0..3).map(|index| tokio::spawn(clients.clone().run_supervisor(index))));
    tasks.extend((0..SUBMITTERS).map(|_| tokio::spawn(clients.clone().run_submitter())));
    tasks.extend((0..READERS).map(|_| tokio::spawn(clients.clone().run_reader())));
    tasks.extend((0..STREAM_READERS).map(|_| tokio::spawn(clients.clone().run_stream_reader())));
    tasks.push(tokio::spawn(clients.clone().run_retrier()));
    tasks
}

/// Waits until all jobs that were acknowledged until now have ended, and those that were retried
/// until now once more.
async fn until_ended(clients: &Clients) {
    for job in &clients.ledger.open() {
        eventually(&format!("stuck: the end of {job}"), async || {
            clients.read(job).await;
            (!clients.ledger.is_open(job)).then_some(())
        })
        .await;
    }
}

/// The same, and until further jobs are acknowledged.
async fn recover(clients: &Clients) {
    until_ended(clients).await;
    let enough = clients.ledger.len() + FURTHER;
    eventually("stuck: further jobs", async || (clients.ledger.len() >= enough).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hosts_lose_nothing_while_one_fault_follows_the_other() {
    let faults = number("GRISTMILL_TORTURE_FAULTS", 8);
    let seed = number("GRISTMILL_TORTURE_SEED", rand::random_range(0..1_000_000));
    println!("GRISTMILL_TORTURE_SEED={seed}");
    let Some(mut server) = Server::start_on_tcp(|_| String::new()) else { return };
    let database = server.database();
    let mut received = ReceivedWebhooks::start().await;
    let clients = Arc::new(Clients {
        members: members(&database, &server, &received.host()).await,
        ledger: Ledger::default(),
        webhook: received.url(),
        seed,
        is_over: AtomicBool::new(false),
        numbers: AtomicU64::new(0),
    });
    let tasks = start(&clients);
    let mut random = StdRng::seed_from_u64(seed);
    for count in 1..=faults {
        let (fault, index) = (Fault::choose(&mut random), random.random_range(0..3));
        // The faults of two hosts may overlap.
        let second = random.random_bool(0.2).then(|| (index + 1) % 3);
        let begun = Instant::now();
        if let Some(second) = second {
            block_in_place(|| clients.members[second].signal(Signal::KILL));
        }
        fault.inflict(&clients.members[index], &mut server, &database).await;
        recover(&clients).await;
        received.record_new_calls();
        let also =
            second.map(|second| format!(", and the end of host {second}")).unwrap_or_default();
        let taken = begun.elapsed();
        println!("{count}: {fault:?} of host {index}{also}; all jobs had ended after {taken:?}");
        assert!(tasks.iter().all(|task| !task.is_finished()), "a client has failed: see above");
    }
    clients.is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    until_ended(&clients).await;
    audit::audit(&clients, &mut received).await;
    println!(
        "{faults} faults, {} jobs, {} webhooks, {:?}: nothing was lost or changed",
        clients.ledger.len(),
        received.calls,
        clients.ledger.answers(),
    );
}
