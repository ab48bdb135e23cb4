//! The header by which a client asks for the instance that has answered it before, on an endpoint
//! that reuses instances: `X-Gristmill-Instance: NAME`, or `strict NAME` for that one only.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use gristmill_core::http_call::{Affinity, InstanceName, NoResponse};
use gristmill_core::http_calls::NoAnswer;

use crate::answer::error::ApiError;

const INSTANCE: HeaderName = HeaderName::from_static("x-gristmill-instance");

/// The instance that a request asks for, without the header for the handler.
///
/// # Errors
/// 404 when the client insists on a name of no instance.
pub(super) fn wanted(headers: &mut HeaderMap) -> Result<Option<Affinity>, ApiError> {
    let Some(value) = headers.remove(INSTANCE) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let (name, is_strict) = match text.strip_prefix("strict ") {
        Some(name) => (name.trim_start(), true),
        None => (text, false),
    };
    match name.parse() {
        Ok(instance) => Ok(Some(Affinity { instance, is_strict })),
        Err(_) if is_strict => Err(NoAnswer::from(NoResponse::InstanceGone).into()),
        Err(_) => Ok(None),
    }
}

/// Adds the name of its instance to an answer, if that may answer again.
pub(super) fn name(answer: &mut Response<Body>) {
    // A handler's own would be no name.
    answer.headers_mut().remove(INSTANCE);
    let name = answer.extensions().get::<InstanceName>().map(InstanceName::to_string);
    if let Some(Ok(name)) = name.map(HeaderValue::try_from) {
        answer.headers_mut().insert(INSTANCE, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_wanted_or_insisted_on() {
        let name = InstanceName::generate();
        for (text, expected) in [
            (name.to_string(), Ok(Some((name, false)))),
            (format!("strict {name}"), Ok(Some((name, true)))),
            ("other".to_owned(), Ok(None)),
            ("strict other".to_owned(), Err(())),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(INSTANCE, HeaderValue::try_from(&text).unwrap());
            let found = wanted(&mut headers).map_err(|_| ());
            let found = found.map(|found| found.map(|one| (one.instance, one.is_strict)));
            assert_eq!(found, expected, "{text}");
            assert!(headers.is_empty());
        }
    }
}
