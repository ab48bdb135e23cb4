//! One request while it is answered.
//!
//! The call of the client and the worker share the object, and note what they know. When the last
//! of them drops it, the request has ended: it is counted, and kept among the
//! [newest](NewestRequests). So each request is counted once, also one whose client leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;

use super::newest::{EndedRequest, NewestRequests};
use crate::id::{JobId, ShardId, SubmissionKind, WorkerId};
use crate::incarnation::EndpointIncarnation;
use crate::metrics::requests::{AnswerClass, RequestValues};
use crate::time::Timestamp;

/// The status of a request whose client has left before the head of its answer, as nginx has it.
const CLIENT_LEFT_STATUS: u16 = 499;

/// The code of a request whose client has left before the end of its answer.
const CLIENT_LEFT: &str = "client_left";

/// A request that is being answered.
#[derive(Debug)]
pub struct ObservedRequest {
    id: JobId,
    endpoint: EndpointIncarnation,
    newest: Arc<NewestRequests>,
    method_and_path: Box<str>,
    at: Timestamp,
    begun: Instant,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    unbilled_out: AtomicU64,
    fate: Mutex<Fate>,
}

/// The known facts about its end.
#[derive(Debug, Default)]
struct Fate {
    /// The status, and the time until the head of the answer.
    head: Option<(StatusCode, Duration)>,
    code: Option<&'static str>,
    attempt: Option<Attempt>,
}

/// The attempt of a worker at it.
#[derive(Debug)]
struct Attempt {
    worker: WorkerId,
    version: u32,
    waited: Duration,
    /// `None` while it runs.
    ran: Option<Duration>,
}

impl ObservedRequest {
    /// A request that has just arrived.
    pub fn begin(
        newest: Arc<NewestRequests>,
        endpoint: EndpointIncarnation,
        at: Timestamp,
        method: &str,
        path: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: JobId::generate(SubmissionKind::Sync, ShardId(0)),
            endpoint,
            newest,
            method_and_path: EndedRequest::method_and_path(method, path),
            at,
            begun: Instant::now(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            unbilled_out: AtomicU64::new(0),
            fate: Mutex::default(),
        })
    }

    /// Its id, in the form of a job's id, although there is no job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// A worker with this version of the endpoint begins to answer it.
    pub fn started(&self, worker: WorkerId, version: u32) {
        let waited = self.begun.elapsed();
        self.fate.lock().attempt = Some(Attempt { worker, version, waited, ran: None });
    }

    /// The worker has ended after this time; of a failure there is a `code`.
    pub fn ended(&self, ran: Duration, code: Option<&'static str>) {
        let mut fate = self.fate.lock();
        if let Some(attempt) = &mut fate.attempt {
            attempt.ran = Some(ran);
        }
        // The worker knows best why an answer has broken off.
        fate.code = code.or(fate.code);
    }

    /// The head of the answer is known; of a refusal there is a `code`.
    pub fn answered(&self, status: StatusCode, code: Option<&'static str>) {
        let took = self.begun.elapsed();
        let mut fate = self.fate.lock();
        fate.head.get_or_insert((status, took));
        fate.code = code.or(fate.code);
    }

    /// The answer has broken off after its head.
    pub fn broke_off(&self, code: &'static str) {
        self.fate.lock().code.get_or_insert(code);
    }

    /// The client has left before the end of its answer.
    pub fn client_left(&self) {
        self.broke_off(CLIENT_LEFT);
    }

    /// The handler has taken so many bytes of the body.
    pub fn took(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of the answer's body go to the client.
    pub fn gave(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.unbilled_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of its body that the handler has taken so far.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    /// The bytes of the answer since the last call of this.
    pub fn take_unbilled_out(&self) -> u64 {
        self.unbilled_out.swap(0, Ordering::Relaxed)
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        let whole = self.begun.elapsed();
        let Fate { head, code, attempt } = std::mem::take(self.fate.get_mut());
        let (bytes_in, bytes_out) = (*self.bytes_in.get_mut(), *self.bytes_out.get_mut());
        self.endpoint.metrics().http().ended(&RequestValues {
            class: head.map_or(AnswerClass::ClientLeft, |(status, _)| AnswerClass::of(status)),
            head: head.map(|(_, took)| took),
            whole,
            bytes_in,
            bytes_out,
        });
        let (waited, ran) = match &attempt {
            // An attempt without an end has ended with its thread.
            Some(Attempt { waited, ran, .. }) => {
                (*waited, ran.unwrap_or(whole.saturating_sub(*waited)))
            }
            None => (whole, Duration::ZERO),
        };
        let ended = EndedRequest {
            id: self.id,
            at: self.at,
            method_and_path: std::mem::take(&mut self.method_and_path),
            status: head.map_or(CLIENT_LEFT_STATUS, |(status, _)| status.as_u16()),
            code: if head.is_some() { code } else { Some(CLIENT_LEFT) },
            waited_ms: whole_ms(waited),
            ran_ms: whole_ms(ran),
            bytes_in,
            bytes_out,
            release: attempt.as_ref().map(|attempt| attempt.version),
            worker: attempt.map(|attempt| attempt.worker),
        };
        self.newest.add(&self.endpoint, ended);
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "observed_tests.rs"]
mod tests;
