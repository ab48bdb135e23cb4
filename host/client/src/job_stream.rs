//! A job's stream, followed to the job's end.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::reconnect::Reconnecting;
use crate::wire::id::EndpointId;
use crate::wire::queue::{StreamChunk, StreamEnd, StreamRestart};
use crate::{Client, ClientError};

/// The chunks of a job until its end, over as many connections as needed. No chunk is
/// repeated. No chunk after the first received event is missing; with `from`, no chunk at all.
///
/// ```no_run
/// # async fn example(client: gristmill_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use gristmill_client::StreamUpdate;
///
/// let mut stream = client.stream(&"count".parse()?, "0197…", None);
/// let end = loop {
///     match stream.next().await? {
///         StreamUpdate::Chunk(chunk) => println!("{}", chunk.output()?.get()),
///         StreamUpdate::Restart(_) => println!("all chunks so far are invalid"),
///         StreamUpdate::End(end) => break end,
///     }
/// };
/// println!("the job is {}", end.status);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct JobStream {
    client: Client,
    endpoint: EndpointId,
    job: String,
    from: Option<u64>,
    connections: Reconnecting,
}

/// An event of a job's stream.
#[derive(Debug, Clone)]
pub enum StreamUpdate {
    /// The handler has emitted a chunk.
    Chunk(Chunk),
    /// The job has another attempt: all chunks so far are invalid, and its stream begins again.
    Restart(StreamRestart),
    /// The job has ended: there are no more events.
    End(StreamEnd),
}

/// A chunk, as the host sent it.
#[derive(Debug, Clone)]
pub struct Chunk {
    text: String,
}

impl JobStream {
    pub(crate) fn new(
        client: Client,
        endpoint: EndpointId,
        job: String,
        from: Option<u64>,
    ) -> Self {
        Self { client, endpoint, job, from, connections: Reconnecting::default() }
    }

    /// The next event. After [`StreamUpdate::End`] it must not be called again: it would read the
    /// end again.
    ///
    /// # Errors
    /// A refusal that does not pass, such as 404, and repeated failures to reach the host.
    pub async fn next(&mut self) -> Result<StreamUpdate, ClientError> {
        let Self { client, endpoint, job, from, connections } = self;
        loop {
            let open =
                async |after: Option<&str>| client.stream_events(endpoint, job, *from, after).await;
            let ended = "the host repeatedly ended the stream before the job's end";
            let event = connections.next(open, ended).await?;
            return Ok(match event.kind.as_str() {
                "message" => StreamUpdate::Chunk(Chunk::new(event.data)?),
                "restart" => StreamUpdate::Restart(read(&event.data)?),
                "end" => StreamUpdate::End(read(&event.data)?),
                // `deleted`, after which the next connection is refused with 404, and kinds of a
                // later version.
                _ => continue,
            });
        }
    }
}

impl Chunk {
    fn new(text: String) -> Result<Self, ClientError> {
        let chunk = Self { text };
        chunk.output()?;
        Ok(chunk)
    }

    /// The whole chunk as the host sent it: output and metrics.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The emitted value, as the handler wrote it.
    ///
    /// # Errors
    /// [`ClientError::Garbled`] when the text is no chunk; a chunk of [`JobStream`] is one.
    pub fn output(&self) -> Result<&RawValue, ClientError> {
        #[derive(Deserialize)]
        struct Output<'a> {
            #[serde(borrow)]
            output: &'a RawValue,
        }
        read::<Output<'_>>(&self.text).map(|chunk| chunk.output)
    }

    /// The chunk's fields.
    ///
    /// # Errors
    /// [`ClientError::Garbled`] when the text is no chunk.
    pub fn read(&self) -> Result<StreamChunk, ClientError> {
        read(&self.text)
    }
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ClientError> {
    serde_json::from_str(data).map_err(|error| {
        ClientError::Garbled(format!("the stream has an event that is none: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_keeps_its_text() {
        let data = r#"{"output":{"n": 9007199254740993},"metrics":{"stream_index":0}}"#;
        let chunk = Chunk::new(data.to_owned()).unwrap();
        assert_eq!(chunk.output().unwrap().get(), r#"{"n": 9007199254740993}"#);
        assert_eq!(chunk.text(), data);
        assert_eq!(chunk.read().unwrap().metrics.get(), r#"{"stream_index":0}"#);
        assert!(Chunk::new("{}".to_owned()).is_err());
    }
}
