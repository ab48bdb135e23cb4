//! The log lines of an endpoint's handlers, followed.

use crate::reconnect::Reconnecting;
use crate::wire::id::EndpointId;
use crate::wire::management::LogLine;
use crate::{Client, ClientError, LogQuery};

/// The newest lines, and then new ones for ever, over as many connections as needed.
#[derive(Debug)]
pub struct LogStream {
    client: Client,
    endpoint: EndpointId,
    query: LogQuery,
    connections: Reconnecting,
}

/// A line, as the host sent it.
#[derive(Debug, Clone)]
pub struct LogLineText(String);

impl LogStream {
    pub(crate) fn new(client: Client, endpoint: EndpointId, query: LogQuery) -> Self {
        Self { client, endpoint, query, connections: Reconnecting::default() }
    }

    /// The next line.
    ///
    /// # Errors
    /// A refusal that does not pass, such as 404, and repeated failures to reach the host.
    pub async fn next(&mut self) -> Result<LogLineText, ClientError> {
        let Self { client, endpoint, query, connections } = self;
        let open = async |after: Option<&str>| client.log_events(endpoint, query, after).await;
        let ended = "the host ends the lines again and again";
        connections.next(open, ended).await.map(|event| LogLineText(event.data))
    }
}

impl LogLineText {
    /// The line's document as JSON text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The line.
    ///
    /// # Errors
    /// [`ClientError::Garbled`] when the text is no line.
    pub fn read(&self) -> Result<LogLine<'static>, ClientError> {
        serde_json::from_str(&self.0)
            .map_err(|error| ClientError::Garbled(format!("this is no log line: {error}")))
    }
}
