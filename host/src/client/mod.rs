//! A client of a Gristmill host's two HTTP APIs, for the command line.
//!
//! Documents are kept as the text that the host sent ([`Answer`]), so that `--json` shows exactly
//! that, and parsed into types where a command needs a field.
//!
//! **Bounds.** An answer, or all pages of a list, is read up to [`ANSWER_BYTES_MAX`], a server-sent
//! event up to [`EVENT_BYTES_MAX`](events::EVENT_BYTES_MAX); every call has a time limit. Redirects
//! are not followed, since they would send the key elsewhere.

mod backup;
mod error;
mod events;
mod management;
mod queue;

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderValue, LINK};
use reqwest::{Certificate, Method, RequestBuilder, Response, redirect};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use url::{Host, Url};

pub(crate) use backup::BackupStream;
pub(crate) use error::ClientError;
pub(crate) use events::EventStream;
pub(crate) use management::{
    BillingRecord, Deployed, EndpointDocument, HandlerDocument, KeyDocument, Kind, NewKey,
    NewRegistryAuth, NewVolume, ProducerDocument, RegistryAuthDocument, RetentionDocument,
    ReuseDocument, RotatedSecrets, TemplateDocument, Upload, VolumeDocument,
};
pub(crate) use queue::{
    HealthReport, JobDocument, RequestList, RequestSummary, Submission, SubmissionPolicy, Timeline,
    TimelineEvent, status,
};

/// Bytes that each page of a list counts besides its text. All pages together may have
/// [`ANSWER_BYTES_MAX`].
const PAGE_OVERHEAD_BYTES: usize = 1 << 10;

/// Largest answer that is read, in bytes (64 MiB): three times the largest output.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Most time for making a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Most time for an ordinary call.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);

/// The authorities whose certificates a client trusts.
pub(crate) struct Trusted(Vec<Certificate>);

impl Trusted {
    /// The authorities in a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let pem = fs::read(file).with_context(|| format!("cannot read {name}"))?;
        let found = Certificate::from_pem_bundle(&pem);
        let found = found.with_context(|| format!("{name} is not PEM"))?;
        ensure!(!found.is_empty(), "{name} holds no certificate");
        Ok(Self(found))
    }
}

/// A host, and the key for it.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the host at `base`, which sends `key` with every call. Without `trusted` it
    /// trusts the system's authorities.
    ///
    /// # Errors
    /// When the key is invalid in a header, or TLS cannot be set up.
    pub(crate) fn new(
        base: Url,
        key: Option<&str>,
        trusted: Option<Trusted>,
    ) -> anyhow::Result<Self> {
        let authorization = key
            .map(|key| {
                let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
                value.set_sensitive(true);
                anyhow::Ok(value)
            })
            .transpose()
            .context("cannot use the API key: it has characters that no key has")?;
        let builder = reqwest::Client::builder()
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIME_MAX)
            .redirect(redirect::Policy::none());
        // A proxy cannot reach this machine's loopback address.
        let builder = if is_loopback(&base) { builder.no_proxy() } else { builder };
        let builder = match trusted {
            Some(Trusted(authorities)) => builder.tls_certs_only(authorities),
            None => builder,
        };
        let http = builder.build().context("cannot set up HTTP")?;
        Ok(Self { http, base, authorization })
    }

    /// Whether calls have a key.
    pub(crate) fn has_key(&self) -> bool {
        self.authorization.is_some()
    }

    /// The URL of a path below the host's.
    pub(crate) fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Only schemes such as `data:` have no path; the command line accepts only http and https.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url).timeout(CALL_TIME_MAX);
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        }
    }

    /// `GET` of a path.
    async fn get(&self, segments: &[&str]) -> Result<Answer, ClientError> {
        self.send(self.request(Method::GET, self.url(segments))).await
    }

    /// A call with a JSON body.
    async fn send_json(
        &self,
        method: Method,
        segments: &[&str],
        body: &(impl Serialize + Sync),
    ) -> Result<Answer, ClientError> {
        self.send(self.request(method, self.url(segments)).json(body)).await
    }

    /// All pages of a list, as one array.
    async fn list(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Answer, ClientError> {
        let list = self.url(segments);
        let mut url = with_query(list.clone(), query);
        let mut things: Vec<Box<RawValue>> = vec![];
        let mut bytes = 0;
        loop {
            let response = self.open(self.request(Method::GET, url.clone())).await?;
            let next = response.headers().get(LINK).and_then(|link| next_page(&list, link));
            let page = self.read(response).await?;
            // An empty page counts, too: a server may send pages for ever.
            bytes += page.len() + PAGE_OVERHEAD_BYTES;
            if bytes > ANSWER_BYTES_MAX {
                return Err(ClientError::Garbled("the list is larger than 64 MiB".to_owned()));
            }
            things.extend(Answer(page).read::<Vec<_>>()?);
            let Some(next) = next.filter(|next| *next != url) else { break };
            url = next;
        }
        let text = serde_json::to_vec(&things);
        Ok(Answer(text.map_err(|error| ClientError::Garbled(error.to_string()))?.into()))
    }

    async fn post(&self, segments: &[&str]) -> Result<Answer, ClientError> {
        self.send(self.request(Method::POST, self.url(segments))).await
    }

    /// Sends a call and reads its answer.
    async fn send(&self, request: RequestBuilder) -> Result<Answer, ClientError> {
        let response = self.open(request).await?;
        self.read(response).await.map(Answer)
    }

    /// Sends a call; the body of its answer is read later.
    async fn open(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.transport(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.read(response).await.unwrap_or_default();
        Err(ClientError::refused(status.as_u16(), &body, self.has_key(), &self.base))
    }

    async fn read(&self, mut response: Response) -> Result<Bytes, ClientError> {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.transport(error))? {
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(ClientError::Garbled("the answer is larger than 64 MiB".to_owned()));
            }
            body.extend_from_slice(&part);
        }
        Ok(body.into())
    }

    fn transport(&self, error: reqwest::Error) -> ClientError {
        ClientError::transport(error, &self.base)
    }
}

fn with_query(mut url: Url, query: &[(&str, &str)]) -> Url {
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// The page that a `Link` names, at the same host and path: only its query is used.
fn next_page(list: &Url, link: &HeaderValue) -> Option<Url> {
    let (target, _) = link.to_str().ok()?.strip_prefix('<')?.split_once(">; rel=\"next\"")?;
    let (_, query) = target.split_once('?')?;
    let mut next = list.clone();
    next.set_query(Some(query));
    Some(next)
}

/// The host's answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer(Bytes);

impl Answer {
    /// The document as the host sent it.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Parses the document into a type.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.0).map_err(|error| {
            ClientError::Garbled(format!("this command cannot read the answer: {error}"))
        })
    }
}

/// Whether the URL names this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(base: &str) -> Client {
        Client::new(base.parse().unwrap(), None, None).unwrap()
    }

    #[test]
    fn urls_are_built_below_the_base() {
        let cases = [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v2/echo/run"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v2/echo/run"),
            ("https://example.com/mill", "https://example.com/mill/v2/echo/run"),
            ("https://example.com/mill/", "https://example.com/mill/v2/echo/run"),
        ];
        for (base, expected) in cases {
            assert_eq!(client(base).url(&["v2", "echo", "run"]).as_str(), expected);
        }
        let odd = client("http://h").url(&["v1", "handlers", "a/b?c#d:latest"]);
        assert_eq!(odd.as_str(), "http://h/v1/handlers/a%2Fb%3Fc%23d:latest");
    }

    #[test]
    fn the_next_page_is_below_the_same_url() {
        let list: Url = "https://h/mill/v1/keys?limit=9".parse().unwrap();
        let next = |link: &'static str| next_page(&list, &HeaderValue::from_static(link));
        let page = next("</v1/keys?limit=2&cursor=YQ>; rel=\"next\"").unwrap();
        assert_eq!(page.as_str(), "https://h/mill/v1/keys?limit=2&cursor=YQ");
        let elsewhere = next("<https://elsewhere/keys?cursor=YQ>; rel=\"next\"").unwrap();
        assert_eq!(elsewhere.as_str(), "https://h/mill/v1/keys?cursor=YQ", "the key stays here");
        assert_eq!(next("</v1/keys>; rel=\"prev\""), None);
    }

    #[test]
    fn this_machine_is_distinguished_from_others() {
        for url in
            ["http://127.0.0.1:1", "http://localhost", "http://[::1]:8080", "http://127.9.9.9"]
        {
            assert!(is_loopback(&url.parse().unwrap()), "{url}");
        }
        for url in ["http://10.0.0.1", "http://localhost.example.com", "https://example.com"] {
            assert!(!is_loopback(&url.parse().unwrap()), "{url}");
        }
    }

    #[test]
    fn the_key_is_not_in_debug_output() {
        let client = Client::new("http://h".parse().unwrap(), Some("gm_a_secret"), None).unwrap();
        assert!(client.has_key());
        assert!(!format!("{client:?}").contains("secret"));
        assert!(Client::new("http://h".parse().unwrap(), Some("a\nb"), None).is_err());
    }
}
