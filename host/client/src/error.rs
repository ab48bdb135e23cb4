//! Why a call failed.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use crate::wire::ErrorCode;

/// Why a call failed.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// There was no connection, so nothing was sent; the text says why.
    Unreachable {
        /// Why, in one sentence that names the host.
        sentence: String,
        /// Whether the machine refused the connection: no program listens there.
        is_refused: bool,
        /// Whether the host's certificate is not that of a trusted authority.
        is_untrusted: bool,
    },
    /// The host refused the call.
    Refused(Box<Refusal>),
    /// The connection broke, or paused too long. The host may have carried out the call.
    Interrupted(String),
    /// The host's answer cannot be parsed.
    Garbled(String),
    /// The request cannot be written as JSON, or as a header.
    Unsendable(String),
}

/// The host's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The host.
    pub host: Url,
    /// The HTTP status.
    pub status: u16,
    /// The kind of refusal; `None` if this version does not know it, or the answer is not of a
    /// Gristmill host.
    pub code: Option<ErrorCode>,
    /// The host's sentence, if it wrote one.
    pub message: Option<String>,
    /// How long the client should wait before it calls again.
    pub retry_after: Option<Duration>,
    /// Whether the call had a key.
    pub had_key: bool,
}

/// The body of a refusal; the code may be one of a later version.
#[derive(Deserialize)]
struct Body {
    error: String,
    #[serde(default)]
    code: String,
}

impl ClientError {
    /// The refusal in a non-2xx answer, with the header `Retry-After`.
    pub(crate) fn refused(
        status: u16,
        body: &[u8],
        retry_after: Option<&str>,
        had_key: bool,
        host: &Url,
    ) -> Self {
        let body = serde_json::from_slice::<Body>(body).ok();
        // The host writes seconds. A proxy may write a date, which is ignored.
        let seconds = retry_after.and_then(|text| text.trim().parse().ok());
        Self::Refused(Box::new(Refusal {
            host: host.clone(),
            status,
            code: body.as_ref().and_then(|body| body.code.parse().ok()),
            message: body.map(|body| body.error),
            retry_after: seconds.map(Duration::from_secs),
            had_key,
        }))
    }

    /// A failure below HTTP.
    #[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
    pub(crate) fn transport(error: reqwest::Error, base: &Url) -> Self {
        let host = base.as_str().trim_end_matches('/');
        if error.is_connect() {
            let is_refused = causes(&error).any(|cause| {
                cause
                    .downcast_ref::<io::Error>()
                    .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            });
            let reason = innermost(&error);
            let is_untrusted = !is_refused && UNTRUSTED.iter().any(|kind| reason.contains(kind));
            let sentence = match is_refused {
                true => format!("no Gristmill host answers at {host}"),
                false => format!("cannot connect to {host}: {}", explained(&reason)),
            };
            return Self::Unreachable { sentence, is_refused, is_untrusted };
        }
        if error.is_timeout() {
            return Self::Interrupted(format!("{host} did not answer in time"));
        }
        if error.is_builder() {
            return Self::Unsendable(format!("the request cannot be sent: {}", innermost(&error)));
        }
        Self::Interrupted(format!("the connection to {host} broke: {}", innermost(&error)))
    }

    /// The host's refusal, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Unreachable { .. }
            | Self::Interrupted(_)
            | Self::Garbled(_)
            | Self::Unsendable(_) => None,
        }
    }

    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.status)
    }

    /// The kind of a refusal.
    pub fn code(&self) -> Option<ErrorCode> {
        self.refusal()?.code
    }

    /// How long the client should wait before it calls again, if the host said it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal()?.retry_after
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether the host has not done what the call asks for, and may do it after a short time: the
    /// call can be repeated, whatever it is.
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Unreachable { is_untrusted, .. } => !is_untrusted,
            Self::Refused(refusal) => refusal.code.is_some_and(ErrorCode::is_retry_safe),
            Self::Interrupted(_) | Self::Garbled(_) | Self::Unsendable(_) => false,
        }
    }

    /// Whether the same call may succeed after a short time. The host may have carried it out
    /// already.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502..=504),
            Self::Unreachable { .. } | Self::Interrupted(_) => true,
            Self::Garbled(_) | Self::Unsendable(_) => false,
        }
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let current = next?;
        next = current.source();
        Some(current)
    })
}

/// The TLS library's names for a certificate of an unknown authority. It reports the last two if a
/// trusted authority has the same name, such as `CN=localhost`, and another key.
const UNTRUSTED: [&str; 3] =
    ["UnknownIssuer", "UnsupportedSignatureAlgorithmForPublicKey", "BadSignature"];

/// The reason of a failed connection in words, where the TLS library names only its own error.
fn explained(reason: &str) -> &str {
    if reason.contains("InvalidContentType") {
        "the host speaks plain HTTP, so its URL begins with http://"
    } else if reason.contains("CaUsedAsEndEntity") {
        "the host's certificate is that of an authority (CA:TRUE), which no host may have. A certificate for \
         tests has basicConstraints CA:FALSE; docs/guides/tls.md has the command that makes one"
    } else if UNTRUSTED.iter().any(|kind| reason.contains(kind)) {
        "the host's certificate is not signed by an authority that this machine trusts"
    } else {
        reason
    }
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { sentence: text, .. }
            | Self::Interrupted(text)
            | Self::Garbled(text)
            | Self::Unsendable(text) => f.write_str(text),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            // The host's own sentence is for programs that write headers.
            Some(_) if self.status == 401 && !self.had_key => {
                f.write_str("the host wants an API key")
            }
            Some(message) => f.write_str(message),
            None => write!(
                f,
                "HTTP status {} without an explanation; is a Gristmill host behind this URL?",
                self.status
            ),
        }
    }
}

impl Error for ClientError {}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn a_refusal_has_the_hosts_code_sentence_and_wish() {
        let base = "http://127.0.0.1:8080/".parse().unwrap();
        let body = br#"{"error":"endpoint `x` not found","code":"not_found"}"#;
        let error = ClientError::refused(404, body, None, true, &base);
        assert_eq!(error.to_string(), "endpoint `x` not found");
        assert_eq!(error.code(), Some(ErrorCode::NotFound));
        assert!(error.is_not_found() && !error.is_passing());

        let error = ClientError::refused(502, b"<html>", Some("soon"), true, &base);
        assert!(error.to_string().starts_with("HTTP status 502 without"), "{error}");
        assert!(error.is_passing() && !error.is_retry_safe());

        let body = br#"{"error":"later","code":"of_a_later_version"}"#;
        let error = ClientError::refused(429, body, Some("7"), true, &base);
        assert_eq!((error.code(), error.retry_after()), (None, Some(Duration::from_secs(7))));

        let body = br#"{"error":"no API key: send the header","code":"unauthorized"}"#;
        let refused = |had_key| ClientError::refused(401, body, None, had_key, &base).to_string();
        assert_eq!(refused(true), "no API key: send the header");
        assert_eq!(refused(false), "the host wants an API key");
    }

    #[tokio::test]
    async fn a_host_without_tls_is_reported_as_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 16 << 10];
                let _ = stream.read(&mut request).await;
                let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
                // Unread bytes would reset the connection before the client has read the answer.
                let _ = stream.read_to_end(&mut request).await;
            }
        });
        let client = crate::Client::builder(url.parse().unwrap()).retries(crate::Retries::NONE);
        let error = client.build().unwrap().keys().await.unwrap_err().to_string();
        assert!(error.contains("the host speaks plain HTTP"), "{error}");
    }

    #[test]
    fn the_certificate_of_an_authority_is_reported_with_the_remedy() {
        let reason = "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))";
        assert!(explained(reason).contains("CA:FALSE"), "{}", explained(reason));
        let namesake = "invalid peer certificate: Other(OtherError(UnsupportedSignatureAlgorithmForPublicKeyContext { \
                        signature_algorithm_id: [6, 8, 42], public_key_algorithm_id: [6, 9, 42] }))";
        assert!(explained(namesake).contains("authority that this machine trusts"), "{namesake}");
        assert_eq!(explained("connection reset"), "connection reset");
    }

    #[tokio::test]
    async fn a_missing_host_is_named() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}").parse().unwrap();
        let retries = crate::Retries::NONE;
        let client = crate::Client::builder(url).retries(retries).build().unwrap();
        let error = client.keys().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("no Gristmill host answers at http://127.0.0.1:{port}")
        );
        assert!(matches!(error, ClientError::Unreachable { is_refused: true, .. }));
    }
}
