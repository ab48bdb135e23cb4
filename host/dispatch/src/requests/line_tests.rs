//! The line of an endpoint: turns of callers and of jobs, and its end.

use std::iter;

use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::http_call::no_body;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use http::Request;

use super::*;

fn request(caller: &str) -> WaitingRequest {
    let (call, _) = HttpCall::new(Request::new(no_body()));
    let (id, template) = (EndpointId::new("e").unwrap(), TemplateId::new("t").unwrap());
    let at = Timestamp::from_millis(0);
    let endpoint = Endpoint::new(id, OwnerId::new("o").unwrap(), template, at);
    let incarnation = endpoint.new_incarnation();
    WaitingRequest {
        observed: ObservedRequest::begin(Arc::default(), incarnation, at, "GET", "/"),
        caller: KeyId::new(caller).unwrap(),
        call,
        trace: None,
        since: at,
        stop: CancellationToken::new(),
        ended: oneshot::channel().0,
    }
}

/// The callers of the requests that are taken, in this order.
fn taken(line: &RequestLine) -> Vec<String> {
    let all = iter::from_fn(|| line.take());
    all.map(|(_, request, _)| request.caller.to_string()).collect()
}

#[test]
fn callers_take_turns() {
    let line = RequestLine::default();
    for caller in ["a", "a", "a", "b", "a", "c"] {
        line.push(request(caller)).unwrap();
    }
    assert_eq!(taken(&line), ["a", "b", "c", "a", "a", "a"]);
}

#[test]
fn jobs_and_requests_take_turns() {
    let line = RequestLine::default();
    assert!(!line.is_jobs_turn());
    let jobs = Demand { version: 7, jobs: 2, claimable: 2, ..Demand::default() };
    assert_eq!(line.jobs_changed(jobs).claimable, 2);
    for caller in ["a", "b"] {
        line.push(request(caller)).unwrap();
    }
    let late = Demand { version: 6, ..Demand::default() };
    assert_eq!(line.jobs_changed(late).claimable, 4, "an older report changes nothing");
    let is_job = || line.is_jobs_turn() || line.take().is_none();
    let turns: Vec<_> = iter::repeat_with(is_job).take(5).collect();
    assert_eq!(turns, [false, true, false, true, true]);
    let none = line.jobs_changed(Demand { version: 8, ..Demand::default() });
    assert!(none.claimable == 0 && !line.is_jobs_turn());
}

#[test]
fn a_request_that_was_put_back_is_its_callers_first_one() {
    let line = RequestLine::default();
    let (first, _) = line.push(request("a")).unwrap();
    let (second, _) = line.push(request("a")).unwrap();
    let (number, request, demand) = line.take().unwrap();
    assert_eq!((number, demand.jobs), (first, 1));
    assert_eq!(line.put_back(number, request).jobs, 2);
    assert_eq!(line.take().unwrap().0, first);
    assert_eq!(line.remove(second).unwrap().jobs, 0);
    assert!(line.remove(first).is_none() && line.take().is_none());
}

#[test]
fn a_closed_line_takes_and_gives_nothing() {
    let line = RequestLine::default();
    line.push(request("a")).unwrap();
    line.close();
    assert!(line.take().is_none());
    assert_eq!(line.push(request("a")).unwrap_err(), NoAnswer::Stopped);
}
