//! Why a call failed, in words for the user.

use std::error::Error;
use std::fmt;
use std::io;

use serde::Deserialize;
use url::Url;

use super::is_loopback;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// There was no connection; the text says why.
    Unreachable(String),
    /// The host refused the call.
    Refused(Refusal),
    /// The connection broke, or paused too long.
    Interrupted(String),
    /// The host's answer cannot be parsed.
    Garbled(String),
}

/// The host's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The host's sentence.
    sentence: String,
    /// Advice, if there is any.
    hint: Option<&'static str>,
}

#[derive(Deserialize)]
struct Body {
    error: String,
}

impl ClientError {
    /// The refusal in a non-2xx answer.
    pub(super) fn refused(status: u16, body: &[u8], has_key: bool, base: &Url) -> Self {
        let (sentence, hint) = match (status, serde_json::from_slice::<Body>(body)) {
            // The host's own sentence is for HTTP clients.
            (401, Ok(_)) if !has_key && is_loopback(base) => (
                "the host wants an API key".to_owned(),
                Some(
                    "set GRISTMILL_API_KEY, or name the host's data directory with --data-dir so \
                     that its admin.key is found",
                ),
            ),
            (401, Ok(_)) if !has_key => {
                ("the host wants an API key".to_owned(), Some("set GRISTMILL_API_KEY"))
            }
            (_, Ok(body)) => (body.error, None),
            (_, Err(_)) => (
                format!("HTTP status {status} without an explanation"),
                Some("is a Gristmill host behind this URL?"),
            ),
        };
        Self::Refused(Refusal { status, sentence, hint })
    }

    /// A failure below HTTP.
    #[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
    pub(super) fn transport(error: reqwest::Error, base: &Url) -> Self {
        let base = base.as_str().trim_end_matches('/');
        if error.is_connect() {
            let is_refused = causes(&error).any(|cause| {
                cause
                    .downcast_ref::<io::Error>()
                    .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            });
            return Self::Unreachable(if is_refused {
                format!("no Gristmill host answers at {base}; start one with `gristmill serve`")
            } else {
                let reason = innermost(&error);
                let is_untrusted = reason.contains("UnknownIssuer");
                let hint = if is_untrusted { "; name its authority with --ca-cert" } else { "" };
                format!("cannot connect to {base}: {reason}{hint}")
            });
        }
        if error.is_timeout() {
            return Self::Interrupted(format!("{base} did not answer in time"));
        }
        Self::Interrupted(format!("the connection to {base} broke: {}", innermost(&error)))
    }

    /// Whether the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.status == 404,
            Self::Unreachable(_) | Self::Interrupted(_) | Self::Garbled(_) => false,
        }
    }

    /// Whether the same call may succeed after a short time.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502..=504),
            Self::Unreachable(_) | Self::Interrupted(_) => true,
            Self::Garbled(_) => false,
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

fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text) | Self::Interrupted(text) | Self::Garbled(text) => {
                f.write_str(text)
            }
            Self::Refused(Refusal { sentence, hint, .. }) => match hint {
                Some(hint) => write!(f, "{sentence}; {hint}"),
                None => f.write_str(sentence),
            },
        }
    }
}

impl Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_sentence_is_shown() {
        let base = "http://127.0.0.1:8080/".parse().unwrap();
        let body = br#"{"error":"endpoint `x` not found","code":"not_found"}"#;
        let error = ClientError::refused(404, body, true, &base);
        assert_eq!(error.to_string(), "endpoint `x` not found");
        assert!(error.is_not_found() && !error.is_passing());

        let error = ClientError::refused(502, b"<html>", true, &base);
        assert!(error.to_string().starts_with("HTTP status 502 without"), "{error}");
        assert!(error.is_passing());

        let body = br#"{"error":"no API key: send the header","code":"unauthorized"}"#;
        let refused = |has_key, base| ClientError::refused(401, body, has_key, base).to_string();
        assert_eq!(refused(true, &base), "no API key: send the header");
        assert!(refused(false, &base).contains("--data-dir"));
        let remote = "https://example.com".parse().unwrap();
        assert_eq!(refused(false, &remote), "the host wants an API key; set GRISTMILL_API_KEY");
    }

    #[tokio::test]
    async fn a_missing_host_is_named() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}").parse().unwrap();
        let client = crate::client::Client::new(url, None, None).unwrap();
        let error = client.all(crate::client::Kind::Keys, &[]).await.unwrap_err();
        let expected = format!(
            "no Gristmill host answers at http://127.0.0.1:{port}; start one with `gristmill serve`"
        );
        assert_eq!(error.to_string(), expected);
    }
}
