//! The parameters of the operations: placeholders of paths, and queries.

use gristmill_core::limits::{
    Bounds, FILTER_ERROR_CHARS_MAX, LIST_JOBS, LIST_LOGS, NAME_BYTES_MAX, PAGE, STREAM_WAIT_MS,
    TAG_KEY_BYTES_MAX, WAIT_MS,
};
use serde_json::{Value, json};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{RefOr, Required};
use utoipa::{IntoParams, PartialSchema as _};

use crate::request::brand::PLATFORM_FLAG;
use gristmill_wire::management::Grouping;
use gristmill_wire::schema;

/// The name of the flag that only checks a change.
pub(crate) const DRY_RUN: &str = "dryRun";

/// The states of Pods; the first one is that of all workers.
pub(crate) const POD_STATUSES: [&str; 3] = ["RUNNING", "EXITED", "TERMINATED"];

/// The hardware of Pods; the first one is that of all workers.
pub(crate) const COMPUTE_TYPES: [&str; 2] = ["CPU", "GPU"];

/// The parameters of a path, one for each `{placeholder}`.
pub(super) fn of_path(path: &str) -> Vec<Parameter> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            let (schema, description, example) = placeholder(name);
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(description))
                .example(example)
                .schema(Some(schema))
                .build()
        })
        .collect()
}

/// The schema of a placeholder, its meaning, and a value; the id of a job cannot be chosen.
fn placeholder(name: &str) -> (RefOr<Schema>, &'static str, Option<Value>) {
    let (schema, about, example) = match name {
        "endpoint" => (schema::EndpointId::schema(), "The endpoint's id", json!("example")),
        "job" => {
            return (schema::JobId::schema(), "The job's id, as the submission returned it", None);
        }
        "rest" => (
            schema::OpenAiRoute::schema(),
            "OpenAI's path, such as `v1/models`",
            json!("v1/chat/completions"),
        ),
        "version" => (u32::schema(), "The version of a release", json!(1)),
        "templateId" => (schema::Id::schema(), "The template's id", json!("example")),
        "path" => (
            schema::VolumeFilePath::schema(),
            "The path of a file below the volume's root",
            json!("models/small.bin"),
        ),
        "reference" => {
            (schema::HandlerName::schema(), "The handler's name", json!("example:latest"))
        }
        _ => (schema::Id::schema(), "The id", json!("example")),
    };
    (schema, about, Some(example))
}

/// Defines parameters for `params(…)`: `Type { name in kind, schema, description; }`.
macro_rules! parameters {
    ($($(#[$doc:meta])* $type:ident {
        $($name:expr, $kind:ident, $schema:expr, $text:expr;)+
    })*) => {$(
        $(#[$doc])*
        pub(crate) struct $type;

        impl IntoParams for $type {
            fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                vec![$(
                    ParameterBuilder::new()
                        .name($name)
                        .parameter_in(ParameterIn::$kind)
                        .required(Required::False)
                        .description(Some($text))
                        .schema(Some($schema))
                        .build()
                ),+]
            }
        }
    )*};
}

parameters! {
    /// Parameters of `runsync` and `status-sync`.
    Wait {
        "wait", Query, wait(WAIT_MS), waiting("the job's end", WAIT_MS);
    }
    /// Parameters of `status`.
    StatusQuery {
        "ttl", Query, at_least_zero(), "Shortens the job's remaining lifetime to so many milliseconds, for good; needs the scope `submit`";
        "input", Query, flag(), "Adds the job's input, if the host keeps it";
    }
    /// Parameters of `stream`.
    StreamPosition {
        "wait", Query, wait(STREAM_WAIT_MS), waiting("a chunk or the job's end", STREAM_WAIT_MS);
        "from", Query, at_least_zero(), "Reads from this chunk on; the position of delivered chunks does not change";
        "Last-Event-ID", Header, event_id("^(([0-9]+-)?[0-9]+)?$"), "Server-sent events only: continue after the chunk of the event with this id";
    }
    /// Parameters of `requests`.
    RequestFilter {
        "status", Query, schema::Status::schema(), "Only jobs with this status";
        "limit", Query, bounded(LIST_JOBS), "Most jobs of a page";
        "cursor", Query, schema::Cursor::schema(), "Continues after a page: its `cursor`";
    }
    /// Parameters of `run` and `runsync`.
    IdempotencyKey {
        "Idempotency-Key", Header, schema::IdempotencyKey::schema(),
            "A submission with the same key, operation and body refers to the same job, for 24 hours; with another operation or body it is refused with 422";
    }
    /// Parameters of the lists of the management API.
    PageOfList {
        "limit", Query, bounded(PAGE), "Most elements of a page";
        "cursor", Query, schema::PageCursor::schema(), "Continues after a page: the value from its `Link` header, whose `rel` is `next`";
    }
    /// Parts of an endpoint's answer that are only there on request.
    EndpointParts {
        "includeTemplate", Query, flag(), "Add the endpoint's template, as `template`";
        "includeWorkers", Query, flag(), "Add the endpoint's workers, as `workers`";
    }
    /// Parameters of the list of Pods. Workers are in no list unless they match all of them.
    PodQuery {
        "includeWorkers", Query, flag(), "List the workers of endpoints; without it, the list is empty";
        "includeNetworkVolume", Query, flag(), "Add the network volume of each worker's endpoint";
        "includeMachine", Query, flag(), "Without effect";
        "includeSavingsPlans", Query, flag(), "Without effect";
        "includeTemplate", Query, flag(), "Without effect";
        "id", Query, any_text(), "Only the worker with this id";
        "endpointId", Query, any_text(), "Only workers of this endpoint";
        "name", Query, any_text(), "Only workers of endpoints with this display name";
        "templateId", Query, any_text(), "Only workers of endpoints with this template";
        "imageName", Query, any_text(), "Only workers of endpoints whose template names this handler";
        "networkVolumeId", Query, any_text(), "Only workers of endpoints with this network volume";
        "desiredStatus", Query, words(POD_STATUSES), "That of all workers is `RUNNING`";
        "computeType", Query, words(COMPUTE_TYPES), "That of all workers is `CPU`";
        "dataCenterId", Query, several(any_text().into()), "That of all workers is `local`";
        "cpuFlavorId", Query, several(any_text().into()), "No worker has one";
        "gpuTypeId", Query, several(any_text().into()), "No worker has one";
    }
    /// Parameters of the list of a volume's files.
    DirectoryPage {
        "path", Query, schema::VolumeDirectory::schema(), "The directory; without it, the volume's root";
        "limit", Query, bounded(PAGE), "Most elements of a page";
        "cursor", Query, schema::PageCursor::schema(), "Continues after a page: the value from its `Link` header, whose `rel` is `next`";
    }
    /// Parameters of the download of a volume's file.
    ByteRange {
        "Range", Header, any_text(), "Only these bytes of the file: `bytes=1048576-`, `bytes=0-9` or `bytes=-10`; every other form is ignored";
        "If-Range", Header, any_text(), "The whole file instead, if its `ETag` is another one";
    }
    /// Parameters of the creation of a volume's file.
    AsDirectory {
        "directory", Query, flag(), "Create an empty directory; the call has no body";
    }
    /// Parameters of the deletion of a volume's file.
    Recursive {
        "recursive", Query, flag(), "Delete the content of a directory too";
    }
    /// Parameters of the changes that can be checked alone.
    CheckOnly {
        DRY_RUN, Query, flag(), "Check the call and change nothing: 204 if it would succeed. An image in a registry is not fetched";
    }
    /// Parameters of an endpoint's logs.
    LogFilter {
        "job", Query, schema::JobId::schema(), "Only the lines of this job";
        "tail", Query, bounded(LIST_LOGS), "Number of lines, the newest ones";
        "Last-Event-ID", Header, event_id("^[0-9]*$"), "Continues after the line with this number";
    }
    /// Parameters of an endpoint's HTTP requests.
    HttpRequestFilter {
        "status", Query, status_or_class(), "Only requests with this status, or with one of this class, such as `5xx`";
        "limit", Query, bounded(LIST_JOBS), "Most requests, the newest ones";
    }
    /// Parameters of series.
    SeriesWindow {
        "window", Query, window(), "The time up to now: `15m` in steps of 10 seconds, `6h` of 5 minutes, `7d` of 2 hours";
    }
    /// Parameters of live events.
    Topics {
        "topics", Query, topics(), "What to follow: `overview`, `endpoint:ID` and `job:ENDPOINT/ID`, divided by commas; at most 32";
    }
    /// Parameters of the list of jobs.
    JobListFilter {
        "endpoint", Query, several(schema::Id::schema()), "Only jobs of these endpoints";
        "status", Query, several(schema::Status::schema()), "Only jobs with any of these statuses";
        "tag", Query, several(tag().into()), "Only jobs with all of these tags, each as `key:value`";
        "from", Query, schema::Time::schema(), "Only jobs that were submitted at this time or later";
        "to", Query, schema::Time::schema(), "Only jobs that were submitted before this time";
        "idPrefix", Query, text(NAME_BYTES_MAX), "Only jobs whose ids begin with this text";
        "idPart", Query, text(NAME_BYTES_MAX), "Only jobs whose ids contain this text";
        "error", Query, text(FILTER_ERROR_CHARS_MAX), "Only jobs whose error contains this text, letter by letter";
        "limit", Query, bounded(LIST_JOBS), "Most jobs of a page";
        "cursor", Query, schema::Cursor::schema(), "Continues after a page: its `cursor`";
    }
    /// The time that a bill is about.
    BillingPeriod {
        "startTime", Query, schema::Time::schema(), "Usage counts from the hour of this time on; by default 30 days before `endTime`";
        "endTime", Query, schema::Time::schema(), "Usage counts up to the last hour that begins before this time; by default now";
        "bucketSize", Query, schema::BucketSize::schema(), "The period of each record, in UTC; a week begins on Monday";
    }
    /// Parameters of the bill of endpoints.
    BillingQuery {
        "grouping", Query, schema::BillingGrouping::schema(), "The property by which jobs are grouped";
        "endpointId", Query, schema::Id::schema(), "Only usage of this endpoint";
        "templateId", Query, schema::Id::schema(), "Only usage of this template";
        "ownerId", Query, schema::Id::schema(), "Only usage of this owner";
        "imageName", Query, any_text(), "Only usage of templates that name this handler now";
        "dataCenterId", Query, several(any_text().into()), "That of all usage is `local`";
        "gpuTypeId", Query, several(any_text().into()), "No usage has one";
    }
    /// Parameters of the bill of Pods, which is empty.
    PodBillingQuery {
        "grouping", Query, words(Grouping::OF_PODS.map(Grouping::field)), "Without effect";
        "podId", Query, any_text(), "Without effect";
        "gpuTypeId", Query, any_text(), "Without effect";
    }
    /// Parameters of the bill of network volumes, which is empty.
    VolumeBillingQuery {
        "networkVolumeId", Query, any_text(), "Without effect";
    }
    /// Parameters of a backup.
    WithSecretsKey {
        "secretsKey", Query, flag(), "Include the key that stored secrets are encrypted with";
    }
    /// Parameters of the lookup and the list of templates.
    TemplateFlags {
        "includeEndpointBoundTemplates", Query, flag(), "Include templates that an endpoint uses";
        "includePublicTemplates", Query, flag(), "Include public templates of other owners";
        PLATFORM_FLAG, Query, flag(), "Include platform templates";
    }
}

/// Numbers outside the bounds are allowed: they become the nearest bound.
fn wait(bounds: Bounds) -> Schema {
    integer().default(Some(bounds.default.into())).into()
}

fn waiting(until: &str, bounds: Bounds) -> String {
    let Bounds { min, max, .. } = bounds;
    format!(
        "Milliseconds, {min} to {max}: waits for {until}. A value outside means the nearest bound"
    )
}

fn bounded(bounds: Bounds) -> Schema {
    let Bounds { min, default, max } = bounds;
    integer().minimum(Some(min)).maximum(Some(max)).default(Some(default.into())).into()
}

fn at_least_zero() -> Schema {
    integer().minimum(Some(0)).into()
}

/// The id of an event: an index, or a text with the attempt.
fn event_id(pattern: &str) -> Schema {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).into()
}

/// A header that may have any value.
fn any_text() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).into()
}

/// A parameter that may be given several times.
fn several(item: RefOr<Schema>) -> Schema {
    ArrayBuilder::new().items(item).build().into()
}

fn text(bytes_max: usize) -> Schema {
    let text = ObjectBuilder::new().schema_type(Type::String);
    text.min_length(Some(1)).max_length(Some(bytes_max)).into()
}

fn words<const N: usize>(words: [&'static str; N]) -> Schema {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).into()
}

fn window() -> Schema {
    let names = ["15m", "6h", "7d"];
    let text = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
    text.default(Some("15m".into())).into()
}

fn topics() -> Schema {
    let topic = "(overview|endpoint:[^,/]+|job:[^,/]+/[^,]*)";
    let pattern = format!("^{topic}(,{topic}){{0,31}}$");
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).into()
}

fn status_or_class() -> Schema {
    let pattern = "^([1-9]xx|[1-9][0-9]{2})$";
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).into()
}

fn tag() -> Schema {
    let pattern = format!("^[a-z0-9._/-]{{1,{TAG_KEY_BYTES_MAX}}}:");
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).into()
}

fn integer() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer)
}

fn flag() -> Schema {
    ObjectBuilder::new().schema_type(Type::Boolean).default(Some(false.into())).into()
}
