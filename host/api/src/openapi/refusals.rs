//! The documented refusals of calls: one response for each status code, made from its
//! [`ErrorCode`]s, and the sets of codes of each kind of call.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use gristmill_wire::ErrorBody;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder, Responses};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Content, Ref, RefOr};
use utoipa::{IntoResponses, ToSchema};

use crate::answer::error::{self, ErrorCode};

/// Defines sets of refusals for `responses(…)`.
macro_rules! sets {
    ($($(#[$doc:meta])* $name:ident: $($code:ident)+;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                responses(&[$(ErrorCode::$code),+])
            }
        }
    )*};
}

sets! {
    /// A value of the call is out of bounds, or the request is not possible now.
    Mistaken: BadRequest;
    /// The object in the path does not exist.
    Missing: NotFound;
    /// The object to delete is in use. A body can be invalid, too large, or incomplete.
    BodyRefused: BadRequest PayloadTooLarge UnsupportedMediaType RequestTimeout Unavailable;
    /// Too many uploads of the owner wait to be compiled.
    CompileRefused: ConcurrencyLimited;
    /// Too many files of the volume are being read or written.
    TransferRefused: ConcurrencyLimited;
    /// The file does not have the bytes.
    RangeRefused: RangeNotSatisfiable;
    /// The volume, the owner's share or the disk has no room, or a directory has the name.
    VolumeRefused: Conflict QuotaExceeded DiskFull;
    /// Another backup is being made, the data is in a database, or the host ends.
    BackupRefused: BadRequest NotImplemented Unavailable;
    /// The key of stored secrets is being replaced already, several hosts share it, or its file
    /// cannot be replaced.
    RotationRefused: Conflict NotImplemented DiskFull Unavailable;
    /// The submission's key was used with another operation or body.
    KeyReused: IdempotencyMismatch;
    /// Too many unauthenticated calls come from one address.
    UnauthenticatedRefused: RateLimited;
    /// The endpoint's queue is full, or the host's disk is.
    QueueRefused: QueueFull DiskFull;
}

fn responses(codes: &[ErrorCode]) -> BTreeMap<String, RefOr<Response>> {
    let reference = |code: &ErrorCode| {
        let status = error::status(*code);
        let response = Ref::from_response_name(component_name(status));
        (status.as_str().to_owned(), response.into())
    };
    codes.iter().map(reference).collect()
}

/// Adds refusals to an operation's own documentation.
pub(super) fn add(to: &mut Responses, codes: &[ErrorCode]) {
    to.responses.extend(responses(codes));
}

/// `PayloadTooLarge` for 413.
fn component_name(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().split(' ').collect()
}

/// The responses that all operations refer to, by name.
pub(super) fn components() -> BTreeMap<String, RefOr<Response>> {
    let mut codes: BTreeMap<StatusCode, Vec<ErrorCode>> = BTreeMap::new();
    for code in ErrorCode::ALL {
        codes.entry(error::status(code)).or_default().push(code);
    }
    codes
        .into_iter()
        .map(|(status, codes)| (component_name(status), component(status, &codes).into()))
        .collect()
}

fn component(status: StatusCode, codes: &[ErrorCode]) -> Response {
    let names: Vec<_> = codes.iter().map(|code| serde_json::json!(code).to_string()).collect();
    let title = status.canonical_reason().unwrap_or_default();
    let description = format!("{title}: {}", names.join(" or "));
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(Ref::from_schema_name(ErrorBody::name()))));
    headers(status)
        .into_iter()
        .fold(response, |response, (name, header)| response.header(name, header))
        .build()
}

fn headers(status: StatusCode) -> Vec<(&'static str, Header)> {
    let header = |kind, text| {
        let schema = ObjectBuilder::new().schema_type(kind);
        HeaderBuilder::new().description(Some(text)).schema(Some(schema)).build()
    };
    let retry_after = || {
        ("Retry-After", header(Type::Integer, "Seconds after which the client should try again"))
    };
    match status {
        StatusCode::UNAUTHORIZED => {
            vec![("WWW-Authenticate", header(Type::String, "The scheme: `Bearer`"))]
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            vec![("Accept-Encoding", header(Type::String, "The codings of a body: `identity`"))]
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            vec![("Allow", header(Type::String, "The methods that are allowed"))]
        }
        StatusCode::TOO_MANY_REQUESTS => vec![
            retry_after(),
            (
                "RateLimit",
                header(
                    Type::String,
                    "With `rate_limited` and `concurrency_limited`: the remaining calls",
                ),
            ),
            (
                "RateLimit-Policy",
                header(Type::String, "With `rate_limited` and `concurrency_limited`: the limit"),
            ),
        ],
        StatusCode::SERVICE_UNAVAILABLE => vec![retry_after()],
        _ => Vec::new(),
    }
}
