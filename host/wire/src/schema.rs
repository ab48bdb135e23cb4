//! Schemas of texts and numbers with bounds, for the OpenAPI document. The bounds are the constants
//! that the host checks ([`bounds`](crate::bounds)); none is repeated here.

use std::borrow::Cow;

use utoipa::openapi::schema::{
    ArrayBuilder, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat,
    SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::bounds::{
    ACTION_ENDPOINTS_MAX, ALLOWED_HOSTS_MAX, ARGUMENT_CHARS_MAX, ARGUMENTS_MAX, Bounds,
    CALL_ENDPOINTS_MAX, CORS_LIST_MAX, CORS_ORIGIN_BYTES_MAX, CRON_BYTES_MAX, DEBOUNCE_MS,
    DELAY_MS, DOMAIN_BYTES_MAX, ENV_NAME_CHARS_MAX, ENV_VALUE_CHARS_MAX, ENV_VARIABLES_MAX,
    EVERY_MS, EXECUTION_TIMEOUT_MS, FILTER_ERROR_CHARS_MAX, HEADER_NAME_BYTES_MAX,
    HOST_PATTERN_BYTES_MAX, HTTP_HOSTS_MAX, IDEMPOTENCY_KEY_CHARS_MAX, IMAGE_NAME_CHARS_MAX,
    JOB_KEY_BYTES_MAX, KEY_ENDPOINTS_MAX, KEY_LIFETIME_S, KEY_WEIGHT, KEY_WEIGHTS_MAX,
    MOUNT_PATH_BYTES_MAX, NAME_BYTES_MAX, NAME_CHARS_MAX, NETWORK_VOLUMES_MAX, PORTS_MAX, PRIORITY,
    RATE_LIMITED_OPERATIONS, README_CHARS_MAX, REGISTRY_SECRET_BYTES_MAX, RETENTION_MS,
    S3_FIELD_CHARS_MAX, TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX, TIME_CHARS_MAX,
    TIME_ZONE_BYTES_MAX, TTL_MS, VOLUME_GB, VOLUME_PATH_BYTES_MAX, WEBHOOK_URL_BYTES_MAX,
};
use crate::grouping::{self, Grouping};
use crate::{JobStatus, Metering as WireMetering, Scope as KeyScope};

/// Defines types that represent a schema: `Name: "description" => object`.
macro_rules! schemas {
    ($($name:ident: $description:expr => $object:expr;)*) => {$(
        #[doc = $description]
        #[derive(Debug)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                Schema::from($object.description(Some($description))).into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

schemas! {
    Id: "Names an endpoint, a template, credentials, a network volume or a key" => id();
    OptionalId: "An `Id`, or empty for none" => id().min_length(None)
        .pattern(Some("^[A-Za-z0-9_-]*$"));
    EndpointId: "Names an endpoint: an `Id` that is not reserved for a path, such as `serverless`" =>
        id();
    JobId: "Names a job; opaque" => text().pattern(Some("^[A-Za-z0-9_-]+$"));
    Name: "A display name" =>
        text().min_length(Some(1)).max_length(Some(NAME_CHARS_MAX));
    HandlerName: "`name:tag`, or `name` for `name:latest`" => text().pattern(Some(format!(
        "^{part}(:{part})?$", part = format_args!("[A-Za-z0-9._-]{{1,{NAME_BYTES_MAX}}}"),
    )));
    ImageName: "Names an uploaded handler, `name:tag` or `name@sha256:…`, or an image in a registry: `registry.example/name:tag`" =>
        text().min_length(Some(1)).max_length(Some(IMAGE_NAME_CHARS_MAX));
    RegistryHost: "A registry's host as images name it: `registry.example`, `registry.example:5000`" =>
        text().max_length(Some(HOST_PATTERN_BYTES_MAX))
            .format(Some(SchemaFormat::Custom("registry-host".to_owned())));
    RegistryUser: "A user name at a registry; no colon, no control characters" =>
        text().min_length(Some(1)).max_length(Some(REGISTRY_SECRET_BYTES_MAX))
            .pattern(Some(r"^[^:\x00-\x1f\x7f-\x9f]+$"));
    RegistryPassword: "A password at a registry; no control characters" =>
        text().min_length(Some(1)).max_length(Some(REGISTRY_SECRET_BYTES_MAX))
            .pattern(Some(r"^[^\x00-\x1f\x7f-\x9f]+$"));
    Port: "`<1 to 65535>/http` or `…/tcp`" => text().pattern(Some(concat!(
        "^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])",
        "/(http|tcp)$",
    ))).max_length(Some("65535/http".len()));
    Ports: "Ports as `number/protocol`; shown, never opened" => list::<Port>(PORTS_MAX);
    Arguments: "A part of the handler's arguments" => array(
        text().max_length(Some(ARGUMENT_CHARS_MAX)).into(), ARGUMENTS_MAX);
    ActionEndpoints: "The endpoints whose jobs an action is for" => list::<Id>(ACTION_ENDPOINTS_MAX);
    Statuses: "Any of these states of jobs" => list::<Status>(JobStatus::ALL.len());
    IdPrefix: "The beginning of the ids of jobs" =>
        text().min_length(Some(1)).max_length(Some(NAME_BYTES_MAX));
    ErrorPart: "A text that the errors of jobs contain, letter by letter" =>
        text().min_length(Some(1)).max_length(Some(FILTER_ERROR_CHARS_MAX));
    Environment: "Variables by name" => ObjectBuilder::new()
        .property_names(Some(Schema::from(
            text().pattern(Some(r"^[^=\x00]+$")).max_length(Some(ENV_NAME_CHARS_MAX)),
        )))
        .additional_properties(Some(Schema::from(
            text().pattern(Some(r"^[^\x00]*$")).max_length(Some(ENV_VALUE_CHARS_MAX)),
        )))
        .max_properties(Some(ENV_VARIABLES_MAX));
    Readme: "A description in Markdown" => text().max_length(Some(README_CHARS_MAX));
    RateLimits: "Limits by operation" => ObjectBuilder::new()
        .property_names(Some(Schema::from(one_of(RATE_LIMITED_OPERATIONS))))
        .additional_properties(Some(Ref::from_schema_name("RateLimit")))
        .max_properties(Some(RATE_LIMITED_OPERATIONS.len()));
    DataCenter: "A place" => text().max_length(Some(NAME_CHARS_MAX));
    S3Field: "A setting of an object store" => text().max_length(Some(S3_FIELD_CHARS_MAX));
    Tags: "Pairs of a key and a value without control characters; keys have at most 64 bytes, values 256, all pairs together 2 KiB. Handlers do not see them" =>
        ObjectBuilder::new()
            .property_names(Some(Schema::from(
                text().pattern(Some("^[a-z0-9._/-]+$")).max_length(Some(TAG_KEY_BYTES_MAX)),
            )))
            .additional_properties(Some(Schema::from(
                text()
                    .max_length(Some(TAG_VALUE_BYTES_MAX))
                    .pattern(Some("^[^\\u0000-\\u001f\\u007f-\\u009f]*$")),
            )))
            .max_properties(Some(TAGS_MAX));
    AllowedHosts: "Patterns of hosts" => list::<HostPattern>(ALLOWED_HOSTS_MAX);
    HostNames: "Host names" => list::<HostName>(HTTP_HOSTS_MAX);
    HostName: "`www.example.com`" => text().max_length(Some(DOMAIN_BYTES_MAX));
    CorsOrigins: "Origins" => list::<CorsOrigin>(CORS_LIST_MAX);
    CorsOrigin: "`https://example.com`, `http://localhost:3000`, or `*` for all" =>
        text().max_length(Some(CORS_ORIGIN_BYTES_MAX));
    HeaderNames: "Names of headers" => list::<HeaderName>(CORS_LIST_MAX);
    HeaderName: "The name of a header" =>
        text().pattern(Some("^[A-Za-z0-9_-]+$")).max_length(Some(HEADER_NAME_BYTES_MAX));
    NetworkVolumes: "One id, or none" => list::<OptionalId>(NETWORK_VOLUMES_MAX);
    CallEndpoints: "Ids of endpoints" => list::<EndpointId>(CALL_ENDPOINTS_MAX);
    Scopes: "Scopes" => list::<Scope>(KeyScope::ALL.len()).min_items(Some(1));
    KeyEndpoints: "Ids of endpoints of the key's owner" => list::<EndpointId>(KEY_ENDPOINTS_MAX);
    HostPattern: "`example.com`, `*.example.com`, `example.com:8443` or an address; `!private` at the end permits private addresses" =>
        text().format(Some(SchemaFormat::Custom("host-pattern".to_owned())))
            .max_length(Some(HOST_PATTERN_BYTES_MAX));
    BackupBytes: "A tar archive" =>
        text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    FileBytes: "The content of a file" =>
        text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    VolumeFilePath: "Names divided by `/`, none of them empty, `.` or `..`" =>
        text().min_length(Some(1)).max_length(Some(VOLUME_PATH_BYTES_MAX));
    VolumeDirectory: "Names divided by `/`, none of them empty, `.` or `..`; empty for the root" =>
        text().max_length(Some(VOLUME_PATH_BYTES_MAX));
    ComponentBytes: "A WebAssembly component" =>
        text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    Digest: "A SHA-256" => text().pattern(Some("^[0-9a-f]{64}$"));
    Time: "RFC 3339, in UTC" => text().format(Some(SchemaFormat::Custom("date-time".to_owned())));
    FilterTime: "RFC 3339, from 1970 on; a date alone is its first moment" =>
        text().format(Some(SchemaFormat::Custom("date-time".to_owned())))
            .max_length(Some(TIME_CHARS_MAX));
    WebhookUrl: "An absolute http or https URL without user name and password" =>
        text().format(Some(SchemaFormat::Custom("uri".to_owned())))
            .max_length(Some(WEBHOOK_URL_BYTES_MAX));
    OpenAiRoute: "A path; may contain slashes" => text().min_length(Some(1));
    Cursor: "A position in a list; opaque" => text().pattern(Some("^[0-9a-f]{16}$"));
    PageCursor: "A position in a list; opaque" => text();
    IdempotencyKey: "Chosen by the client" =>
        text().pattern(Some("^[!-~]([ -~]*[!-~])?$")).min_length(Some(1)).max_length(Some(IDEMPOTENCY_KEY_CHARS_MAX));
    Status: "A job's state" => one_of(JobStatus::ALL.map(JobStatus::as_str));
    Scope: "A permission of a key" => one_of(KeyScope::ALL.map(KeyScope::as_str));
    BucketSize: "A part of the calendar, in UTC; a week begins on Monday" =>
        one_of(grouping::BucketSize::ALL.map(grouping::BucketSize::as_str))
            .default(Some(grouping::BucketSize::Day.as_str().into()));
    BillingGrouping: "The property by which jobs are grouped" =>
        one_of(Grouping::ALL.map(Grouping::field))
            .default(Some(Grouping::Endpoint.field().into()));
    Metering: "How a handler's computation is metered" =>
        one_of(WireMetering::ALL.map(WireMetering::as_str));
    ExecutionTimeout: "Time for one attempt, in milliseconds" => integer(EXECUTION_TIMEOUT_MS);
    CronPattern: "The pattern of times" =>
        text().format(Some(SchemaFormat::Custom("cron".to_owned())))
            .max_length(Some(CRON_BYTES_MAX));
    TimeZone: "The name of a time zone" =>
        text().format(Some(SchemaFormat::Custom("time-zone".to_owned())))
            .max_length(Some(TIME_ZONE_BYTES_MAX));
    EveryMs: "Milliseconds between two times" => integer(EVERY_MS);
    KeyWeights: "The weight of each key" => ObjectBuilder::new()
        .property_names(Some(Schema::from(
            text().min_length(Some(1)).max_length(Some(JOB_KEY_BYTES_MAX)),
        )))
        .additional_properties(Some(Schema::from(integer(KEY_WEIGHT))))
        .max_properties(Some(KEY_WEIGHTS_MAX));
    JobKeyText: "What jobs have in common that have turns together, such as a customer" =>
        text().min_length(Some(1)).max_length(Some(JOB_KEY_BYTES_MAX));
    Priority: "A head start of so many minutes" =>
        integer(PRIORITY).default(Some(PRIORITY.default.into()));
    Debounce: "How long a job waits that a later one may replace, in milliseconds" =>
        integer(DEBOUNCE_MS);
    Delay: "How long a job waits before it may start, in milliseconds" => integer(DELAY_MS);
    Ttl: "Lifetime of a job from its submission or due time, in milliseconds" =>
        integer(TTL_MS).default(Some(TTL_MS.default.into()));
    RetentionTime: "How long such a job is kept after its end, in milliseconds (up to 30 days), also beyond its ttl" =>
        integer(RETENTION_MS);
    VolumeSize: "In gigabytes of 2^30 bytes; can only grow" => integer(VOLUME_GB);
    MountPath: "An absolute path without `.`, `..` and empty parts, and not `/tmp`; empty: `/workspace`" =>
        text().max_length(Some(MOUNT_PATH_BYTES_MAX)).pattern(Some(
            "^$|^(?!/tmp$)(/(\\.{0,2}[!--0-~][!-.0-~]*|\\.{3}[!-.0-~]*))+$",
        ));
    KeyLife: "Seconds after which the key is refused" => integer(KEY_LIFETIME_S);
    Gigabytes: "In gigabytes of 2^30 bytes" =>
        integer(Bounds { min: 0, default: 0, max: u32::MAX.into() });
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug)]
pub struct Whole<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> ToSchema for Whole<MIN, MAX> {}

impl<const MIN: u64, const MAX: u64> PartialSchema for Whole<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        Schema::from(integer(Bounds { min: MIN, default: MIN, max: MAX })).into()
    }
}

/// The same, or 0.
#[derive(Debug)]
pub struct ZeroOr<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> ToSchema for ZeroOr<MIN, MAX> {}

impl<const MIN: u64, const MAX: u64> PartialSchema for ZeroOr<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        match MIN {
            1 => Whole::<0, MAX>::schema(),
            _ => OneOfBuilder::new()
                .item(Whole::<0, 0>::schema())
                .item(Whole::<MIN, MAX>::schema())
                .into(),
        }
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn id() -> ObjectBuilder {
    text().pattern(Some("^[A-Za-z0-9_-]+$")).min_length(Some(1)).max_length(Some(NAME_BYTES_MAX))
}

fn list<T: PartialSchema>(count_max: usize) -> ArrayBuilder {
    array(T::schema(), count_max)
}

fn array(items: RefOr<Schema>, count_max: usize) -> ArrayBuilder {
    ArrayBuilder::new().items(items).max_items(Some(count_max))
}

fn one_of<const N: usize>(words: [&'static str; N]) -> ObjectBuilder {
    text().enum_values(Some(words))
}

fn integer(bounds: Bounds) -> ObjectBuilder {
    let Bounds { min, max, .. } = bounds;
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(min)).maximum(Some(max))
}

/// The schema of `T`, an object, after this change. It is written out, because generators of
/// clients cannot merge an `allOf` whose parts differ in what may be null.
pub(crate) fn changed<T: ToSchema>(change: impl FnOnce(&mut Object)) -> RefOr<Schema> {
    let mut schema = T::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        change(object);
    }
    schema
}

/// Makes these fields required and not null.
pub(crate) fn require(object: &mut Object, fields: &[&str]) {
    for field in fields {
        if let Some(property) = object.properties.get_mut(*field) {
            *property = not_null(property.clone());
        }
        object.required.push((*field).to_owned());
    }
}

/// A schema without its alternative null.
fn not_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    let is_null = |schema: &RefOr<Schema>| {
        matches!(schema, RefOr::T(Schema::Object(Object { schema_type, .. }))
            if *schema_type == SchemaType::Type(Type::Null))
    };
    match schema {
        RefOr::T(Schema::OneOf(mut one_of)) => {
            one_of.items.retain(|item| !is_null(item));
            match &*one_of.items {
                [only] => only.clone(),
                _ => Schema::OneOf(one_of).into(),
            }
        }
        RefOr::T(Schema::Object(mut object)) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|kind| *kind != Type::Null);
            }
            Schema::Object(object).into()
        }
        other => other,
    }
}

/// Defines a schema as that of another type after a change.
macro_rules! variant {
    ($(#[$doc:meta])* $name:ident = $input:ty, $change:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::schema::changed::<$input>($change)
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(
                into: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
            ) {
                into.push((<$input>::name().into(), <$input as utoipa::PartialSchema>::schema()));
                <$input>::schemas(into);
            }
        }
    };
}
pub(crate) use variant;
