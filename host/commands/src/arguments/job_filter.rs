//! The conditions by which commands select jobs of all endpoints.

use std::collections::BTreeMap;

use clap::Args;
use gristmill_client::wire::JobStatus;
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::management::JobActionFilter;
use gristmill_client::{ClientError, JobFilter};

use super::parse;
use crate::calls::in_options;

/// The conditions for jobs. All of them must hold.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only jobs of this endpoint; may be repeated [default: all endpoints].
    #[arg(long = "endpoint", value_name = "ENDPOINT")]
    endpoints: Vec<EndpointId>,
    /// Only jobs with this status, such as FAILED; may be repeated.
    #[arg(long = "status", value_name = "STATUS", value_parser = parse::status)]
    statuses: Vec<JobStatus>,
    /// Only jobs with this tag; may be repeated, for jobs with all of them.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse::tag)]
    tags: Vec<(String, String)>,
    /// Only jobs that were submitted at this time or later: a date, such as 2026-01-31, or RFC
    /// 3339, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only jobs that were submitted before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Only jobs whose ids begin with this text.
    #[arg(long, value_name = "TEXT")]
    id_prefix: Option<String>,
    /// Only jobs whose error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

/// The options of the conditions that refusals name, of a list and of an action.
const OPTIONS: [(&str, &str); 7] = [
    ("status", "--status"),
    ("tag", "--tag"),
    ("from", "--from"),
    ("to", "--to"),
    ("idPrefix", "--id-prefix"),
    ("idPart", "--id-part"),
    ("error", "--error"),
];

/// The refusal of a call with conditions, which names the options instead of the parameters.
pub(crate) fn refused(error: ClientError) -> ClientError {
    in_options(error, &OPTIONS)
}

impl FilterArgs {
    /// The conditions of a list, which may name a part of the id too.
    pub(crate) fn of_list(self, id_part: Option<String>) -> JobFilter {
        let Self { endpoints, statuses, tags, from, to, id_prefix, error } = self;
        JobFilter { endpoints, statuses, tags, from, to, id_prefix, id_part, error }
    }

    /// The conditions of an action.
    ///
    /// # Errors
    /// Without a condition: an action on all jobs would be a mistake more often than a wish.
    pub(crate) fn of_action(self) -> anyhow::Result<JobActionFilter> {
        let Self { endpoints, statuses, tags, from, to, id_prefix, error } = self;
        let tags = tags_once(tags)?;
        let filter = JobActionFilter { endpoints, statuses, tags, from, to, id_prefix, error };
        anyhow::ensure!(
            filter != JobActionFilter::default(),
            "this would be for all jobs; give at least one condition, such as --endpoint or --status"
        );
        Ok(filter)
    }
}

/// The tags by key.
///
/// # Errors
/// When a key is given twice.
pub(crate) fn tags_once(tags: Vec<(String, String)>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut by_key = BTreeMap::new();
    for (key, value) in tags {
        anyhow::ensure!(!by_key.contains_key(&key), "the tag `{key}` is given twice");
        by_key.insert(key, value);
    }
    Ok(by_key)
}
