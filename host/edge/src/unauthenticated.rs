//! What a call without a valid key, and a connection that has shown none, hold: they are counted in
//! the [account](super::addresses) of their address.

use std::future::poll_fn;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::Response;
use hyper::body::Body;
use hyper::header::HeaderMap;
use parking_lot::Mutex;

use crate::activity::Activity;
use crate::addresses::{Account, CONNECTION_BYTES, Charge, NoRoom};
use crate::call_origin::CallOrigin;
use crate::response_budget::is_large;

/// About the memory of a field beside its text.
const FIELD_BYTES: usize = 128;

/// About the memory of a call beside its head and the body of its answer. On HTTP/2, where the task
/// and the stream are a part of it, 2.1 to 2.4 KiB were measured, and 3.6 KiB while the answer
/// waits for the rest of the call's body.
const CALL_BYTES: usize = 4 << 10;

/// Waits for the answer to a call, and counts the call unless it has had a valid key. The check of
/// a key waits for nothing, so that a call with a key is known after the first poll and is never
/// counted; on a host that stands by, the active host checks keys, and the first calls of a
/// connection count meanwhile. `head_bytes` is only read while the connection has shown no key.
///
/// # Errors
/// [`NoRoom`]: the call was dropped.
pub(super) async fn counted<B: Body>(
    mut answering: BoxFuture<'static, Response<B>>,
    account: &Arc<Account>,
    origin: &CallOrigin,
    head_bytes: usize,
) -> Result<(Response<B>, Option<Charge>), NoRoom> {
    let mut charge: Option<Charge> = None;
    let mut is_known = false;
    let answer = poll_fn(|context| {
        let answer = answering.as_mut().poll(context);
        if let Some(owner) = origin.owner() {
            if !std::mem::replace(&mut is_known, true) {
                account.show_key(owner);
            }
            if let Some(charge) = charge.take() {
                charge.cancel();
            }
        } else if answer.is_pending() && charge.is_none() && !account.has_key() {
            charge = Some(account.charge(CALL_BYTES + head_bytes)?);
        }
        answer.map(Ok)
    })
    .await?;
    drop(answering);
    if origin.has_key() {
        return Ok((answer, None));
    }
    // Larger ones have a budget of their own.
    let size = answer.body().size_hint().exact().filter(|bytes| !is_large(*bytes));
    let bytes = CALL_BYTES + size.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
    let charge = match charge {
        Some(mut charge) => charge.resize(bytes).map(|()| charge),
        None => account.charge(bytes),
    };
    Ok((answer, Some(charge?)))
}

/// About the memory of the fields of a head.
pub(super) fn head_bytes(fields: &HeaderMap) -> usize {
    let texts = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
    fields.len() * FIELD_BYTES + texts.sum::<usize>()
}

/// The buffers of a connection that has shown no key. They are counted after HTTP has begun all
/// calls that have arrived, so that the heads of these are not a part of them.
pub(super) struct Buffers<'a> {
    account: &'a Account,
    /// The incomplete head and the rest.
    counted: (usize, usize),
}

impl<'a> Buffers<'a> {
    pub(super) fn of(account: &'a Account) -> Self {
        Self { account, counted: (0, CONNECTION_BYTES) }
    }

    pub(super) fn count(&mut self, activity: &Mutex<Activity>) -> Result<(), NoRoom> {
        if self.account.has_key() {
            return Ok(());
        }
        let memory = activity.lock().memory();
        if memory != self.counted {
            self.account.set_buffers(memory.0, memory.1)?;
            self.counted = memory;
        }
        Ok(())
    }
}
