//! Composes the bytes of a webhook when its job ends, so that they are written to the journal with
//! that end. Most parts are in memory; old inputs or chunks are read.

use std::io;

use gristmill_core::job::document::webhook_body;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, ChunkPage};
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::stream::OutputList;
use gristmill_core::limits::{STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX};
use gristmill_core::webhook::delivery::Delivery;
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::failure;
use crate::format::pages;
use crate::format::pages::Query;
use crate::format::payload::{InputBytes, Kind, PayloadKey};
use crate::shared::Shared;
use crate::state::batch::NewDelivery;
use crate::state::batch::WebhookToCompose;
use crate::state::batch::{Batch, JobWrite, RowWrite};
use crate::state::requests::DbRequest;

/// Composes the deliveries of a batch. Runs on the writer thread; may wait for the database.
pub(crate) fn compose(batch: &mut Batch, shared: &Shared) -> Result<(), Failure> {
    for write in &mut batch.jobs {
        let Some(mut call) = write.call.take() else { continue };
        let Some(input) = input(write, &call, shared)? else { continue };
        let output = match call.record.status {
            JobStatus::Completed => output(write, &call, shared)?,
            JobStatus::Failed if write.row.has_cut_error() => {
                write.output.as_ref().and_then(failure::partial)
            }
            JobStatus::Failed => write.output.clone(),
            JobStatus::InQueue
            | JobStatus::InProgress
            | JobStatus::Cancelled
            | JobStatus::TimedOut => None,
        };
        if let (Some(error), Some(stored)) = (&mut call.record.error, &write.output)
            && failure::is_cut(error)
            && let Some(whole) = failure::whole(error, stored)
        {
            *error = whole;
        }
        let body = webhook_body(&call.record, output.as_ref(), &input, &call.url);
        let url = call.url.to_string();
        let delivery = Delivery::pending(call.id, &call.record, url, body.len() as u64);
        let (delivery, body, charge) = match call.room {
            Ok(charge) => (delivery, Some(body.into()), Some(charge)),
            Err(why) => (delivery.refused(why), None, None),
        };
        let new = NewDelivery { owner: call.owner, delivery, body, charge };
        write.delivery = Some(Box::new(new));
    }
    Ok(())
}

fn input(
    write: &JobWrite,
    call: &WebhookToCompose,
    shared: &Shared,
) -> Result<Option<Json>, Failure> {
    if let RowWrite::Insert(new) = &write.kind {
        return Ok(Some(new.input.body.clone()));
    }
    let seq = write.fixed.seq;
    if let Some(input) = shared.payloads.get(PayloadKey::Input(seq)) {
        return Ok(Some(input.body));
    }
    match call.input.map(|location| shared.medium.read(location)).transpose() {
        Ok(Some(Some(bytes))) => return Ok(InputBytes::read_body(&bytes)),
        Ok(Some(None) | None) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Ok(Some(damaged_part(&error.to_string())));
        }
        Err(error) => return Err(error.into()),
    }
    // The journal did not have it, or it has moved to the database meanwhile.
    let read = |answer| DbRequest::Payloads { seqs: vec![seq], kind: Kind::Input, answer };
    let found = request(shared, read)?.pop().unwrap_or(Ok(None));
    Ok(match found {
        Ok(input) => input.map(|input| input.body),
        Err(details) => Some(damaged_part(&details)),
    })
}

/// Replaces a part of a webhook that is damaged on disk: null. The job has ended, and its receiver
/// waits for the webhook.
fn damaged_part(details: &str) -> Json {
    tracing::error!("a webhook is sent without a part of it: {details}");
    Json::null()
}

/// The output as clients read it: the list of its chunks, if the handler only streamed.
fn output(
    write: &JobWrite,
    call: &WebhookToCompose,
    shared: &Shared,
) -> Result<Option<Json>, Failure> {
    let chunk_count = call.record.chunk_count;
    if chunk_count == 0 || !write.output.as_ref().is_some_and(Json::is_null) {
        return Ok(write.output.clone());
    }
    let mut list = OutputList::default();
    while let Some(from) = list.next_needed(chunk_count) {
        list.add(chunks_from(write, call, from, shared)?);
    }
    Ok(list.finish())
}

/// Some chunks from `from` on, out of this batch, the journal or the database.
fn chunks_from(
    write: &JobWrite,
    call: &WebhookToCompose,
    from: u64,
    shared: &Shared,
) -> Result<ChunkPage, Failure> {
    if let Some(page) = write.pages.iter().find(|page| page.covers(from)) {
        return Ok(page.from(from));
    }
    let at = call.pages.partition_point(|(first, _)| *first <= from);
    if let Some((first, location)) = at.checked_sub(1).and_then(|at| call.pages.get(at)) {
        match shared.medium.read(*location) {
            Ok(bytes) => {
                if let Some(page) = bytes.and_then(|bytes| pages::Page::decode(*first, bytes)) {
                    return Ok(page.from(from));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Ok(damaged_chunks(from, call.record.chunk_count, &error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let query = Query {
        attempt: call.record.attempt,
        from,
        end: call.record.chunk_count,
        bytes_max: STREAM_PAGE_BYTES_MAX,
        count_max: STREAM_PAGE_CHUNKS_MAX,
    };
    let found =
        request(shared, |answer| DbRequest::Chunks { seq: write.fixed.seq, query, answer })?;
    Ok(found.unwrap_or_else(|details| damaged_chunks(from, call.record.chunk_count, &details)))
}

/// Replaces damaged chunks, and those behind them.
fn damaged_chunks(first: u64, end: u64, details: &str) -> ChunkPage {
    let chunk = Chunk { output: damaged_part(details), metrics: None, part: None };
    let count = usize::try_from(end.saturating_sub(first)).unwrap_or(1).min(STREAM_PAGE_CHUNKS_MAX);
    ChunkPage { first, chunks: vec![chunk; count], ..ChunkPage::default() }
}

/// Waits for an answer of the database.
fn request<T>(
    shared: &Shared,
    request: impl FnOnce(oneshot::Sender<T>) -> DbRequest,
) -> Result<T, Failure> {
    let (sender, receiver) = oneshot::channel();
    shared.index().push_request(request(sender));
    shared.wake_medium();
    receiver.blocking_recv().map_err(|_| Failure::Ended)
}
