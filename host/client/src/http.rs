//! Requests to handlers of HTTP.

use bytes::Bytes;
use gristmill_wire::id::EndpointId;
use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use url::Url;

use crate::client::Client;
use crate::error::ClientError;

/// Marks the answers that are the host's own.
const ERROR: HeaderName = HeaderName::from_static("x-gristmill-error");

/// The host's own answers that are about the handler, not about the caller.
const OF_HANDLER: [&str; 3] = ["handler_failed", "invalid_answer", "handler_timed_out"];

/// What came of a request to a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAnswer {
    /// The handler has answered, with any status.
    Handler {
        /// Its status.
        status: StatusCode,
        /// Its headers.
        headers: HeaderMap,
        /// Its whole body.
        body: Bytes,
    },
    /// The handler ran, and gave no answer.
    Failed {
        /// Such as `handler_failed`.
        code: String,
        /// One sentence that says why.
        error: String,
    },
}

/// The body of the host's own answers.
#[derive(Deserialize)]
struct Body {
    error: String,
}

impl Client {
    /// Sends a request to the handler of an endpoint. `path` begins with `/` and may have a query;
    /// its parts `.` and `..` are resolved, as in each URL.
    ///
    /// # Errors
    /// When the host refuses the request before the handler runs, or cannot be reached.
    pub async fn http(
        &self,
        endpoint: &EndpointId,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, ClientError> {
        let base = self.http_url(endpoint);
        let url = Url::parse(&format!("{}{path}", base.as_str().trim_end_matches('/')));
        let unsendable = |error| ClientError::Unsendable(format!("`{path}` is no path: {error}"));
        let request = self.request(method.clone(), url.map_err(unsendable)?);
        let response = self.answer(request.headers(headers.clone()).body(body)).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let code = headers.get(&ERROR).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = match code {
            // A refusal of the caller.
            Some(code) if !OF_HANDLER.contains(&&*code) => {
                return Err(self.refusal(response).await);
            }
            Some(code) => {
                let body = self.read(response).await?;
                let read = serde_json::from_slice::<Body>(&body);
                let error = read.map_or_else(|_| code.clone(), |body| body.error);
                return Ok(HttpAnswer::Failed { code, error });
            }
            None => self.read(response).await?,
        };
        Ok(HttpAnswer::Handler { status, headers, body })
    }
}
