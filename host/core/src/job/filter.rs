//! Which jobs a client means: by status, tags, time, id and error. Lists and actions have the same
//! filter, and every store decides by [`JobFilter::matches`] alone; an index only saves it the look
//! at other jobs.
//!
//! **Cost.** Some 20 ns for a job that does not match; a search for an error reads its text.

use serde::{Deserialize, Serialize};

use crate::id::{EndpointId, JobId};
use crate::job::listing::{Cursor, JobQuery};
use crate::job::state::JobStatus;
use crate::job::tags::{Tag, Tags};
use crate::time::Timestamp;

/// The conditions for a job. All of them must hold; without any, every job matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFilter {
    /// Any of these; empty: any status.
    pub statuses: Vec<JobStatus>,
    /// All of these.
    pub tags: Vec<Tag>,
    /// Submitted at this time or later.
    pub from: Option<Timestamp>,
    /// Submitted before this time.
    pub until: Option<Timestamp>,
    /// The beginning of its id.
    pub id_prefix: Option<String>,
    /// Any part of its id. Lists have it, actions do not: it is never stored.
    #[serde(skip)]
    pub id_part: Option<String>,
    /// A part of its error, letter by letter.
    pub error: Option<String>,
}

/// A job as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub struct JobCandidate<'a> {
    /// Its id.
    pub id: JobId,
    /// Its status.
    pub status: JobStatus,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// Its tags.
    pub tags: Option<&'a Tags>,
    /// Its error.
    pub error: ErrorText<'a>,
}

/// The error of a job, as far as it is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorText<'a> {
    /// It has none.
    None,
    /// The whole text.
    Whole(&'a str),
    /// The text begins so, and continues.
    Beginning(&'a str),
}

/// Whether a job matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Match {
    /// It does not.
    No,
    /// It does.
    Yes,
    /// It does if the rest of its error has the text.
    IfErrorHasText,
}

impl JobFilter {
    /// Whether a job matches.
    pub fn matches(&self, job: &JobCandidate<'_>) -> Match {
        let is_of_time = self.from.is_none_or(|from| job.created_at >= from)
            && self.until.is_none_or(|until| job.created_at < until);
        let has_status = self.statuses.is_empty() || self.statuses.contains(&job.status);
        if !is_of_time || !has_status {
            return Match::No;
        }
        let has_tag = |tag| job.tags.is_some_and(|tags| tags.has(tag));
        if !self.tags.iter().all(has_tag) || !self.has_id(job.id) {
            return Match::No;
        }
        match (&self.error, job.error) {
            (None, _) => Match::Yes,
            (Some(_), ErrorText::None) => Match::No,
            (Some(part), ErrorText::Whole(text)) if text.contains(part) => Match::Yes,
            (Some(_), ErrorText::Whole(_)) => Match::No,
            (Some(part), ErrorText::Beginning(text)) if text.contains(part) => Match::Yes,
            (Some(_), ErrorText::Beginning(_)) => Match::IfErrorHasText,
        }
    }

    fn has_id(&self, id: JobId) -> bool {
        let (prefix, part) = (&self.id_prefix, &self.id_part);
        if prefix.is_none() && part.is_none() {
            return true;
        }
        let text = id.text();
        let text = text.as_str();
        prefix.as_ref().is_none_or(|prefix| text.starts_with(prefix))
            && part.as_ref().is_none_or(|part| text.contains(part))
    }

    /// The statuses that a matching job can have.
    pub fn possible_statuses(&self) -> impl Iterator<Item = JobStatus> + use<'_> {
        let can_match = |status: &JobStatus| {
            let has_error = matches!(status, JobStatus::Failed | JobStatus::TimedOut);
            (self.statuses.is_empty() || self.statuses.contains(status))
                && (self.error.is_none() || has_error)
        };
        JobStatus::ALL.into_iter().filter(can_match)
    }
}

/// A search for jobs of some endpoints: a page of them, in the reverse order of their submission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobSearch {
    /// The endpoints, each once.
    pub endpoints: Vec<EndpointId>,
    /// The jobs.
    pub filter: JobFilter,
    /// Only jobs after this position of an earlier page.
    pub after: Option<Cursor>,
    /// At most this many.
    pub count_max: usize,
}

impl JobSearch {
    /// The search for the jobs of one endpoint.
    pub fn of_endpoint(endpoint: &EndpointId, query: &JobQuery) -> Self {
        let JobQuery { status, after, count_max } = *query;
        let filter = JobFilter { statuses: status.into_iter().collect(), ..JobFilter::default() };
        Self { endpoints: vec![endpoint.clone()], filter, after, count_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ShardId, SubmissionKind};

    #[test]
    fn each_condition_counts() {
        let tags = Tags::new([("env", "prod"), ("team", "%_")]).unwrap();
        let id = JobId::generate(SubmissionKind::Async, ShardId(7));
        let job = JobCandidate {
            id,
            status: JobStatus::Failed,
            created_at: Timestamp::from_millis(100),
            tags: tags.as_ref(),
            error: ErrorText::Whole("no 100% grain_"),
        };
        let tag = |key, value| Tag::new(key, value).unwrap();
        let at = |ms| Some(Timestamp::from_millis(ms));
        let error = |text: &str| JobFilter { error: Some(text.to_owned()), ..JobFilter::default() };
        let prefix =
            |text: &str| JobFilter { id_prefix: Some(text.to_owned()), ..JobFilter::default() };
        let part =
            |text: &str| JobFilter { id_part: Some(text.to_owned()), ..JobFilter::default() };
        let of_tags = |tags: Vec<Tag>| JobFilter { tags, ..JobFilter::default() };
        let of_statuses = |statuses: &[JobStatus]| JobFilter {
            statuses: statuses.to_vec(),
            ..JobFilter::default()
        };
        let whole_id = id.to_string();
        for (filter, expected) in [
            (JobFilter::default(), true),
            (of_statuses(&[JobStatus::Failed]), true),
            (of_statuses(&[JobStatus::Cancelled, JobStatus::Failed]), true),
            (of_statuses(&[JobStatus::TimedOut]), false),
            (of_tags(vec![tag("env", "prod")]), true),
            (of_tags(vec![tag("env", "prod"), tag("team", "%_")]), true),
            (of_tags(vec![tag("env", "prod"), tag("team", "x_")]), false),
            (of_tags(vec![tag("env", "pro")]), false),
            (JobFilter { from: at(100), ..JobFilter::default() }, true),
            (JobFilter { from: at(101), ..JobFilter::default() }, false),
            (JobFilter { until: at(101), ..JobFilter::default() }, true),
            (JobFilter { until: at(100), ..JobFilter::default() }, false),
            (prefix(""), true),
            (prefix(&whole_id), true),
            (prefix(&whole_id[..9]), true),
            (prefix("sync-"), false),
            (part(&whole_id[28..36]), true),
            (part(&whole_id), true),
            (part("sync-"), false),
            (JobFilter { id_prefix: Some("x".to_owned()), ..part(&whole_id[28..36]) }, false),
            (prefix(&format!("{whole_id}0")), false),
            (error("grain"), true),
            (error("100%"), true),
            (error("1_0"), false),
            (error("no%grain"), false),
            (error("Grain"), false),
        ] {
            let expected = if expected { Match::Yes } else { Match::No };
            assert_eq!(filter.matches(&job), expected, "{filter:?}");
        }
        let of_error = |text| error("grain").matches(&JobCandidate { error: text, ..job });
        assert_eq!(of_error(ErrorText::None), Match::No);
        assert_eq!(of_error(ErrorText::Beginning("a grain of")), Match::Yes);
        assert_eq!(of_error(ErrorText::Beginning("a gra")), Match::IfErrorHasText);
        let other = JobFilter { until: at(1), ..error("grain") };
        let cut = JobCandidate { error: ErrorText::Beginning(""), ..job };
        assert_eq!(other.matches(&cut), Match::No, "the other conditions are decided");
        let possible: Vec<_> = error("x").possible_statuses().collect();
        assert_eq!(possible, [JobStatus::Failed, JobStatus::TimedOut]);
        assert_eq!(JobFilter::default().possible_statuses().count(), JobStatus::ALL.len());
    }
}
