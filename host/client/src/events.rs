//! Server-sent events of an answer, with the bounds of time that a client needs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{RequestBuilder, Response};
use url::Url;

use crate::sse::{Event, EventParser};
use crate::{Client, ClientError};

/// Largest event that is read, in bytes (4 MiB): a chunk has 1 MiB at most.
pub const EVENT_BYTES_MAX: usize = 4 << 20;

/// Most time without a byte: the host sends a comment every 15 seconds.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Most time for a whole stream: the longest ttl of a job.
const STREAM_TIME_MAX: Duration = Duration::from_hours(7 * 24);

/// The server-sent events of one answer.
#[derive(Debug)]
pub struct EventStream {
    response: Response,
    base: Url,
    parser: EventParser,
    ready: VecDeque<Event>,
    opened_at: Instant,
    /// When the last bytes came, which may be a comment.
    heard_at: Instant,
}

impl EventStream {
    /// Opens the stream of `request`; if `after` is given, after the event with this id.
    pub(crate) async fn open(
        client: &Client,
        mut request: RequestBuilder,
        after: Option<&str>,
    ) -> Result<Self, ClientError> {
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let request = request
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
            .timeout(STREAM_TIME_MAX);
        let response = client.open(request, true, SILENCE_TIME_MAX).await?;
        let (base, now) = (client.base().clone(), Instant::now());
        Ok(Self {
            response,
            base,
            parser: EventParser::new(EVENT_BYTES_MAX),
            ready: VecDeque::new(),
            opened_at: now,
            heard_at: now,
        })
    }

    /// The time from the begin of the answer to its last bytes so far.
    pub(crate) fn heard_for(&self) -> Duration {
        self.heard_at - self.opened_at
    }

    /// The id after which a further stream continues, once all events of this one have been
    /// received.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.parser.last_id()
    }

    /// The next event; `None` once the host has ended the answer. If the call is dropped, no event
    /// is lost.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] when the connection breaks, or no byte comes for a minute.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let part = tokio::time::timeout(SILENCE_TIME_MAX, self.response.chunk())
                .await
                .map_err(|_| ClientError::Interrupted("the stream has fallen silent".to_owned()))?
                .map_err(|error| ClientError::transport(error, &self.base))?;
            let Some(part) = part else { return Ok(None) };
            self.heard_at = Instant::now();
            let events = self.parser.push(&part);
            self.ready.extend(events.ok_or_else(|| {
                ClientError::Garbled(format!("an event is larger than {EVENT_BYTES_MAX} bytes"))
            })?);
        }
    }
}
