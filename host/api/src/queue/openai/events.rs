//! The answer to a call that streams: the handler's chunks as server-sent events, closed by
//! `data: [DONE]`.
//!
//! The head is sent with the first chunk or the end, so that a failure before the first chunk has
//! the correct status code. A page of chunks is read once the connection has taken the previous
//! one.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use gristmill_core::job::record::StreamPosition;
use gristmill_core::jobs::stream::Position;

use super::answer::{respond, status};
use super::error::body as error_body;
use super::event_writer::EventWriter;
use super::job::{OwnedJob, WAIT};
use crate::answer::error::{ApiError, ErrorCode};
use crate::event_stream::{COMMENT_INTERVAL, response};
use crate::queue::waiting::HeldPage;

/// Waits for the first chunk and begins with it. If the job ends without a chunk, the handler's
/// output is the only event. An error object as the first output is the whole answer.
pub(crate) async fn answer(mut job: OwnedJob) -> Result<Response, ApiError> {
    let first = job.chunks(Position::From(0), WAIT).await?;
    if let Some(chunk) = first.page.chunks.first() {
        let status = status(&job, &chunk.output).await?;
        if status != StatusCode::OK {
            job.disarm(); // it has said all, and comes to its end by itself
            return Ok(respond(status, &chunk.output));
        }
        return Ok(response(Body::from_stream(pages(job, first))));
    }
    job.check_completed(first.status, first.error.clone()).await?;
    let returned = job.returned().await?;
    let status = status(&job, &returned).await?;
    if status != StatusCode::OK {
        return Ok(respond(status, &returned));
    }
    let bytes = returned.as_bytes().len();
    let write = move || {
        let mut writer = EventWriter::default();
        if !returned.is_null() {
            writer.event(returned.as_str());
        }
        writer.close();
        writer.take()
    };
    let text = job.work_on(bytes, write).await?;
    Ok(response(Body::from(text)))
}

/// All pages from `first` on. If it is dropped before its end, the job is cancelled.
fn pages(job: OwnedJob, first: HeldPage) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    let writer = EventWriter::default();
    let next = first.page.end();
    let reader = Reader { job, writer, page: Some(first), next, is_over: false };
    stream::unfold(reader, |mut reader| async {
        let text = reader.read().await?;
        Some((Ok(text), reader))
    })
}

struct Reader {
    job: OwnedJob,
    writer: EventWriter,
    /// A page that was read and not shown.
    page: Option<HeldPage>,
    /// The position after the pages that were read.
    next: StreamPosition,
    is_over: bool,
}

impl Reader {
    /// The next text; `None` after the last one.
    async fn read(&mut self) -> Option<Bytes> {
        while !self.is_over {
            if let Err(error) = self.advance().await {
                self.writer.event(&error_body(&error));
                self.is_over = true;
            }
            let text = self.writer.take();
            if !text.is_empty() {
                return Some(text);
            }
        }
        None
    }

    /// Writes the next page, and after the last one the closing event.
    async fn advance(&mut self) -> Result<(), ApiError> {
        let page = match self.page.take() {
            Some(page) => page,
            None => self.job.chunks(Position::At(self.next), COMMENT_INTERVAL).await?,
        };
        if page.is_restart && !self.job.is_abandoned() {
            // Clients of this interface cannot discard events that they have received.
            let sentence = "the job was started again after a part of its output had been sent";
            return Err(ApiError::new(ErrorCode::Unavailable, sentence));
        }
        self.next = page.page.end();
        let (status, error) = (page.status, page.error.clone());
        let is_silent = page.page.chunks.is_empty();
        let (bytes, mut writer) = (page.page.text_bytes(), std::mem::take(&mut self.writer));
        let write = move || {
            page.page.chunks.iter().for_each(|chunk| writer.chunk(chunk));
            writer
        };
        self.writer = self.job.work_on(bytes, write).await?;
        if status.is_final() || (is_silent && self.job.is_abandoned()) {
            self.job.check_completed(status, error).await?;
            self.writer.close();
            self.is_over = true;
        } else if is_silent {
            self.writer.comment();
        }
        Ok(())
    }
}
