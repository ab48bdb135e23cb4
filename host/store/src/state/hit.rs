//! What a search for jobs has found.

use std::ops::ControlFlow;

use gristmill_core::job::record::JobRecord;

use crate::format::payload::PayloadKey;
use crate::medium::PayloadLocation;

/// A job that a search has found.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) seq: u64,
    pub(crate) record: JobRecord,
    /// Set when only the whole error shows whether the job matches: the key of the error, and its
    /// location if the journal has it.
    pub(crate) unread_error: Option<(PayloadKey, Option<PayloadLocation>)>,
}

/// What a search has found so far, and where it continues: `Continue` when this page may get more
/// jobs, `Break` when the next page begins there.
pub(crate) type SearchedPage = (Vec<Hit>, ControlFlow<Option<u64>, u64>);
