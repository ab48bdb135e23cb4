//! Calls that no HTTP client would make: bytes on a connection, and the bytes of the answer.

use std::ops::Deref;
use std::time::Duration;

use gristmill_tests::TestHost;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::Endpoint;

/// Longer than the host waits for a body that has paused.
const ANSWER_WAIT: Duration = Duration::from_secs(50);

/// The bytes of an answer.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl RawAnswer {
    /// Asserts that it is the caller's fault, not the host's.
    pub(crate) fn assert_4xx(&self, what: &str) {
        assert!((400..500).contains(&self.status), "{what}: {self:?}");
    }

    /// Asserts the status and the format of a refusal, and returns its sentence.
    pub(crate) fn refused(&self, status: u16, what: &str) -> String {
        assert_eq!(self.status, status, "{what}: {self:?}");
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        assert!(body["code"].is_string(), "{what}: {self:?}");
        body["error"].as_str().unwrap_or_else(|| panic!("{what}: {self:?}")).to_owned()
    }
}

/// The head of a call with the admin key, without the empty line at its end.
pub(crate) fn head(host: &TestHost, method: &str, path: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-type: application/json\r\n",
        host.admin_key()
    )
}

/// Sends these bytes and nothing more, and reads the answer to its end.
pub(crate) async fn send(host: &TestHost, bytes: impl AsRef<[u8]>) -> RawAnswer {
    let mut connection = TcpStream::connect(host.address()).await.unwrap();
    // A host that refuses early may close before it has read everything.
    let _ = connection.write_all(bytes.as_ref()).await;
    let mut text = vec![];
    let reading = connection.read_to_end(&mut text);
    let _ = timeout(ANSWER_WAIT, reading).await.expect("the host answers and closes");
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: `{text}`"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    RawAnswer { status: status.unwrap_or_else(|| panic!("{head}")), body: body.to_owned() }
}

/// Announces a body of this size without sending any of it; asserts the 413 and returns its
/// sentence.
pub(crate) async fn refused_by_its_length<H: Deref<Target = TestHost>>(
    endpoint: &Endpoint<H>,
    operation: &str,
    bytes: usize,
) -> String {
    let head = head(&endpoint.host, "POST", &endpoint.path(operation));
    let answer = send(&endpoint.host, format!("{head}content-length: {bytes}\r\n\r\n")).await;
    answer.refused(413, operation)
}
