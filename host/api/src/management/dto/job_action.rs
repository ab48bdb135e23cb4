//! Actions on many jobs.

use gristmill_core::job::action::JobAction;
use gristmill_core::job::tags::Tag;
use gristmill_wire::management::{JobAction as Document, JobActionFilter};

use crate::answer::wire_time::rfc3339;

/// The answer's form of an action.
pub(crate) fn job_action(action: JobAction) -> Document {
    let pair = |tag: Tag| (tag.key().to_owned(), tag.value().to_owned());
    let filter = action.filter;
    Document {
        id: action.id,
        action: action.kind,
        filter: JobActionFilter {
            endpoints: if action.names_endpoints { action.endpoints } else { Vec::new() },
            statuses: filter.statuses,
            tags: filter.tags.into_iter().map(pair).collect(),
            from: filter.from.map(rfc3339),
            to: filter.until.map(rfc3339),
            id_prefix: filter.id_prefix,
            error: filter.error,
        },
        state: action.state,
        matched: action.counts.matched,
        changed: action.counts.changed,
        skipped: action.counts.skipped,
        created_at: rfc3339(action.created_at),
        ended_at: action.ended_at.map(rfc3339),
        reason: action.reason,
    }
}
