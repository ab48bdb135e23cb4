//! `GET /v1/events`: a stream of server-sent events, with the new values of endpoints and a notice
//! for each job that has changed.
//!
//! **Promise.** A reader gets the present state, not its history: events are made when the
//! connection has taken the last one, so a slow reader gets fewer events and none is queued for it.
//! Nothing is sent when nothing has changed, except a comment that keeps the connection alive.
//! **Bounds.** [`TOPICS_MAX`] topics of a stream, [an hour](event_stream::STREAM_TIME_MAX) for a
//! stream, and the limit `events` for the streams of an owner, those of log lines included.
//! **Cost.** One [task](gristmill_control::Live) reads the values for all streams, and the events
//! of the overview are [made once](crate::overview_events::OverviewEvents) for all streams of an
//! owner.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::RawQuery;
use axum::response::Response;
use bytes::Bytes;
use futures::future::select_all;
use futures::{FutureExt as _, StreamExt as _, stream};
use gristmill_control::LiveValues;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::signals::JobWatch;
use gristmill_wire::JobStatus;
use gristmill_wire::management::{EndpointEvent, JobStatusEvent, LiveEndpoint, NewestJobs};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::answer::error::ApiError;
use crate::event_stream::write_event;
use crate::event_stream::{self, COMMENT_INTERVAL};
use crate::identity::auth::{Identity, KEY_CHECK_INTERVAL, KeyCheck};
use crate::identity::caller::{Caller, Read};
use crate::openapi::parameters::Topics;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query::Query;
use crate::state::ApiState;

/// Most topics of a stream.
const TOPICS_MAX: usize = 32;

/// Shortest time between two events of a job.
const JOB_INTERVAL: Duration = Duration::from_millis(250);

/// Values of endpoints and changes of jobs, as they happen.
///
/// The data of `overview` is `{"at","endpoints":{ID:VALUES}}`: all endpoints that the key sees in
/// the first event, then only those that have changed; a deleted one is `null`, and `at` is in
/// milliseconds since 1970. `VALUES` are `waiting`, `running`, `workers`, `submitted`, `completed`,
/// `failed`, `cancelled`, `timedOut` and `version`: the numbers of jobs and attempts since the
/// start of the host or the creation of the endpoint. `submitted` counts jobs, `cancelled` the jobs
/// that `cancel`, `purge-queue` and job actions ended, the others attempts. The data of `endpoint`
/// is the same values with `id` and `newest`: `{"jobs"}`, the jobs that were submitted since the
/// first event; the last event of a deleted endpoint has `"deleted":true`. The data of `job` is
/// `{"endpoint","id","status"}`, at first and when its status, its chunks or its progress have
/// changed; the `status` of a deleted job is `null`.
///
/// Events of endpoints come once a second at most, and with thousands of endpoints less often;
/// those of a job come four times a second at most. Nothing is sent when nothing has changed,
/// except a comment every 15 seconds. A slow reader gets fewer events, and each shows the state of
/// its time: events are not kept, and there is no `Last-Event-ID`. A stream ends after an hour,
/// when its key ends, and when the host stops; connect again to begin with the present state. It
/// counts for a limit of its own, together with streams of log lines: 100 at one time for each
/// owner.
#[utoipa::path(
    get, path = "/events", operation_id = "FollowEvents", tag = tag::HOST,
    params(Topics),
    responses(
        (
            status = 200, content_type = "text/event-stream", body = String,
            description = "Events `overview`, `endpoint` and `job`, with JSON as `data`",
        ),
        Mistaken, Missing,
    ),
)]
pub(crate) async fn follow(
    Caller { state, key, session, .. }: Caller<Read>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let text = query.text("topics").unwrap_or_default();
    let topics = text.split(',').map(topic).collect::<Result<Vec<_>, _>>()?;
    if topics.len() > TOPICS_MAX {
        return Err(ApiError::bad_request(format!(
            "query `topics` has {} topics; at most {TOPICS_MAX} are allowed",
            topics.len()
        )));
    }
    let permit = state.limiter.enter_stream(&key)?;
    let mut reader = Reader {
        key_check: KeyCheck::new(&state, &Identity { key: key.clone(), session }),
        values: None,
        overview: None,
        endpoints: vec![],
        jobs: vec![],
        state,
        key,
    };
    for topic in topics {
        reader.add(topic).await?;
    }
    let pieces = stream::unfold(reader, async |mut reader| {
        let pieces = reader.next().await?;
        Some((stream::iter(pieces), reader))
    });
    Ok(event_stream::long_response(pieces.flatten(), permit))
}

/// Something to follow.
#[derive(Debug, PartialEq, Eq)]
enum Topic {
    Overview,
    Endpoint(EndpointId),
    /// The id is opaque to clients, so a text that is not an id gives "not found".
    Job(EndpointId, Option<JobId>),
}

fn topic(text: &str) -> Result<Topic, ApiError> {
    let wrong = || {
        ApiError::bad_request(format!(
            "query `topics`: `{}` is none of `overview`, `endpoint:ID` and `job:ENDPOINT/ID`",
            text.chars().take(100).collect::<String>()
        ))
    };
    let endpoint = |id: &str| id.parse::<EndpointId>().map_err(|_| wrong());
    match text.split_once(':') {
        None if text == "overview" => Ok(Topic::Overview),
        Some(("endpoint", id)) => Ok(Topic::Endpoint(endpoint(id)?)),
        Some(("job", rest)) => {
            let (id, job) = rest.split_once('/').ok_or_else(wrong)?;
            Ok(Topic::Job(endpoint(id)?, job.parse().ok()))
        }
        _ => Err(wrong()),
    }
}

/// A client that follows topics.
struct Reader {
    state: ApiState,
    key: Arc<ApiKey>,
    key_check: KeyCheck,
    /// `None`: no topic needs them.
    values: Option<watch::Receiver<Arc<LiveValues>>>,
    /// The version of the last event of the overview; 0: there was none. `None`: it is no topic.
    overview: Option<u64>,
    endpoints: Vec<EndpointTopic>,
    jobs: Vec<JobTopic>,
}

struct EndpointTopic {
    id: EndpointId,
    incarnation: EndpointIncarnation,
    /// Submitted jobs before the first event.
    submitted_before: Option<u64>,
    sent: Option<LiveEndpoint>,
}

struct JobTopic {
    endpoint: EndpointId,
    id: JobId,
    watch: JobWatch,
    /// Completes at the next change.
    changed: Pin<Box<OwnedNotified>>,
    /// Whether it has changed since the last event.
    is_due: bool,
    not_before: Instant,
}

impl Reader {
    async fn add(&mut self, topic: Topic) -> Result<(), ApiError> {
        let live = &self.state.control.live;
        match topic {
            Topic::Overview => {
                self.overview.get_or_insert_default();
                self.values.get_or_insert_with(|| live.watch());
            }
            Topic::Endpoint(id) => {
                let incarnation = self.incarnation(&id)?;
                let new = EndpointTopic { id, incarnation, submitted_before: None, sent: None };
                self.endpoints.push(new);
                self.values.get_or_insert_with(|| live.watch());
            }
            Topic::Job(endpoint, job) => {
                self.incarnation(&endpoint)?;
                let id = job.ok_or_else(ApiError::job_not_found)?;
                let found = self.state.jobs.record(&endpoint, id).await?;
                found.ok_or_else(ApiError::job_not_found)?;
                let watch = self.state.jobs.watch(id);
                let changed = watch.changed();
                let not_before = Instant::now();
                self.jobs.push(JobTopic { endpoint, id, watch, changed, is_due: true, not_before });
            }
        }
        Ok(())
    }

    /// The endpoint that the key sees under this id.
    fn incarnation(&self, id: &EndpointId) -> Result<EndpointIncarnation, ApiError> {
        let found = self.state.control.endpoints.deployment(&self.key, id);
        let missing = || ApiError::not_found(format!("endpoint `{id}` not found"));
        Ok(found.ok_or_else(missing)?.incarnation.clone())
    }

    /// The next events, or a comment when there were none for a while. `None`: the key or the
    /// session is not valid any more, or the host is stopping.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        let comment_at = Instant::now() + COMMENT_INTERVAL;
        loop {
            self.key_check.check().ok()?;
            if self.state.jobs.is_closing() {
                return None;
            }
            let mut text = vec![];
            let overview = self.write_values(&mut text).await?;
            self.write_jobs(&mut text).await?;
            let mut pieces = pieces(overview, text);
            if pieces.is_empty() && Instant::now() >= comment_at {
                pieces.push(Bytes::from_static(b":\n\n"));
            }
            if !pieces.is_empty() {
                return Some(pieces);
            }
            self.wait(comment_at.min(Instant::now() + KEY_CHECK_INTERVAL)).await;
        }
    }

    /// Waits until something may have changed, at most until this time.
    async fn wait(&mut self, until: Instant) {
        let Self { state, values, jobs, .. } = self;
        let values = async {
            match values {
                // The sender lives as long as the host. They are still to be written.
                Some(values) => {
                    if values.changed().await.is_ok() {
                        values.mark_changed();
                    }
                }
                None => std::future::pending().await,
            }
        };
        let due = jobs.iter().filter(|job| job.is_due).map(|job| job.not_before).min();
        let until = due.map_or(until, |due| due.min(until));
        let waiting = jobs.iter_mut().filter(|job| !job.is_due);
        let waiting: Vec<_> = waiting.map(|job| job.changed.as_mut()).collect();
        let changed = async {
            match waiting.is_empty() {
                true => std::future::pending().await,
                false => drop(select_all(waiting).await),
            }
        };
        tokio::select! {
            () = values => {}
            () = changed => {}
            () = sleep_until(until) => {}
            () = state.jobs.closed() => {}
        }
    }

    /// Writes the events of endpoints, and returns that of the overview. `None`: the stream ends.
    async fn write_values(&mut self, text: &mut Vec<u8>) -> Option<Bytes> {
        let mut overview = Bytes::new();
        let Some(values) = &mut self.values else { return Some(overview) };
        if !values.has_changed().unwrap_or(false) {
            return Some(overview);
        }
        let values = values.borrow_and_update().clone();
        if let Some(since) = self.overview {
            let (events, pages) = (&self.state.overview_events, &self.state.pages);
            overview = events.event(pages, &self.key, &values, since).await?;
            self.overview = Some(values.version);
        }
        self.endpoints.retain_mut(|topic| {
            let event = topic.next(&values);
            let goes_on = event.as_ref().is_none_or(|event| !event.deleted);
            if let Some(event) = event {
                write_event(text, "endpoint", &event);
            }
            goes_on
        });
        Some(overview)
    }

    /// `None`: the store is closed.
    async fn write_jobs(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let now = Instant::now();
        let mut ended = vec![];
        for (at, job) in self.jobs.iter_mut().enumerate() {
            if job.changed.as_mut().now_or_never().is_some() {
                job.changed = job.watch.changed();
                job.is_due = true;
            }
            if !job.is_due || now < job.not_before {
                continue;
            }
            (job.is_due, job.not_before) = (false, now + JOB_INTERVAL);
            let record = self.state.jobs.record(&job.endpoint, job.id).await.ok()?;
            let status: Option<JobStatus> = record.map(|record| record.status);
            if status.is_none() {
                ended.push(at);
            }
            let event =
                JobStatusEvent { endpoint: job.endpoint.clone(), id: job.id.to_string(), status };
            write_event(text, "job", &event);
        }
        for at in ended.into_iter().rev() {
            self.jobs.swap_remove(at);
        }
        Some(())
    }
}

/// The pieces of an answer. The event of the overview may have a megabyte, and all streams of an
/// owner share it, so it is not copied.
fn pieces(overview: Bytes, text: Vec<u8>) -> Vec<Bytes> {
    [overview, text.into()].into_iter().filter(|piece| !piece.is_empty()).collect()
}

impl EndpointTopic {
    /// The event for these values; `None`: nothing has changed.
    fn next(&mut self, values: &LiveValues) -> Option<EndpointEvent> {
        let found = values.of(self.incarnation.owner(), &self.id);
        let found = found.filter(|value| value.incarnation == self.incarnation);
        let Some(now) = found.map(|value| &value.values) else {
            // An endpoint may be newer than the values.
            let last = self.sent.unwrap_or_default();
            return self.incarnation.has_ended().then(|| self.event(&last, true));
        };
        if self.sent.replace(*now) == Some(*now) {
            return None;
        }
        self.submitted_before.get_or_insert(now.submitted);
        Some(self.event(now, false))
    }

    fn event(&self, values: &LiveEndpoint, deleted: bool) -> EndpointEvent {
        let before = self.submitted_before.unwrap_or(values.submitted);
        let newest = NewestJobs { jobs: values.submitted.saturating_sub(before) };
        EndpointEvent { id: self.id.clone(), values: *values, newest, deleted }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::OwnerId;
    use gristmill_core::time::Timestamp;

    use super::*;

    fn id(text: &str) -> EndpointId {
        text.parse().unwrap()
    }

    #[test]
    fn topics_have_three_forms() {
        let job = "0192f3a0-0000-7000-8000-000000000000-0000";
        let cases = [
            ("overview", Some(Topic::Overview)),
            ("endpoint:a", Some(Topic::Endpoint(id("a")))),
            ("job:a/x", Some(Topic::Job(id("a"), None))),
            ("job:a/", Some(Topic::Job(id("a"), None))),
            ("", None),
            ("Overview", None),
            ("overview:", None),
            ("endpoint", None),
            ("endpoint:", None),
            ("endpoint:a/b", None),
            ("endpoint: a", None),
            ("job:a", None),
            ("job:/x", None),
            ("logs:a", None),
        ];
        for (text, expected) in cases {
            assert_eq!(topic(text).ok(), expected, "{text}");
        }
        let Ok(Topic::Job(_, parsed)) = topic(&format!("job:a/{job}")) else { panic!("{job}") };
        assert_eq!(parsed, job.parse().ok());
        assert!(topic(&"x".repeat(10_000)).unwrap_err().sentence().len() < 300);
    }

    fn values(of: &[(&str, &EndpointIncarnation, u64)]) -> LiveValues {
        let read = of.iter().map(|(name, incarnation, submitted)| {
            let values = LiveEndpoint { submitted: *submitted, ..LiveEndpoint::default() };
            (id(name), (*incarnation).clone(), values)
        });
        LiveValues::none().next(Timestamp::from_millis(7), read)
    }

    /// A copy for each of 100 streams delayed the calls of others by more than a second.
    #[test]
    fn the_event_of_the_overview_is_not_copied() {
        let overview = Bytes::from(vec![b'x'; 1 << 20]);
        let sent = pieces(overview.clone(), b"rest".to_vec());
        assert_eq!((sent.len(), sent[0].as_ptr()), (2, overview.as_ptr()));
        assert_eq!((pieces(overview, vec![]).len(), pieces(Bytes::new(), vec![])), (1, vec![]));
    }

    #[test]
    fn an_endpoint_counts_the_jobs_since_its_first_event() {
        let [one, next] = [(); 2].map(|()| EndpointIncarnation::new(OwnerId::operator()));
        let mut topic = EndpointTopic {
            id: id("a"),
            incarnation: one.clone(),
            submitted_before: None,
            sent: None,
        };
        let mut newest = |values: &LiveValues| topic.next(values).map(|event| event.newest.jobs);
        assert_eq!(newest(&values(&[("a", &one, 40)])), Some(0));
        assert_eq!(newest(&values(&[("a", &one, 40), ("b", &one, 1)])), None);
        assert_eq!(newest(&values(&[("a", &one, 77)])), Some(37));
        assert_eq!(newest(&values(&[("a", &next, 78)])), None, "it is another endpoint");
        assert_eq!(newest(&values(&[])), None, "it still exists");
    }
}
