//! Query strings of every operation: each parameter is accepted or refused as documented, in any
//! context, and no call waits longer than its maximum.
//!
//! Input: the first byte chooses operation and mount, the rest is the query string.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use gristmill_core::id::JobId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::{LIST_JOBS, STREAM_WAIT_MS, WAIT_MS};
use gristmill_core::store::JobStore as _;
use gristmill_test_support::EndAttempt as _;
use http_body_util::Full;
use serde_json::Value;
use tokio::time::Instant;

use super::host::{self, ENDPOINT, Host};

/// Enough for more than one page of a list.
const JOBS: usize = 5;

pub fn query(data: &[u8]) {
    let Some((&choice, query)) = data.split_first() else { return };
    let Ok(query) = str::from_utf8(query) else { return };
    // A query that no client can send never reaches a route.
    if query.contains('#') || http::Uri::try_from(format!("/?{query}")).is_err() {
        return;
    }
    Host::run(async |host| call(host, choice, query).await);
}

async fn call(host: &Host, choice: u8, query: &str) {
    let ids = fill(host).await;
    let mount = if choice & 0x80 == 0 { "/v2" } else { "/sdk/v2" };
    let of_job = |operation| host.path(mount, operation, ids[usize::from(choice >> 4) & 3]);
    let of_endpoint = |operation| format!("{mount}/{ENDPOINT}/{operation}");
    let parameters = Parameters(query);
    let wait_is_whole = parameters.is_whole("wait", true);
    let (method, path, is_right) = match choice & 0xf {
        0 => ("POST", of_endpoint("runsync"), wait_is_whole),
        1 => ("GET", of_job("status"), parameters.is_whole("ttl", false)),
        2 => ("POST", of_job("status-sync"), wait_is_whole),
        3 => ("GET", of_job("stream"), wait_is_whole && parameters.is_whole("from", false)),
        4 => ("GET", of_endpoint("requests"), parameters.is_right_filter()),
        5 => ("POST", of_endpoint("run"), true),
        6 => ("POST", of_job("cancel"), true),
        7 => ("GET", of_endpoint("health"), true),
        8 => ("GET", of_job("timeline"), parameters.has_only(&[])),
        _ => ("POST", of_endpoint("purge-queue"), true),
    };
    let before = Instant::now();
    let answer = send(host, method, &format!("{path}?{query}")).await;
    let longest = Duration::from_millis(WAIT_MS.max.max(STREAM_WAIT_MS.max));
    assert!(before.elapsed() <= longest, "{path}?{query} took {:?}", before.elapsed());
    assert_eq!(answer.status() == 200, is_right, "{path}?{query}: {}", answer.status());
    if !is_right {
        return host::check_refusal(answer).await;
    }
    let document: Value = serde_json::from_slice(&host::body(answer).await).unwrap();
    if path.ends_with("/requests") {
        follow(host, &path, parameters, document).await;
    }
}

/// Jobs in four states, the last with chunks.
async fn fill(host: &Host) -> Vec<JobId> {
    let mut ids = Vec::new();
    for n in 0..JOBS {
        let answer = send(host, "POST", &format!("/v2/{ENDPOINT}/run")).await;
        let accepted: Value = serde_json::from_slice(&host::body(answer).await).unwrap();
        let id: JobId = accepted["id"].as_str().unwrap().parse().unwrap();
        ids.push(id);
        if n == JOBS - 1 {
            break; // it waits
        }
        let lease = host.claim().await.unwrap().lease;
        let output = Json::parse("\"chunk\"").unwrap();
        let chunk = Chunk { output: output.clone(), metrics: None, part: None };
        let _ = host.store.append_chunks(lease, vec![chunk; 3]).await.unwrap();
        let outcome = match n {
            0 => Outcome::Completed(output),
            1 => Outcome::Failed("on purpose".to_owned()),
            2 => Outcome::TimedOut,
            _ => continue, // it runs
        };
        let _ = host.store.finish(lease, outcome).await.unwrap();
    }
    ids.split_off(1)
}

async fn send(host: &Host, method: &str, path: &str) -> host::Answer {
    let request = host.request(method, path).unwrap();
    host.answer(request.body(Full::new(Bytes::from_static(b"{\"input\":{}}"))).unwrap()).await
}

/// A client that follows the cursors gets every job once.
async fn follow(host: &Host, path: &str, parameters: Parameters<'_>, first: Value) {
    // With a cursor in the client's query, earlier jobs are missing.
    if parameters.get("cursor").is_some() {
        return;
    }
    let limit = parameters.get("limit").unwrap_or_else(|| LIST_JOBS.default.to_string());
    let filter =
        parameters.get("status").map_or(String::new(), |status| format!("&status={status}"));
    let all = send(host, "GET", &format!("{path}?{}", filter.trim_start_matches('&'))).await;
    let all: Value = serde_json::from_slice(&host::body(all).await).unwrap();
    let mut left: BTreeSet<String> = ids(&all).collect();
    let mut page = first;
    loop {
        for id in ids(&page) {
            assert!(left.remove(&id), "{id} comes twice");
        }
        let Some(cursor) = page["cursor"].as_str() else { break };
        let next = format!("{path}?cursor={cursor}&limit={limit}{filter}");
        page = serde_json::from_slice(&host::body(send(host, "GET", &next).await).await).unwrap();
    }
    assert!(left.is_empty(), "missing: {left:?}");
}

fn ids(page: &Value) -> impl Iterator<Item = String> {
    let requests = page["requests"].as_array().unwrap();
    requests.iter().map(|job| job["id"].as_str().unwrap().to_owned())
}

/// A second parser of query strings, for the syntax only.
#[derive(Clone, Copy)]
struct Parameters<'a>(&'a str);

impl Parameters<'_> {
    /// The first value of a name.
    fn get(self, name: &str) -> Option<String> {
        self.0.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key) == name.as_bytes())
                .then(|| String::from_utf8_lossy(&decode(value)).into_owned())
        })
    }

    fn is_whole(self, name: &str, may_be_negative: bool) -> bool {
        let Some(text) = self.get(name) else { return true };
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let is_zero = digits.bytes().all(|digit| digit == b'0');
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number && (may_be_negative || is_zero || !text.starts_with('-'))
    }

    /// Whether all names are among these.
    fn has_only(self, known: &[&str]) -> bool {
        self.0.split('&').filter(|pair| !pair.is_empty()).all(|pair| {
            let name = decode(pair.split_once('=').map_or(pair, |(name, _)| name));
            known.iter().any(|known| name == known.as_bytes())
        })
    }

    fn is_right_filter(self) -> bool {
        let status = self.get("status");
        let limit = self.get("limit");
        let cursor = self.get("cursor");
        let is_listed = |limit: String| {
            let number = limit.trim_start_matches('0').parse();
            number.is_ok_and(|number| LIST_JOBS.contains(number))
        };
        let is_place = |cursor: &String| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            cursor.len() == 16 && cursor.bytes().all(is_digit)
        };
        self.has_only(&["status", "limit", "cursor"])
            && status
                .is_none_or(|status| JobStatus::ALL.iter().any(|known| known.as_str() == status))
            && (limit.is_none() || self.is_whole("limit", false) && limit.is_some_and(is_listed))
            && cursor.as_ref().is_none_or(is_place)
    }
}

fn decode(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte });
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let mut ahead = bytes.clone();
        match (byte, digit(ahead.next()), digit(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(16 * high + low).unwrap());
                bytes = ahead;
            }
            _ => decoded.push(byte),
        }
    }
    decoded
}
