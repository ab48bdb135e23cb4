//! The request of an attempt to its runner: it begins the attempt, or goes on with one that the
//! runner has kept. A request that is dropped before the end of the attempt ends the attempt.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use gristmill_core::runtime::{AttemptKey, AttemptSink};
use gristmill_core::sharing::permits::Permit;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use super::link::{Link, LinkError, Room};
use crate::frames::{self, FrameReader, FrameSender};
use crate::messages::{FromRunner, Order, Stop, ToRunner};

/// Time for the end of the answer after its last message: without it the connection would have to
/// reset the request.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// A request in progress.
pub(super) struct Request {
    attempt: Wanted,
    orders: FrameSender,
    reading: Reading,
    permit: Option<Permit>,
    /// The deployment of a new attempt; `None` for one that the runner has kept.
    started: Option<u64>,
}

/// An attempt in a room. When this is dropped, the runner ends the attempt.
struct Wanted {
    link: Arc<Link>,
    key: AttemptKey,
    is_over: bool,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if !self.is_over {
            self.link.end_attempts(std::slice::from_ref(&self.key));
        }
    }
}

enum Reading {
    /// The head of the answer has not arrived.
    Head(BoxFuture<'static, Result<Response<Incoming>, LinkError>>),
    Messages(FrameReader<Incoming>),
    Ended,
}

/// Why there is no next message.
#[derive(Debug)]
pub(super) enum Lost {
    /// The runner has not begun the attempt.
    NotBegun(String),
    /// The request has ended.
    Connection(String),
}

impl Request {
    /// A request with this first message.
    pub(super) fn new(key: AttemptKey, room: Room, first: Order) -> Self {
        let Room { link, permit, .. } = room;
        let (orders, body) = frames::channel();
        let started = match &first {
            Order::Start(start) => Some(start.deployment),
            _ => None,
        };
        // The body exists.
        let _ = orders.send(&ToRunner { order: Some(first) });
        let to = link.clone();
        let head = async move { to.send("/attempt", body).await };
        let reading = Reading::Head(Box::pin(head));
        let attempt = Wanted { link, key, is_over: false };
        Self { attempt, orders, reading, permit, started }
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.attempt.link
    }

    /// The deployment of a new attempt.
    pub(super) fn started(&self) -> Option<u64> {
        self.started
    }

    /// Whether the runner has begun to answer.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.reading, Reading::Messages(_))
    }

    /// Sends a message. A request that has ended sends none.
    pub(super) fn send(&self, order: Order) {
        let _ = self.orders.send(&ToRunner { order: Some(order) });
    }

    /// Waits for the head of the answer, if it has not arrived. Dropping the future loses nothing.
    pub(super) async fn open(&mut self) -> Result<(), Lost> {
        if let Reading::Head(head) = &mut self.reading {
            let answer = match head.await {
                Ok(answer) if answer.status() == StatusCode::OK => answer,
                Ok(answer) => return Err(self.has_no_answer(answer.status().to_string())),
                Err(error) => return Err(self.has_no_answer(error.to_string())),
            };
            self.reading = Reading::Messages(FrameReader::new(answer.into_body()));
        }
        Ok(())
    }

    /// The next message of the runner. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<FromRunner, Lost> {
        self.open().await?;
        let Reading::Messages(reader) = &mut self.reading else {
            return Err(Lost::Connection("it has not answered".to_owned()));
        };
        match reader.next().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Lost::Connection("it has ended the request".to_owned())),
            Err(error) => Err(Lost::Connection(error.to_string())),
        }
    }

    /// Leaves the attempt to the next active host.
    pub(super) fn leave(mut self) {
        self.attempt.is_over = true;
        tokio::spawn(self.end_with(Order::Leave(Stop {})));
    }

    fn has_no_answer(&mut self, reason: String) -> Lost {
        self.reading = Reading::Ended;
        match self.started {
            Some(_) => Lost::NotBegun(reason),
            None => Lost::Connection(reason),
        }
    }

    /// Confirms the last message, which has this number, once the end of the attempt is on disk,
    /// and ends the request. Until then the runner keeps the end, for the next active host.
    pub(super) fn confirm_end(mut self, number: u64, sink: Arc<dyn AttemptSink>) {
        self.attempt.is_over = true;
        // The sandbox is free.
        self.permit = None;
        tokio::spawn(async move {
            let is_stored = tokio::select! {
                stored = sink.end_stored() => stored.is_ok(),
                () = self.attempt.link.lost.cancelled() => false,
            };
            if is_stored {
                self.end_with(Order::Taken(number)).await;
            }
        });
    }

    /// Sends the last message, and waits for the end of the answer.
    async fn end_with(self, last: Order) {
        self.send(last);
        let Reading::Messages(mut reader) = self.reading else { return };
        let rest = async { while let Ok(Some(_)) = reader.next::<FromRunner>().await {} };
        let _ = timeout(LAST_BYTES, rest).await;
    }
}
