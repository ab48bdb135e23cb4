//! `GET /openapi.json`: both APIs as an OpenAPI 3.1 document, generated from the types that the
//! routes use.
//!
//! A route is added by `routes!(…)` together with its `#[utoipa::path]`, so every route is
//! documented. A handler's attribute describes its own properties. The common properties of an API
//! are added here: the path's parameters, the key, and the refusals. The document is built once,
//! with the router.

pub(crate) mod docs_page;
mod endpoints;
mod examples;
mod links;
mod operations;
pub(crate) mod parameters;
pub(crate) mod refusals;
pub(crate) mod tag;

use axum::Extension;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use operations::{BY_POST, SDK, operations, rename};
use refusals::UnauthenticatedRefused;
use utoipa::OpenApi as _;
use utoipa::ToSchema as _;
use utoipa::openapi::path::{PathItem, Paths};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Required};

use gristmill_core::access::key::Scope;
use gristmill_wire::ErrorBody;
use gristmill_wire::management::RateLimit;
use gristmill_wire::queue::{StatusDocument, StreamChunk, StreamPage};

use crate::answer::error::{ApiError, ErrorCode};
use crate::answer::json::json_response;
use crate::identity::caller::AnyReader;
use crate::request::brand::{NEUTRAL, PLATFORM_FLAG, branded_field, branded_flag};

/// Stands for every other status code.
const DEFAULT: &str = "default";

/// The path of the document.
const DOCUMENT: &str = "/openapi.json";

/// The key as `Bearer KEY`.
const BEARER: &str = "bearer";

/// The key as the header's whole value.
const BARE_KEY: &str = "bareKey";

/// The format of `/stream`: the only difference between the two mounts of the queue API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamShape {
    /// The documented array.
    Array,
    /// `{"status":…,"stream":[…]}`, which the official SDKs read.
    Object,
}

/// The document's text.
#[derive(Clone)]
pub(crate) struct Document(Bytes);

/// The beginning of the document: everything except the routes.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Gristmill", description = "Queue API of the endpoints, and management API."),
    paths(get, docs_page::page),
    components(schemas(ErrorBody, RateLimit, StreamPage)),
    tags(
        (name = tag::JOBS, description = "Submit, read, stream and stop an endpoint's jobs"),
        (name = tag::HANDLERS, description = "Uploaded components"),
        (name = tag::TEMPLATES, description = "A handler with its arguments and environment"),
        (name = tag::REGISTRY_AUTHS, description = "Credentials for fetching images"),
        (name = tag::ENDPOINTS, description = "Handlers with workers, limits and permissions"),
        (name = tag::VOLUMES, description = "Persistent directories for the handlers of endpoints"),
        (name = tag::SCHEDULES, description = "Jobs at certain times"),
        (name = tag::KEYS, description = "API keys"),
        (name = tag::BILLING, description = "What was used"),
        (name = tag::HOST, description = "The host itself"),
    ),
)]
struct Base;

/// The document without the routes.
pub(crate) fn base() -> OpenApi {
    let mut document = Base::openapi();
    document.paths.paths.extend(below_v1(&document.paths));
    let components = document.components.get_or_insert_default();
    components.responses = refusals::components();
    let bearer = Http::new(HttpAuthScheme::Bearer);
    let bare = ApiKeyValue::with_description("Authorization", "The key alone");
    components.security_schemes.extend([
        (BEARER.to_owned(), SecurityScheme::Http(bearer).into()),
        (BARE_KEY.to_owned(), SecurityScheme::ApiKey(ApiKey::Header(bare)).into()),
    ]);
    document
}

/// The document among the routes of the management API, which refuse parameters that they do not
/// have.
fn below_v1(base: &Paths) -> Option<(String, PathItem)> {
    let (path, item) = base.paths.iter().find(|(path, _)| path.as_str() == DOCUMENT)?;
    let mut item = item.clone();
    for operation in operations(&mut item) {
        rename(operation, |id| format!("{id}OfV1"));
        refusals::add(&mut operation.responses, &[ErrorCode::BadRequest]);
    }
    Some((format!("/v1{path}"), item))
}

/// Documents that the calls need a key with this scope as `Bearer KEY`, and the refusals for it.
pub(crate) fn behind_bearer(paths: &mut Paths, scope: Scope) {
    for operation in paths.paths.values_mut().flat_map(operations) {
        operation.security = Some(vec![requirement(BEARER, scope)]);
        let refused = [ErrorCode::Unauthorized, ErrorCode::RateLimited, ErrorCode::Unavailable];
        refusals::add(&mut operation.responses, &refused);
    }
}

/// Documents that the calls refuse query parameters that they do not have.
pub(crate) fn refuse_unknown_query(paths: &mut Paths) {
    for operation in paths.paths.values_mut().flat_map(operations) {
        refusals::add(&mut operation.responses, &[ErrorCode::BadRequest]);
    }
}

/// Documents that the calls need a key with this scope in either form, and the refusals of the
/// admission layer.
pub(crate) fn document_admission(paths: &mut Paths, scope: Scope) {
    let refused = [
        ErrorCode::Unauthorized,
        ErrorCode::NotFound,
        ErrorCode::Unavailable,
        ErrorCode::RateLimited,
    ];
    for operation in paths.paths.values_mut().flat_map(operations) {
        operation.security = Some(vec![requirement(BEARER, scope), requirement(BARE_KEY, scope)]);
        refusals::add(&mut operation.responses, &refused);
    }
}

/// Documents changes as `POST …/update`.
pub(crate) fn document_by_post(paths: &mut Paths) {
    let patched = std::mem::take(&mut paths.paths);
    let post = |(path, mut item): (String, PathItem)| {
        item.post = item.patch.take();
        operations(&mut item).for_each(|update| rename(update, |id| format!("{id}{BY_POST}")));
        (format!("{path}/update"), item)
    };
    paths.paths = patched.into_iter().map(post).collect();
}

/// Changes the paths.
pub(crate) fn rename_paths(paths: &mut Paths, name: impl Fn(&str) -> String) {
    let before = std::mem::take(&mut paths.paths);
    paths.paths = before.into_iter().map(|(path, item)| (name(&path), item)).collect();
}

/// Completes the calls of OpenAI's clients: a body is for POST, and may be missing; and all
/// refusals have OpenAI's format, which their attribute describes.
pub(crate) fn in_openai_shape(paths: &mut Paths) {
    for item in paths.paths.values_mut() {
        if let Some(get) = &mut item.get {
            get.request_body = None;
        }
    }
    for operation in paths.paths.values_mut().flat_map(operations) {
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            body.required = Some(Required::False);
        }
        operation.responses.responses.retain(|status, _| status == "200" || status == DEFAULT);
    }
}

fn requirement(scheme: &str, scope: Scope) -> SecurityRequirement {
    SecurityRequirement::new(scheme, [scope.as_str()])
}

/// Completes the document with the common properties of all operations, and with the operator's
/// brand.
pub(crate) fn finish(mut document: OpenApi, brand: &str) -> Document {
    // A document cannot express that a placeholder stands for several parts of a path.
    rename_paths(&mut document.paths, |path| path.replace("{*", "{"));
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            let parameters = operation.parameters.get_or_insert_default();
            let of_path = parameters::of_path(path).into_iter().map(RefOr::T);
            parameters.splice(0..0, of_path);
            if !operation.responses.responses.contains_key(DEFAULT) {
                let always = [ErrorCode::MethodNotAllowed, ErrorCode::Internal];
                refusals::add(&mut operation.responses, &always);
            }
        }
        // One handler answers both methods; the operations need different names.
        if let (Some(get), Some(post)) = (&item.get, &mut item.post)
            && get.operation_id == post.operation_id
        {
            rename(post, |id| id.replacen("Get", "Post", 1));
        }
        operations(item).for_each(examples::add);
    }
    show_closed(&mut document);
    show_open(&mut document);
    show_brand(&mut document, brand);
    let text = document.to_json().expect("the document is plain data");
    Document(text.into())
}

/// Completes the documentation of one mount of the queue API: the two differ in the answer of
/// `/stream`, and the operations of the second need different names.
pub(crate) fn show_shape(document: &mut OpenApi, shape: StreamShape) {
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            if path.contains("/stream/")
                && let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200")
            {
                if shape == StreamShape::Object {
                    let page = Content::new(Some(Ref::from_schema_name(StreamPage::name())));
                    answer.content.insert("application/json".to_owned(), page.into());
                }
                answer.content.insert("text/event-stream".to_owned(), events().into());
            }
            if shape == StreamShape::Object {
                rename(operation, |id| format!("{SDK}{id}"));
            }
        }
    }
    links::add(&mut document.paths, if shape == StreamShape::Object { SDK } else { "" });
}

fn events() -> Content {
    let text = "An event for each chunk, its index as `id`, or `ATTEMPT-INDEX` from the second attempt \
                on, and a `StreamChunk` as `data`; `restart` with `id` and `attempt` when the position \
                is in the stream of another attempt: discard the chunks of that attempt; at last `end` \
                with the job's `id`, `status` and `error`, or `deleted` with `id` and `error` if the job \
                is deleted meanwhile";
    Content::new(Some(ObjectBuilder::new().schema_type(Type::String).description(Some(text))))
}

/// Documents that the answers which the host writes by hand have no further fields. Clients read
/// such answers of newer hosts too, so the types themselves accept further fields.
fn show_closed(document: &mut OpenApi) {
    let Some(components) = &mut document.components else { return };
    for name in [StatusDocument::name(), StreamChunk::name(), StreamPage::name()] {
        if let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(&*name) {
            schema.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
}

/// Documents that objects without documented fields may have any. Some generators of clients take
/// the absence of this sentence for an object that is always empty. Removes defaults that are null.
fn show_open(document: &mut OpenApi) {
    let components = document.components.iter_mut().flat_map(|all| all.schemas.values_mut());
    components.for_each(open);
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        let body = match &mut operation.request_body {
            Some(RefOr::T(body)) => Some(&mut body.content),
            Some(RefOr::Ref(_)) | None => None,
        };
        let answers =
            operation.responses.responses.values_mut().filter_map(|answer| match answer {
                RefOr::T(answer) => Some(&mut answer.content),
                RefOr::Ref(_) => None,
            });
        let body = body.into_iter().flat_map(|content| content.values_mut());
        for content in body.chain(answers.flat_map(|content| content.values_mut())) {
            if let RefOr::T(content) = content {
                content.schema.iter_mut().for_each(open);
            }
        }
    }
}

fn open(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    // A number that is absent by default is not null by default.
    object.default.take_if(|default| default.is_null());
    object.properties.values_mut().for_each(open);
    let is_object = object.schema_type == SchemaType::Type(Type::Object);
    if is_object && object.properties.is_empty() && object.additional_properties.is_none() {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
    }
}

/// Adds the operator's spelling of the fields with a brand.
fn show_brand(document: &mut OpenApi, brand: &str) {
    if brand == NEUTRAL {
        return;
    }
    let schemas = document.components.iter_mut().flat_map(|all| all.schemas.get_mut("Template"));
    for schema in schemas {
        if let RefOr::T(Schema::Object(template)) = schema
            && let Some(field) = template.properties.get("isPlatform").cloned()
        {
            let branded = branded_field(brand);
            template.properties.insert(branded.clone(), field);
            template.required.push(branded);
        }
    }
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        let parameters = operation.parameters.get_or_insert_default();
        let flag = parameters.iter().find_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.name == PLATFORM_FLAG => Some(parameter.clone()),
            RefOr::T(_) | RefOr::Ref(_) => None,
        });
        parameters.extend(flag.map(|mut flag| {
            flag.name = branded_flag(brand);
            RefOr::T(flag)
        }));
    }
}

/// The OpenAPI document of this host.
///
/// With a key it also has the operations of the endpoints whose handlers have an input schema and
/// to which the key may submit jobs: 2 MiB at most, in the order of the endpoints' ids.
/// `x-endpoints-left-out` lists up to 1,000 of the others, and `x-endpoints-left-out-count` is
/// their number. Such a call counts for the limit of the management API.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "GetOpenApi", tag = tag::HOST, security(()),
    responses((status = 200, description = "This document", body = Object), UnauthenticatedRefused),
)]
pub(crate) async fn get(
    Extension(Document(text)): Extension<Document>,
    AnyReader { reader, .. }: AnyReader,
) -> Result<Response, ApiError> {
    let Some((state, key)) = reader else { return Ok(json_response(Body::from(text))) };
    let (endpoints, caller) = (state.control.endpoints.clone(), key.clone());
    let write = move || {
        let found = endpoints::with_schemas(endpoints.deployments(&caller), &caller);
        Ok(if found.is_empty() { text } else { endpoints::add(&text, &found) })
    };
    let text = state.pages.write(&key, write).await?;
    Ok(json_response(Body::from(text)))
}
