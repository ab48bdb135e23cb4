//! The management API: endpoints, templates, handlers, keys, credentials, volumes, usage, log
//! lines.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde::Serialize;

use crate::client::with_query;
use crate::wire::id::{EndpointId, OwnerId, TemplateId};
use crate::wire::management::{
    BillingRecord, BucketSize, Cluster, Delivery, Endpoint, EndpointInput, EndpointWithSecret,
    Grouping, Handler, HttpRequest, JobAction, JobList, Key, KeyWithText, LogLine, NetworkVolume,
    NetworkVolumeInput, NewJobAction, NewKey, NewNetworkVolume, NewRegistryAuth, RegistryAuth,
    Release, ReleaseWithSettings, Rollback, RotatedSecrets, Schedule, ScheduleInput, Template,
    TemplateInput,
};
use crate::wire::queue::Accepted;
use crate::wire::{ConsoleLink, JobStatus};
use crate::{Answer, Client, ClientError, EventStream, LogStream};

/// Most time for an upload, including compiling.
const UPLOAD_TIME_MAX: Duration = Duration::from_mins(15);

/// Most time for replacing the key of stored secrets. The host reads all waiting inputs.
const ROTATION_TIME_MAX: Duration = Duration::from_hours(24);

/// An upload is sent in pieces of this size, so that its progress can be shown.
const PIECE_BYTES: usize = 64 << 10;

// The paths of the kinds of objects.
const ENDPOINTS: &str = "endpoints";
const HANDLERS: &str = "handlers";
const JOB_ACTIONS: &str = "job-actions";
const KEYS: &str = "keys";
const REGISTRY_AUTHS: &str = "containerregistryauth";
const SCHEDULES: &str = "schedules";
const TEMPLATES: &str = "templates";
const VOLUMES: &str = "networkvolumes";

/// Selects jobs of several endpoints. All conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Any of these; empty: all that the key sees.
    pub endpoints: Vec<EndpointId>,
    /// Any of these; empty: any status.
    pub statuses: Vec<JobStatus>,
    /// All of these, each a key with its value.
    pub tags: Vec<(String, String)>,
    /// Submitted at this time or later, as RFC 3339 writes it.
    pub from: Option<String>,
    /// Submitted before this time.
    pub to: Option<String>,
    /// The beginning of the id.
    pub id_prefix: Option<String>,
    /// A part of the id.
    pub id_part: Option<String>,
    /// A part of the error.
    pub error: Option<String>,
}

impl JobFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let Self { endpoints, statuses, tags, from, to, id_prefix, id_part, error } = self;
        let ids = [("idPrefix", id_prefix), ("idPart", id_part)];
        let once = [("from", from), ("to", to), ("error", error)].into_iter().chain(ids);
        let once = once.filter_map(|(name, value)| Some((name, value.clone()?)));
        let endpoints = endpoints.iter().map(|id| ("endpoint", id.to_string()));
        let statuses = statuses.iter().map(|status| ("status", status.to_string()));
        let tags = tags.iter().map(|(key, value)| ("tag", format!("{key}:{value}")));
        endpoints.chain(statuses).chain(tags).chain(once).collect()
    }

    /// The query for a page.
    fn page(&self, limit: Option<u64>, cursor: Option<&str>) -> Vec<(&'static str, String)> {
        let limit = limit.map(|limit| ("limit", limit.to_string()));
        let cursor = cursor.map(|cursor| ("cursor", cursor.to_owned()));
        self.query().into_iter().chain(limit).chain(cursor).collect()
    }
}

/// Whether an object existed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployed {
    /// It was created.
    Created,
    /// It was changed.
    Updated,
}

/// Whether an endpoint existed before.
#[derive(Clone, PartialEq, Eq)]
pub enum DeployedEndpoint {
    /// It was created.
    Created {
        /// The secret that its webhooks are signed with; only this answer has it.
        webhook_secret: String,
    },
    /// It was changed.
    Updated,
}

impl fmt::Debug for DeployedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created { webhook_secret: _ } => "Created",
            Self::Updated => "Updated",
        })
    }
}

/// A call that is checked, and changes nothing.
const DRY_RUN: (&str, &str) = ("dryRun", "true");

/// The templates of a list, besides the caller's own that no endpoint uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateFilter {
    /// Those that endpoints use.
    pub endpoint_bound: bool,
    /// Those of other owners that are public.
    pub public: bool,
    /// Those of the operator for all owners.
    pub platform: bool,
}

impl TemplateFilter {
    /// All that the caller may see.
    pub const ALL: Self = Self { endpoint_bound: true, public: true, platform: true };

    fn query(self) -> Vec<(&'static str, String)> {
        let flags = [
            ("includeEndpointBoundTemplates", self.endpoint_bound),
            ("includePublicTemplates", self.public),
            ("includePlatformTemplates", self.platform),
        ];
        flags
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(n, _)| (n, "true".to_owned()))
            .collect()
    }
}

/// Selects log lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// The number of lines, the newest ones; by default 100
    /// ([`LIST_LOGS`](crate::wire::bounds::LIST_LOGS)).
    pub tail: Option<u64>,
    /// Only the lines of this job.
    pub job: Option<String>,
}

impl LogQuery {
    fn query(&self) -> Vec<(&'static str, String)> {
        let tail = self.tail.map(|tail| ("tail", tail.to_string()));
        tail.into_iter().chain(self.job.clone().map(|job| ("job", job))).collect()
    }
}

/// Selects and groups usage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BillingQuery {
    /// Usage counts from the hour of this time on, in RFC 3339; by default 30 days before `end`.
    pub start: Option<String>,
    /// Usage counts before this time; by default now.
    pub end: Option<String>,
    /// The period of a record; by default a day.
    pub bucket: Option<BucketSize>,
    /// By default by endpoint.
    pub grouping: Option<Grouping>,
    /// Only usage of this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Only usage of this template.
    pub template: Option<TemplateId>,
    /// Only usage of this owner.
    pub owner: Option<OwnerId>,
}

impl BillingQuery {
    fn query(&self) -> Vec<(&'static str, String)> {
        let optional = [
            ("startTime", self.start.clone()),
            ("endTime", self.end.clone()),
            ("bucketSize", self.bucket.map(|size| size.as_str().to_owned())),
            ("endpointId", self.endpoint.as_ref().map(ToString::to_string)),
            ("templateId", self.template.as_ref().map(ToString::to_string)),
            ("ownerId", self.owner.as_ref().map(ToString::to_string)),
            ("grouping", self.grouping.map(|grouping| grouping.field().to_owned())),
        ];
        optional.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Defines the calls about one kind of objects.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $method:ident($($call:expr),*);
    )*) => {
        /// # The management API
        ///
        /// Every call fails when the host refuses it, or cannot be reached.
        impl Client {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`ClientError`]
            pub async fn $name(&self, $($argument: $type),*) -> Result<$answer, ClientError> {
                self.$method($($call),*).await
            }
        )*}
    };
}

calls! {
    /// All endpoints of the caller.
    endpoints() -> Answer<Vec<Endpoint>> = list(&["v1", ENDPOINTS], &[]);
    /// An endpoint.
    endpoint(id: &str) -> Answer<Endpoint> = get(&["v1", ENDPOINTS, id], &[]);
    /// Creates an endpoint. The answer has the secret of its webhooks.
    create_endpoint(new: &EndpointInput) -> Answer<EndpointWithSecret> =
        send_json(Method::POST, &["v1", ENDPOINTS], new);
    /// Changes the given fields of an endpoint.
    update_endpoint(id: &str, fields: &EndpointInput) -> Answer<Endpoint> =
        send_json(Method::PATCH, &["v1", ENDPOINTS, id], fields);
    /// Deletes an endpoint with all its jobs.
    delete_endpoint(id: &str) -> () = delete(&["v1", ENDPOINTS, id]);
    /// The handlers that an endpoint has run, the newest first.
    releases(endpoint: &str) -> Answer<Vec<Release>> =
        list(&["v1", ENDPOINTS, endpoint, "releases"], &[]);
    /// A handler that an endpoint has run, with its settings at that time.
    release(endpoint: &str, version: u32) -> Answer<ReleaseWithSettings> =
        get(&["v1", ENDPOINTS, endpoint, "releases", &version.to_string()], &[]);
    /// The newest HTTP requests of an endpoint, the newest first; only those with a status such as
    /// `404`, or of a class such as `5xx`, if one is given.
    http_requests(endpoint: &EndpointId, limit: u64, status: Option<&str>) -> Answer<Vec<HttpRequest>> =
        get(
            &["v1", ENDPOINTS, endpoint.as_str(), "requests"],
            &limited(limit, status)
        );
    /// Rolls back to the previous handler, or to that of a version. After a call without a version
    /// and without `from`, a repetition returns to the handler that the first call replaced.
    roll_back(endpoint: &str, to: &Rollback) -> Answer<Release> =
        send_json(Method::POST, &["v1", ENDPOINTS, endpoint, "rollback"], to);
    /// Replaces the secret of an endpoint's webhooks; for a day the previous ones sign them as
    /// well.
    rotate_webhook_secret(endpoint: &str) -> Answer<EndpointWithSecret> =
        post(&["v1", ENDPOINTS, endpoint, "rotate-webhook-secret"]);
    /// The newest deliveries of an endpoint's webhooks, newest first.
    deliveries(endpoint: &str) -> Answer<Vec<Delivery>> =
        list(&["v1", ENDPOINTS, endpoint, "deliveries"], &[]);
    /// The newest log lines of an endpoint's handlers.
    logs(endpoint: &EndpointId, query: &LogQuery) -> Answer<Vec<LogLine<'static>>> =
        get(&["v1", ENDPOINTS, endpoint.as_str(), "logs"], &query.query());

    /// A page of jobs, the newest first. It may be short, or empty, and have a `cursor`.
    jobs(filter: &JobFilter, limit: Option<u64>, cursor: Option<&str>) -> Answer<JobList> =
        get(&["v1", "jobs"], &filter.page(limit, cursor));
    /// Begins to cancel, retry or delete many jobs, in the background.
    begin_job_action(new: &NewJobAction) -> Answer<JobAction> =
        send_json(Method::POST, &["v1", JOB_ACTIONS], new);
    /// The actions on many jobs, the newest first.
    job_actions() -> Answer<Vec<JobAction>> = list(&["v1", JOB_ACTIONS], &[]);
    /// An action on many jobs, with its progress.
    job_action(id: &str) -> Answer<JobAction> = get(&["v1", JOB_ACTIONS, id], &[]);
    /// Aborts an action on many jobs. Jobs that it has changed stay changed.
    abort_job_action(id: &str) -> () = delete(&["v1", JOB_ACTIONS, id]);

    /// All templates that match the filter.
    templates(filter: TemplateFilter) -> Answer<Vec<Template>> =
        list(&["v1", TEMPLATES], &filter.query());
    /// A template that matches the filter.
    template(id: &str, filter: TemplateFilter) -> Answer<Template> =
        get(&["v1", TEMPLATES, id], &filter.query());
    /// Creates a template.
    create_template(new: &TemplateInput) -> Answer<Template> =
        send_json(Method::POST, &["v1", TEMPLATES], new);
    /// Changes the given fields of a template.
    update_template(id: &str, fields: &TemplateInput) -> Answer<Template> =
        send_json(Method::PATCH, &["v1", TEMPLATES, id], fields);
    /// Deletes a template that no endpoint uses.
    delete_template(id: &str) -> () = delete(&["v1", TEMPLATES, id]);

    /// All uploaded handlers.
    handlers() -> Answer<Vec<Handler>> = list(&["v1", HANDLERS], &[]);
    /// The handler with this name, `name:tag`.
    handler(image: &str) -> Answer<Handler> = get(&["v1", HANDLERS, image], &[]);
    /// Deletes a handler's name; refused while an endpoint runs it.
    delete_handler(image: &str) -> () = delete(&["v1", HANDLERS, image]);

    /// All keys, without their secrets.
    keys() -> Answer<Vec<Key>> = list(&["v1", KEYS], &[]);
    /// Creates a key. Only this answer has its text.
    create_key(new: &NewKey) -> Answer<KeyWithText> = send_json(Method::POST, &["v1", KEYS], new);
    /// Revokes a key: from now on it is refused.
    revoke_key(id: &str) -> () = delete(&["v1", KEYS, id]);

    /// All credentials for registries, without their passwords.
    registry_auths() -> Answer<Vec<RegistryAuth>> = list(&["v1", REGISTRY_AUTHS], &[]);
    /// Credentials for a registry, without their password.
    registry_auth(id: &str) -> Answer<RegistryAuth> = get(&["v1", REGISTRY_AUTHS, id], &[]);
    /// Stores credentials for a registry.
    create_registry_auth(new: &NewRegistryAuth) -> Answer<RegistryAuth> =
        send_json(Method::POST, &["v1", REGISTRY_AUTHS], new);
    /// Deletes credentials that no template names.
    delete_registry_auth(id: &str) -> () = delete(&["v1", REGISTRY_AUTHS, id]);

    /// All network volumes.
    volumes() -> Answer<Vec<NetworkVolume>> = list(&["v1", VOLUMES], &[]);
    /// A network volume.
    volume(id: &str) -> Answer<NetworkVolume> = get(&["v1", VOLUMES, id], &[]);
    /// Creates a network volume.
    create_volume(new: &NewNetworkVolume) -> Answer<NetworkVolume> =
        send_json(Method::POST, &["v1", VOLUMES], new);
    /// Changes the given fields of a network volume.
    update_volume(id: &str, fields: &NetworkVolumeInput) -> Answer<NetworkVolume> =
        send_json(Method::PATCH, &["v1", VOLUMES, id], fields);
    /// Deletes a network volume that no endpoint names, with its files.
    delete_volume(id: &str) -> () = delete(&["v1", VOLUMES, id]);

    /// All schedules.
    schedules() -> Answer<Vec<Schedule>> = list(&["v1", SCHEDULES], &[]);
    /// A schedule.
    schedule(id: &str) -> Answer<Schedule> = get(&["v1", SCHEDULES, id], &[]);
    /// Creates a schedule.
    create_schedule(new: &ScheduleInput) -> Answer<Schedule> =
        send_json(Method::POST, &["v1", SCHEDULES], new);
    /// Changes the given fields of a schedule.
    update_schedule(id: &str, fields: &ScheduleInput) -> Answer<Schedule> =
        send_json(Method::PATCH, &["v1", SCHEDULES, id], fields);
    /// Deletes a schedule. Its jobs stay.
    delete_schedule(id: &str) -> () = delete(&["v1", SCHEDULES, id]);
    /// Submits a job of a schedule now.
    run_schedule(id: &str) -> Answer<Accepted> = post(&["v1", SCHEDULES, id, "run"]);

    /// Usage and its cost, by time and then by id.
    billing(query: &BillingQuery) -> Answer<Vec<BillingRecord>> =
        list(&["v1", "billing", ENDPOINTS], &query.query());
}

impl Client {
    /// Uploads a component as `image` (`name:tag`); returns once it is compiled. `on_sent` is
    /// called with the number of bytes that were passed to the network.
    ///
    /// # Errors
    /// [`ClientError`]. An upload is never repeated.
    pub async fn upload(
        &self,
        image: &str,
        component: Bytes,
        on_sent: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Answer<Handler>, ClientError> {
        let len = component.len();
        let pieces = (0..len).step_by(PIECE_BYTES).map(move |start| {
            let end = (start + PIECE_BYTES).min(len);
            on_sent(end as u64);
            Ok::<_, std::convert::Infallible>(component.slice(start..end))
        });
        let request = self
            .request(Method::PUT, self.url(&["v1", HANDLERS, image]))
            .timeout(UPLOAD_TIME_MAX)
            .header(CONTENT_TYPE, "application/wasm")
            // Announced, so that a body that is too large is refused before it is sent.
            .header(CONTENT_LENGTH, len)
            .body(reqwest::Body::wrap_stream(futures::stream::iter(pieces)));
        self.send(request, false).await
    }

    /// Replaces the key of stored secrets; returns once they are encrypted with the new key.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn rotate_secrets_key(&self) -> Result<Answer<RotatedSecrets>, ClientError> {
        let url = self.url(&["v1", "secrets", "rotate"]);
        self.send(self.request(Method::POST, url).timeout(ROTATION_TIME_MAX), false).await
    }

    /// The hosts that share the jobs.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn cluster(&self) -> Result<Answer<Cluster>, ClientError> {
        self.get(&["v1", "cluster"], &[]).await
    }

    /// Makes a link that begins a session of the web console with this client's key.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn create_console_link(&self) -> Result<Answer<ConsoleLink>, ClientError> {
        self.post(&["console", "links"]).await
    }

    /// The address of the web console that uses this link, for a browser.
    pub fn console_url(&self, link: &ConsoleLink) -> String {
        let mut url = self.url(&["console", ""]);
        url.set_fragment(Some(&format!("/enter/{}", link.link)));
        url.into()
    }

    /// Changes the template `id`, or creates it with the id as its name.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn put_template(
        &self,
        id: &TemplateId,
        fields: &TemplateInput,
    ) -> Result<Deployed, ClientError> {
        match self.update_template(id.as_str(), fields).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(|_| Deployed::Updated),
        }
        self.create_template(&new_template(id, fields)).await.map(|_| Deployed::Created)
    }

    /// Checks what [`put_template`](Self::put_template) would do, and changes nothing. An image in
    /// a registry is not fetched.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn check_template(
        &self,
        id: &TemplateId,
        fields: &TemplateInput,
    ) -> Result<Deployed, ClientError> {
        let new = new_template(id, fields);
        self.check_put(TEMPLATES, id.as_str(), fields, &new).await
    }

    /// Changes the endpoint `id`, or creates it with the id as its name.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn put_endpoint(
        &self,
        id: &EndpointId,
        fields: &EndpointInput,
    ) -> Result<DeployedEndpoint, ClientError> {
        match self.update_endpoint(id.as_str(), fields).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(|_| DeployedEndpoint::Updated),
        }
        let created = self.create_endpoint(&new_endpoint(id, fields)).await?.read()?;
        Ok(DeployedEndpoint::Created { webhook_secret: created.webhook_secret })
    }

    /// Checks what [`put_endpoint`](Self::put_endpoint) would do, and changes nothing.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn check_endpoint(
        &self,
        id: &EndpointId,
        fields: &EndpointInput,
    ) -> Result<Deployed, ClientError> {
        let new = new_endpoint(id, fields);
        self.check_put(ENDPOINTS, id.as_str(), fields, &new).await
    }

    /// Checks a change of an object, or the creation of `new` if there is no such object.
    async fn check_put<T: Serialize + Sync>(
        &self,
        kind: &str,
        id: &str,
        fields: &T,
        new: &T,
    ) -> Result<Deployed, ClientError> {
        match self.check_json(Method::PATCH, &["v1", kind, id], fields).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(|()| Deployed::Updated),
        }
        self.check_json(Method::POST, &["v1", kind], new).await.map(|()| Deployed::Created)
    }

    async fn check_json(
        &self,
        method: Method,
        segments: &[&str],
        body: &(impl Serialize + Sync),
    ) -> Result<(), ClientError> {
        let request = self.request(method, self.url(segments)).query(&[DRY_RUN]).json(body);
        self.send::<()>(request, true).await.map(drop)
    }

    /// The newest log lines of an endpoint's handlers, followed by new ones for ever.
    pub fn follow_logs(&self, endpoint: &EndpointId, query: &LogQuery) -> LogStream {
        LogStream::new(self.clone(), endpoint.clone(), query.clone())
    }

    /// One connection of [`Self::follow_logs`], as events; after the event with the id `after`, if
    /// it is given.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn log_events(
        &self,
        endpoint: &EndpointId,
        query: &LogQuery,
        after: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let url = self.url(&["v1", ENDPOINTS, endpoint.as_str(), "logs"]);
        let url = with_query(url, &query.query());
        EventStream::open(self, self.request(Method::GET, url), after).await
    }
}

fn limited(limit: u64, status: Option<&str>) -> Vec<(&'static str, String)> {
    let status = status.map(|status| ("status", status.to_owned()));
    [("limit", limit.to_string())].into_iter().chain(status).collect()
}

fn new_template(id: &TemplateId, fields: &TemplateInput) -> TemplateInput {
    let name = fields.name.clone().or_else(|| Some(id.to_string()));
    TemplateInput { id: Some(id.clone()), name, ..fields.clone() }
}

fn new_endpoint(id: &EndpointId, fields: &EndpointInput) -> EndpointInput {
    let name = fields.name.clone().or_else(|| Some(id.to_string()));
    EndpointInput { id: Some(id.clone()), name, ..fields.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_parts_of_a_query_are_sent() {
        let query = BillingQuery {
            start: Some("2026-01-31T00:00:00Z".to_owned()),
            bucket: Some(BucketSize::Hour),
            grouping: Some(Grouping::Owner),
            owner: Some(OwnerId::new("o").unwrap()),
            ..BillingQuery::default()
        };
        let expected = [
            ("startTime", "2026-01-31T00:00:00Z"),
            ("bucketSize", "hour"),
            ("ownerId", "o"),
            ("grouping", "ownerId"),
        ];
        assert_eq!(query.query(), expected.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(TemplateFilter::ALL.query().len(), 3);
        assert_eq!(TemplateFilter::default().query(), []);
    }
}
