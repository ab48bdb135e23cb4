//! How an endpoint answers HTTP requests, as options.

use clap::Args;
use gristmill_client::wire::management::{CorsInput, HttpInput, HttpSettings};

use super::parse::{bounded, given, help};

/// The settings that are given.
#[derive(Debug, Args)]
pub(super) struct HttpOptions {
    /// Lets everybody send HTTP requests, without a key [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    public: Option<bool>,
    /// An origin whose pages may send HTTP requests and read the answers, such as
    /// `https://example.com`, or * for all; may be repeated. Replaces all origins of an earlier
    /// deploy.
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    cors_origins: Vec<String>,
    /// A further host name of the endpoint at the address of `serve --http-listen`, such as
    /// www.example.com; needs a key of the operator; may be repeated. Replaces all host names of an
    /// earlier deploy.
    #[arg(long = "http-host", value_name = "NAME")]
    hosts: Vec<String>,
    #[arg(long, value_name = "MS", value_parser = bounded::<u64>(HttpSettings::QUEUE_TIMEOUT_MS),
        help = help("How long an HTTP request waits for a worker, in milliseconds",
            HttpSettings::QUEUE_TIMEOUT_MS))]
    queue_timeout: Option<u64>,
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(HttpSettings::REQUEST_MIB),
        help = help("Most MiB of the body of an HTTP request", HttpSettings::REQUEST_MIB))]
    max_request_mib: Option<u64>,
}

impl HttpOptions {
    /// The given fields; `None` without any.
    pub(super) fn document(self) -> Option<HttpInput> {
        let origins = given(self.cors_origins);
        let document = HttpInput {
            public: self.public,
            hosts: given(self.hosts),
            cors: origins
                .map(|origins| CorsInput { origins: Some(origins), ..CorsInput::default() }),
            queue_timeout_ms: self.queue_timeout,
            max_request_mib: self.max_request_mib,
        };
        (document != HttpInput::default()).then_some(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_given_are_not_sent() {
        let options = |cors_origins: &[&str]| HttpOptions {
            public: None,
            hosts: Vec::new(),
            cors_origins: cors_origins.iter().map(|&origin| origin.to_owned()).collect(),
            queue_timeout: None,
            max_request_mib: None,
        };
        assert_eq!(options(&[]).document(), None);
        let document = serde_json::to_value(options(&["*"]).document()).unwrap();
        assert_eq!(document, serde_json::json!({ "cors": { "origins": ["*"] } }));
    }
}
