//! Links that lose packets: between a host and the database, and between two hosts.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use gristmill_tests::{Client, PATIENCE, TestHost, eventually, guests, ip, run_in_own_network};
use reqwest::Method;
use serde_json::json;
use tokio::sync::Mutex;

use crate::hosts::{
    Ledger, arguments_at, arguments_by, check, cluster, cluster_address, sleep, submit, submit_all,
    until_active, until_known,
};
use crate::postgres::{Database, Server};
use crate::proxy::{Link, Proxy};
use crate::tcp::PASSWORD;

/// Each of these tests has eight hosts, so they run one after the other.
static TURN: Mutex<()> = Mutex::const_new(());

/// Two hosts of one database, with their links.
struct Hosts {
    database: Database,
    one: TestHost,
    two: TestHost,
    /// The link of each host to the database.
    to_database: [Proxy; 2],
    /// The link of the other host to each host.
    to_host: [Proxy; 2],
}

impl Hosts {
    async fn start(server: &Server, more: &[&str]) -> Self {
        let database = server.database();
        let at = database.address_by_tcp();
        let to_database = [Proxy::to(at).await, Proxy::to(at).await];
        let to_host = [Proxy::start().await, Proxy::start().await];
        let arguments = |host: usize| {
            let mut arguments = arguments_by(&database, &to_database[host], &to_host[host]);
            arguments.extend(more.iter().map(|&argument| argument.to_owned()));
            arguments
        };
        let one = TestHost::start_with(&arguments(0));
        to_host[0].set_target(cluster_address(&one));
        let two = TestHost::join(&arguments(1), one.admin_key());
        to_host[1].set_target(cluster_address(&two));
        assert_eq!(
            (&one.ready()["role"], &two.ready()["role"]),
            (&json!("active"), &json!("standby"))
        );
        Self { database, one, two, to_database, to_host }
    }

    fn clients(&self) -> [Client; 2] {
        [self.one.client(), self.two.client()]
    }
}

async fn readiness(client: &Client) -> Option<u16> {
    let answer = client.try_send(client.request(Method::GET, "/readyz")).await;
    answer.ok().map(|answer| answer.status)
}

/// The active host loses the database: another one becomes active, nothing acknowledged is lost,
/// and the former active host ends when the link is open again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_active_host_that_is_cut_off_from_the_database_is_replaced() {
    let _turn = TURN.lock().await;
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    join_all(Link::FAULTS.map(|fault| cut_off_the_active_host(&server, fault))).await;
}

async fn cut_off_the_active_host(server: &Server, fault: Link) {
    let mut hosts = Hosts::start(server, &[]).await;
    hosts.one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let mut ledger = Ledger::new();
    submit_all(&hosts.clients(), 0..20, 20, &mut ledger).await;
    let [one, two] = hosts.clients();
    // The answer to this submission is lost, or the submission is.
    let body = json!({ "input": sleep(20, 20) });
    let unknown = {
        let one = one.clone();
        let request = one.request(Method::POST, &one.path("play", "run"));
        let request = request.header("idempotency-key", "n-20").json(&body);
        tokio::spawn(async move { one.try_send(request).await })
    };
    hosts.to_database[0].set(fault);
    let begun = Instant::now();
    until_active(&hosts.two).await;
    println!("{fault:?}: the other host was ready after {:?}", begun.elapsed());
    assert_ne!(readiness(&one).await, Some(200), "{fault:?}: the former active host is ready");
    if let Ok(answer) = unknown.await.unwrap() {
        assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    }
    // It is repeated, and 20 further jobs follow.
    submit_all(std::slice::from_ref(&two), 20..40, 20, &mut ledger).await;
    check(std::slice::from_ref(&two), &ledger).await;
    let stale = one
        .try_send(one.request(Method::GET, &one.path("play", &format!("status/{}", ledger[&30]))))
        .await;
    assert!(!stale.is_ok_and(|answer| answer.status == 200), "{fault:?}: it has answered");

    hosts.to_database[0].set(Link::Open);
    let status = tokio::task::block_in_place(|| hosts.one.wait(PATIENCE));
    assert_eq!(status.code(), Some(1), "{fault:?}: {}", hosts.one.log());
    hosts.one.start_again();
    hosts.to_host[0].set_target(cluster_address(&hosts.one));
    assert_eq!(hosts.one.ready()["role"], "standby", "{fault:?}");
    check(&hosts.clients(), &ledger).await;
    let jobs = two.health("play").await["jobs"].clone();
    assert_eq!(jobs["completed"], json!(ledger.len()), "{fault:?}: {jobs}");
    drop((hosts.one, hosts.two));
    drop(hosts.database);
}

/// A host that stands by and has lost the database does not believe that the active host has ended,
/// and continues its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_that_is_cut_off_from_the_database_stands_by() {
    let _turn = TURN.lock().await;
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    join_all(Link::FAULTS.map(|fault| cut_off_the_standby(&server, fault))).await;
}

async fn cut_off_the_standby(server: &Server, fault: Link) {
    let mut hosts = Hosts::start(server, &[]).await;
    hosts.one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let [_, two] = hosts.clients();
    hosts.to_database[1].set(fault);
    let (mut ledger, begun, mut next) = (Ledger::new(), Instant::now(), 0);
    // Longer than an active host may be silent.
    while begun.elapsed() < Duration::from_secs(15) {
        submit_all(std::slice::from_ref(&two), next..next + 5, 20, &mut ledger).await;
        next += 5;
        assert_ne!(readiness(&two).await, Some(200), "{fault:?}: it is active");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    check(std::slice::from_ref(&two), &ledger).await;
    hosts.to_database[1].set(Link::Open);
    assert_eq!(readiness(&hosts.one.client()).await, Some(200), "{fault:?}");

    hosts.one.kill9();
    until_active(&hosts.two).await;
    check(std::slice::from_ref(&two), &ledger).await;
    drop((hosts.one, hosts.two));
    drop(hosts.database);
}

/// Two hosts that both see the database but not each other: the active host keeps its queue, runs
/// the jobs of the lost sandboxes again, and the other host refuses calls until the link is open
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hosts_that_lose_each_other_find_each_other_again() {
    let _turn = TURN.lock().await;
    let Some(server) = Server::start_on_tcp(|_| String::new()) else { return };
    join_all(Link::FAULTS.map(|fault| part(&server, fault))).await;
}

async fn part(server: &Server, fault: Link) {
    let hosts = Hosts::start(server, &["--max-running-jobs", "2", "--adopt-within", "3"]).await;
    hosts.one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let [one, two] = hosts.clients();
    until_known(&one, 1).await;
    let mut ledger = Ledger::new();
    let mut next = 100;
    eventually("the other host to have compiled the handler", async || {
        submit_all(std::slice::from_ref(&one), next..next + 4, 500, &mut ledger).await;
        next += 4;
        let hosts = cluster(&one).await;
        hosts.iter().skip(1).any(|host| host["running"] != 0).then_some(())
    })
    .await;
    check(std::slice::from_ref(&one), &ledger).await;
    // Two of them run on the other host.
    submit_all(std::slice::from_ref(&one), 0..4, 8_000, &mut ledger).await;
    eventually("jobs on both hosts", async || {
        let running = cluster(&one).await.into_iter().map(|host| host["running"].clone());
        running.eq([json!(2), json!(2)]).then_some(())
    })
    .await;
    // Connections without a call end, as they would be used for the next one; each has seen the end
    // after a moment.
    hosts.to_host[0].set(Link::Cut);
    tokio::time::sleep(Duration::from_millis(300)).await;
    hosts.to_host[0].set(fault);
    until_known(&one, 0).await;
    let begun = Instant::now();
    let refused =
        two.try_send(two.request(Method::GET, &two.path("play", "health"))).await.unwrap();
    assert_eq!(refused.status, 503, "{fault:?}: {refused:?}");
    assert!(refused.header("retry-after").is_some(), "{fault:?}: {refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{fault:?}: {:?}", begun.elapsed());
    check(std::slice::from_ref(&one), &ledger).await;
    assert_eq!((readiness(&one).await, readiness(&two).await), (Some(200), Some(503)));

    hosts.to_host[0].set(Link::Open);
    until_known(&one, 1).await;
    submit_all(&[two.clone(), one.clone()], 4..12, 20, &mut ledger).await;
    check(std::slice::from_ref(&two), &ledger).await;
    let jobs = two.health("play").await["jobs"].clone();
    assert_eq!(jobs["completed"], json!(ledger.len()), "{fault:?}: {jobs}");
    drop((hosts.one, hosts.two));
    drop(hosts.database);
}

/// The variables with the database and the key file of the inner test.
const URL: &str = "LOST_PACKETS_DATABASE";
const KEY_FILE: &str = "LOST_PACKETS_KEY_FILE";

/// The address of the active host for the other one.
const ADDRESS: &str = "10.1.0.1";

/// Packets between two hosts are lost while a call waits on their connection: no side closes it,
/// and the kernel of neither sees an end. The test starts itself again in a network of its own, and
/// takes the address from its interface.
#[test]
fn a_call_on_a_connection_that_loses_its_packets_is_answered() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let (Ok(url), Ok(key)) = (std::env::var(URL), std::env::var(KEY_FILE)) {
        ip("link set lo up");
        return runtime().block_on(lose_packets(&url, &key));
    }
    let Some(database) = Database::new() else { return };
    let (url, key) = (database.url(), database.key_file());
    let variables = [(URL, OsStr::new(&url)), (KEY_FILE, key.as_os_str())];
    let name = "partitions::a_call_on_a_connection_that_loses_its_packets_is_answered";
    run_in_own_network(name, &variables);
}

async fn lose_packets(url: &str, key: &str) {
    ip(&format!("address add {ADDRESS}/32 dev lo"));
    let start = |address: &str, sandboxes: &str| {
        ["--database", url, "--secrets-key", key, "--cluster-listen", address]
            .into_iter()
            .chain(["--max-running-jobs", sandboxes])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let one = TestHost::start_with(&start(&format!("{ADDRESS}:0"), "1"));
    let two = TestHost::join(&start("127.0.0.1:0", "4"), one.admin_key());
    let clients = [one.client(), two.client()];
    until_known(&clients[0], 1).await;
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let mut ledger = Ledger::new();
    for number in 0..3_u64 {
        let body = json!({ "input": sleep(4_000, number) });
        let job = submit(&clients[..1], "play", &format!("n-{number}"), &body).await;
        clients[0].until("play", &job, "IN_PROGRESS").await;
        ledger.insert(number, job);
    }
    one.deploy(&guests::playground(), "parked", json!({ "workersMax": 0 })).await;
    let parked = clients[1].submit("parked", json!({})).await;
    let waiting = {
        let client = clients[1].clone();
        let path = client.path("parked", &format!("status-sync/{parked}?wait=120000"));
        tokio::spawn(async move { client.try_send(client.request(Method::GET, &path)).await })
    };
    // The subject: a call that waits on a connection without traffic.
    tokio::time::sleep(Duration::from_secs(1)).await;
    ip(&format!("address del {ADDRESS}/32 dev lo"));
    let begun = Instant::now();
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    println!("the call was answered after {:?}", begun.elapsed());
    let path = clients[1].path("play", "health");
    let later = clients[1].try_send(clients[1].request(Method::GET, &path)).await.unwrap();
    assert_eq!(later.status, 503, "{later:?}");
    until_known(&clients[0], 0).await;
    assert_eq!(
        (readiness(&clients[0]).await, readiness(&clients[1]).await),
        (Some(200), Some(503))
    );

    ip(&format!("address add {ADDRESS}/32 dev lo"));
    until_known(&clients[0], 1).await;
    check(&clients[1..], &ledger).await;
}

/// The variable that marks the inner test.
const INSIDE: &str = "LOST_DATABASE_INSIDE";

/// The address of the database for its host.
const DATABASE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);

/// Packets between the active host and the database are lost, and neither sees the end of a
/// connection. The server ends the connections by itself, with their locks, and the host continues.
/// The test starts itself again in a network of its own, and takes the address from its interface.
#[test]
fn the_database_does_not_keep_the_connections_of_a_host_that_it_cannot_reach() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if std::env::var_os(INSIDE).is_some() {
        return runtime.block_on(lose_the_database());
    }
    let name =
        "partitions::the_database_does_not_keep_the_connections_of_a_host_that_it_cannot_reach";
    run_in_own_network(name, &[(INSIDE, "1".as_ref())]);
}

async fn lose_the_database() {
    ip("link set lo up");
    ip(&format!("address add {DATABASE_ADDRESS}/32 dev lo"));
    let Some(server) = Server::start_on_tcp(|data| {
        let hba = data.join("pg_hba.conf");
        let known = std::fs::read_to_string(&hba).unwrap();
        let line = format!("host all all {DATABASE_ADDRESS}/32 scram-sha-256\n");
        std::fs::write(&hba, known + &line).unwrap();
        format!("listen_addresses = '127.0.0.1, {DATABASE_ADDRESS}'\n")
    }) else {
        return;
    };
    let database = server.database();
    let at = (DATABASE_ADDRESS, server.address().port()).into();
    let mut one = TestHost::start_with(&arguments_at(&database, &database.url_at(at, PASSWORD)));
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let clients = [one.client()];
    let mut ledger = Ledger::new();
    submit_all(&clients, 0..10, 20, &mut ledger).await;
    check(&clients, &ledger).await;
    let connections =
        || server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gristmill'");
    assert_ne!(connections(), "0");

    ip(&format!("address del {DATABASE_ADDRESS}/32 dev lo"));
    let begun = Instant::now();
    eventually("the end of the connections", async || (connections() == "0").then_some(())).await;
    println!("the connections ended after {:?}", begun.elapsed());
    ip(&format!("address add {DATABASE_ADDRESS}/32 dev lo"));
    submit_all(&clients, 10..20, 20, &mut ledger).await;
    check(&clients, &ledger).await;
    assert!(!one.has_ended(), "{}", one.log());
    drop(one);
    drop(database);
}
