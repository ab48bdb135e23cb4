//! Reconnections of a stream that continues after its last event.

use std::time::Duration;

use crate::{ClientError, Event, EventStream};

/// Most reconnections in a row without a new event, and the pause before each.
const RECONNECTS_MAX: u32 = 10;
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// A connection on which the host was heard for so long was no failure: a proxy may end each after
/// some minutes.
const LASTING: Duration = Duration::from_secs(30);

/// The longest pause that an answer may ask for; beyond it the error is returned.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A stream over several connections.
#[derive(Debug, Default)]
pub(crate) struct Reconnecting {
    events: Option<EventStream>,
    /// The id of the last event that had one.
    last_event: Option<String>,
    /// Connections since the last event that have ended soon.
    failed: u32,
}

impl Reconnecting {
    /// The next event; `open` makes a connection that continues after the event with the given id.
    ///
    /// # Errors
    /// A refusal that does not pass, and the last one of too many failures in a row. `ended` is the
    /// error when the host ends the connections without one.
    pub(crate) async fn next(
        &mut self,
        open: impl AsyncFn(Option<&str>) -> Result<EventStream, ClientError>,
        ended: &str,
    ) -> Result<Event, ClientError> {
        loop {
            let broken = match &mut self.events {
                Some(events) => match events.next().await {
                    Ok(Some(event)) => {
                        self.failed = 0;
                        self.last_event = event.id.clone().or_else(|| self.last_event.take());
                        return Ok(event);
                    }
                    Ok(None) => ClientError::Interrupted(ended.to_owned()),
                    Err(error) => error,
                },
                None => match open(self.last_event.as_deref()).await {
                    Ok(events) => {
                        self.events = Some(events);
                        continue;
                    }
                    Err(error) => error,
                },
            };
            if let Some(events) = self.events.take() {
                let position = events.last_id().map(str::to_owned);
                self.last_event = position.or_else(|| self.last_event.take());
                if events.heard_for() >= LASTING {
                    self.failed = 0;
                }
            }
            self.failed += 1;
            if !broken.is_passing() || self.failed > RECONNECTS_MAX {
                return Err(broken);
            }
            let pause = broken.retry_after().unwrap_or_default().max(RECONNECT_PAUSE);
            if pause > RECONNECT_PAUSE_MAX {
                return Err(broken);
            }
            tokio::time::sleep(pause).await;
        }
    }
}
