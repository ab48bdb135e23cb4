//! A client of Gristmill's two HTTP APIs: it submits, follows and controls jobs, and manages
//! endpoints, templates, handlers, keys and volumes.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use gristmill_client::wire::queue::Submission;
//! use gristmill_client::Client;
//! use serde_json::value::RawValue;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("http://127.0.0.1:8080".parse()?).key("gm_KEY").build()?;
//! let input = RawValue::from_string(r#"{"text":"to be or not to be"}"#.to_owned())?;
//! let endpoint = "count".parse()?;
//! // With a key of its own the submission can be repeated: the host makes one job of it.
//! let job = client.run(&endpoint, &Submission::new(&input), Some("order-17")).await?.read()?;
//! let document = client.wait(&endpoint, &job.id, Duration::from_secs(30)).await?.read()?;
//! println!("{}: {:?}", document.status, document.output);
//! # Ok(())
//! # }
//! ```
//!
//! The [types](wire) of requests and answers are those of the host. An [`Answer`] has the host's
//! text too, byte for byte.
//!
//! **Bounds.** An answer, or all pages of a list, is read up to [`ANSWER_BYTES_MAX`], a server-sent
//! event up to [`EVENT_BYTES_MAX`]; every call has a time limit. Redirects are not followed, since
//! they would send the key elsewhere.
//!
//! **Repetition.** A call is repeated only if the repetition cannot take effect twice
//! ([`Retries`]).

mod answer;
mod client;
mod download;
mod error;
mod events;
mod http;
mod job_stream;
mod log_stream;
mod management;
mod queue;
mod reconnect;
mod retries;
mod sse;
mod volume_files;

pub use answer::Answer;
pub use client::{ANSWER_BYTES_MAX, BuildError, Builder, Client, is_loopback};
pub use download::Download;
pub use error::{ClientError, Refusal};
pub use events::{EVENT_BYTES_MAX, EventStream};
pub use http::HttpAnswer;
pub use job_stream::{Chunk, JobStream, StreamUpdate};
pub use log_stream::{LogLineText, LogStream};
pub use management::{
    BillingQuery, Deployed, DeployedEndpoint, JobFilter, LogQuery, TemplateFilter,
};
pub use queue::RequestFilter;
pub use retries::Retries;
pub use sse::{Event, EventParser};

/// The types of requests and answers.
pub use gristmill_wire as wire;

/// The file in a host's data directory with the admin key: the host writes it, and programs on the
/// same machine read it.
pub const ADMIN_KEY_FILE: &str = "admin.key";
