//! The connection to one host: URLs, keys, time limits, repetition, and the pages of lists.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderValue, LINK, RETRY_AFTER};
use reqwest::{Certificate, Method, RequestBuilder, Response, redirect};
use serde::Serialize;
use serde_json::value::RawValue;
use url::{Host, Url};

use crate::{Answer, ClientError, Retries};

/// The characters that cannot stand in a segment of a path.
const IN_SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// Bytes that each page of a list counts besides its text. All pages together may have
/// [`ANSWER_BYTES_MAX`].
const PAGE_OVERHEAD_BYTES: usize = 1 << 10;

/// Largest answer that is read, in bytes (64 MiB): three times the largest output.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Most time for making a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Most time for an ordinary call, besides the time for which the call asks the host to wait.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(60);

/// The settings of a [`Client`].
#[derive(Clone)]
pub struct Builder {
    base: Url,
    key: Option<String>,
    authorities: Option<Vec<u8>>,
    retries: Retries,
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The key cannot be a header.
    #[error("cannot use the API key: it has characters that no key has")]
    Key,
    /// The authorities cannot be read.
    #[error("the certificates of the authorities are not PEM: {0}")]
    Authorities(reqwest::Error),
    /// There are none.
    #[error("there is no certificate among the authorities")]
    NoAuthority,
    /// TLS cannot be set up.
    #[error("cannot set up HTTP: {0}")]
    Http(reqwest::Error),
}

impl Builder {
    /// The key that is sent with every call; without it, none is.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The certificates (PEM) of the authorities to trust instead of the system's.
    #[must_use]
    pub fn authorities(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { authorities: Some(pem.into()), ..self }
    }

    /// How often a call is repeated.
    #[must_use]
    pub fn retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// The client. It makes its connections with the first calls.
    ///
    /// # Errors
    /// When the key is invalid in a header, or TLS cannot be set up.
    pub fn build(self) -> Result<Client, BuildError> {
        let Self { base, key, authorities, retries } = self;
        let authorization = key
            .map(|key| {
                let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
                value.set_sensitive(true);
                Ok::<_, reqwest::header::InvalidHeaderValue>(value)
            })
            .transpose()
            .map_err(|_| BuildError::Key)?;
        let builder = reqwest::Client::builder()
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIME_MAX)
            .redirect(redirect::Policy::none());
        // A proxy cannot reach this machine's loopback address.
        let builder = if is_loopback(&base) { builder.no_proxy() } else { builder };
        let builder = match authorities {
            Some(pem) => {
                let found = Certificate::from_pem_bundle(&pem).map_err(BuildError::Authorities)?;
                if found.is_empty() {
                    return Err(BuildError::NoAuthority);
                }
                builder.tls_certs_only(found)
            }
            None => builder,
        };
        let http = builder.build().map_err(BuildError::Http)?;
        Ok(Client { http, base, authorization, retries })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// A host, and the key for it. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
    retries: Retries,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Client {
    /// Begins a client of the host at this URL, `http` or `https`. A path in it is kept: the APIs
    /// are below it.
    pub fn builder(base: Url) -> Builder {
        Builder { base, key: None, authorities: None, retries: Retries::default() }
    }

    /// The host's URL.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Whether calls have a key.
    pub fn has_key(&self) -> bool {
        self.authorization.is_some()
    }

    /// The URL of a path below the host's.
    pub(crate) fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        let mut path = url.path().trim_end_matches('/').to_owned();
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(&without_dots(segment), IN_SEGMENT));
        }
        url.set_path(&path);
        url
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url).timeout(CALL_TIME_MAX);
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        }
    }

    /// `GET` of a path.
    pub(crate) async fn get<T>(
        &self,
        segments: &[&str],
        query: &[(&str, String)],
    ) -> Result<Answer<T>, ClientError> {
        let url = with_query(self.url(segments), query);
        self.send(self.request(Method::GET, url), true).await
    }

    /// A call with a JSON body.
    pub(crate) async fn send_json<T>(
        &self,
        method: Method,
        segments: &[&str],
        body: &(impl Serialize + Sync),
    ) -> Result<Answer<T>, ClientError> {
        self.send(self.request(method, self.url(segments)).json(body), false).await
    }

    /// `POST` of a path, without a body.
    pub(crate) async fn post<T>(&self, segments: &[&str]) -> Result<Answer<T>, ClientError> {
        self.send(self.request(Method::POST, self.url(segments)), false).await
    }

    /// `DELETE` of a path.
    pub(crate) async fn delete(&self, segments: &[&str]) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, self.url(segments));
        self.send::<()>(request, false).await.map(drop)
    }

    /// All pages of a list, as one array.
    pub(crate) async fn list<T>(
        &self,
        segments: &[&str],
        query: &[(&str, String)],
    ) -> Result<Answer<Vec<T>>, ClientError> {
        let list = self.url(segments);
        let mut url = with_query(list.clone(), query);
        let mut things: Vec<Box<RawValue>> = vec![];
        let mut bytes = 0;
        loop {
            // The request has a limit of its own, for its whole answer.
            let request = self.request(Method::GET, url.clone());
            let response = self.open(request, true, Duration::MAX).await?;
            let next = response.headers().get(LINK).and_then(|link| next_page(&list, link));
            let page = self.read(response).await?;
            // An empty page counts, too: a server may send pages for ever.
            bytes += page.len() + PAGE_OVERHEAD_BYTES;
            if bytes > ANSWER_BYTES_MAX {
                return Err(ClientError::Garbled("the list is larger than 64 MiB".to_owned()));
            }
            things.extend(Answer::<Vec<_>>::new(page).read()?);
            let Some(next) = next.filter(|next| *next != url) else { break };
            url = next;
        }
        let text = serde_json::to_vec(&things);
        let text = text.map_err(|error| ClientError::Garbled(error.to_string()))?;
        Ok(Answer::new(text.into()))
    }

    /// Sends a call and reads its answer. `is_repeatable`: a second call has the same effect as
    /// one.
    pub(crate) async fn send<T>(
        &self,
        request: RequestBuilder,
        is_repeatable: bool,
    ) -> Result<Answer<T>, ClientError> {
        let mut repetition = 0;
        loop {
            // A body that is a stream can be sent only once.
            let again = request.try_clone();
            let Some(this) = again else { return self.send_once(request).await };
            let error = match self.send_once(this).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.pause(&mut repetition, error, is_repeatable).await?;
        }
    }

    async fn send_once<T>(&self, request: RequestBuilder) -> Result<Answer<T>, ClientError> {
        let response = self.open_once(request).await?;
        let ignored = response.headers().get("x-ignored-policy");
        let ignored = ignored.and_then(|names| names.to_str().ok()).map(str::to_owned);
        let text = self.read(response).await?;
        Ok(Answer::new(text).with_ignored_policy(ignored))
    }

    /// Sends a call whose answer must begin within `patience`; its body is read later.
    pub(crate) async fn open(
        &self,
        request: RequestBuilder,
        is_repeatable: bool,
        patience: Duration,
    ) -> Result<Response, ClientError> {
        let open = async |request| {
            let opened = tokio::time::timeout(patience, self.open_once(request)).await;
            opened.unwrap_or_else(|_| {
                let seconds = patience.as_secs();
                Err(ClientError::Interrupted(format!("no answer came within {seconds} s")))
            })
        };
        let mut repetition = 0;
        loop {
            let Some(this) = request.try_clone() else { return open(request).await };
            let error = match open(this).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            self.pause(&mut repetition, error, is_repeatable).await?;
        }
    }

    /// Waits before the next repetition.
    ///
    /// # Errors
    /// `error`, when there is to be none.
    async fn pause(
        &self,
        repetition: &mut u32,
        error: ClientError,
        is_repeatable: bool,
    ) -> Result<(), ClientError> {
        let wait = self.retries.wait_before(*repetition, &error, is_repeatable);
        let Some(wait) = wait else { return Err(error) };
        *repetition += 1;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    async fn open_once(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = self.answer(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    /// Sends a call once. Any status is an answer.
    pub(crate) async fn answer(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        request.send().await.map_err(|error| self.transport(error))
    }

    /// The refusal in an answer.
    pub(crate) async fn refusal(&self, response: Response) -> ClientError {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).cloned();
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        let body = self.read(response).await.unwrap_or_default();
        ClientError::refused(status.as_u16(), &body, retry_after, self.has_key(), &self.base)
    }

    pub(crate) async fn read(&self, mut response: Response) -> Result<Bytes, ClientError> {
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

/// `Url` would resolve the names `.` and `..`, so that a call named another object. No object has
/// such a name, and none is found with its dots encoded twice.
fn without_dots(segment: &str) -> Cow<'_, str> {
    match segment {
        "." | ".." => segment.replace('.', "%2E").into(),
        _ => segment.into(),
    }
}

pub(crate) fn with_query(mut url: Url, query: &[(&str, String)]) -> Url {
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

/// Whether the URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
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
        Client::builder(base.parse().unwrap()).build().unwrap()
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
        // `Url` alone drops them.
        let lines = client("http://h").url(&["a\nb\tc\rd", "..", ".", "%0A\\", ""]);
        assert_eq!(lines.as_str(), "http://h/a%0Ab%09c%0Dd/%252E%252E/%252E/%250A%5C/");
    }

    /// A process that hangs accepts connections all the same.
    #[tokio::test]
    async fn an_answer_that_does_not_begin_is_not_awaited_for_ever() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(&format!("http://{}", silent.local_addr().unwrap()));
        let request = client.request(Method::GET, client.url(&["v1", "events"]));
        let opened = client.open(request, false, Duration::from_millis(200)).await;
        assert!(matches!(opened, Err(ClientError::Interrupted(_))), "{opened:?}");
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
        let builder = Client::builder("http://h".parse().unwrap());
        let client = builder.clone().key("gm_a_secret").build().unwrap();
        assert!(client.has_key());
        assert!(!format!("{client:?} {builder:?}").contains("secret"));
        assert!(matches!(builder.clone().key("a\nb").build(), Err(BuildError::Key)));
        assert!(builder.authorities("no certificate").build().is_err());
    }
}
