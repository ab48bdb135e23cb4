//! `gristmill run --request`: one HTTP request on this machine.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use gristmill_commands::arguments::InputSource;
use gristmill_commands::output;
use gristmill_core::http_call::HttpBody;
use http::{HeaderName, HeaderValue, Response};
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;

use super::document::RequestDocument;
use super::usage::described;
use crate::local::{
    Bench, GivenRequest, LocalRequest, RequestTarget, TerminalSink, WholeAnswer, parse_header,
};

/// The request for a handler of HTTP.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(super) struct RequestOptions {
    /// The method and the path of a request, such as 'POST /items?page=2'; a path alone is a GET
    /// [default, for a handler of HTTP: GET /].
    #[arg(long, value_name = "METHOD PATH", conflicts_with = "input")]
    request: Option<RequestTarget>,
    /// A header of the request; may be repeated.
    #[arg(
        long = "header",
        short = 'H',
        value_name = "NAME: VALUE",
        value_parser = header,
        conflicts_with = "input"
    )]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The body of the request: as text, in a file (@FILE), or on stdin (-).
    #[arg(long, value_name = "TEXT|@FILE|-", requires = "request", conflicts_with = "input")]
    body: Option<InputSource>,
}

fn header(text: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let Some((name, value)) = text.split_once(':') else {
        bail!("write a header as 'NAME: VALUE'");
    };
    parse_header(name, value.trim())
}

impl RequestOptions {
    /// The request; `None` when there is no option for one.
    ///
    /// # Errors
    /// When its body cannot be read.
    pub(super) fn read(&self) -> anyhow::Result<Option<GivenRequest>> {
        if self.request.is_none() && self.headers.is_empty() {
            return Ok(None);
        }
        let body = self.body.as_ref().map(InputSource::bytes).transpose()?;
        let mut given = GivenRequest {
            target: self.request.clone().unwrap_or_default(),
            body: body.unwrap_or_default().into(),
            ..GivenRequest::default()
        };
        given.headers.extend(self.headers.iter().cloned());
        Ok(Some(given))
    }
}

/// Has one request answered, and shows the answer while it comes.
pub(super) async fn perform(
    bench: &Bench,
    given: Option<GivenRequest>,
    sink: Arc<TerminalSink>,
    as_json: bool,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let request = given.unwrap_or_default().build();
    let request = LocalRequest { request, env: BTreeMap::new(), timeout_ms: None };
    if as_json {
        let served = bench.serve(request, sink.clone(), stop, WholeAnswer::read).await;
        let usage = served.report.usage;
        let whole = served.whole();
        let code = if whole.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        let document = RequestDocument::new(whole, &usage, sink.stack());
        output::result(serde_json::to_string(&document)?)?;
        return Ok(code);
    }
    let mut unwritten = None;
    let client = async |answer| {
        let shown = show(answer, &mut unwritten).await;
        if unwritten.is_some() {
            // As a client that leaves.
            stop.cancel();
        }
        shown
    };
    let served = bench.serve(request, sink, stop.clone(), client).await;
    if let Some(error) = unwritten {
        return Err(error.into());
    }
    output::note(described(&served.report.usage, None));
    match served.whole() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) => bail!("the request has no whole answer: {why}"),
    }
}

/// Shows an answer piece by piece.
async fn show(answer: Response<HttpBody>, unwritten: &mut Option<io::Error>) -> io::Result<()> {
    let (head, mut body) = answer.into_parts();
    output::note(format_args!("HTTP {}", head.status));
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        output::note(format_args!("{name}: {value}"));
    }
    output::note("");
    let mut is_line = true;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        if let Err(error) = output::piece(&piece) {
            *unwritten = Some(error);
            return Ok(());
        }
        is_line = piece.last().map_or(is_line, |last| *last == b'\n');
    }
    if !is_line && output::is_terminal() {
        output::note("");
    }
    Ok(())
}
