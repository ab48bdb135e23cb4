//! The owner whose client reads an answer: the host bounds the answers that clients have not read
//! yet, with a share for each owner.
//!
//! **Cost.** One allocation for each answer of more than 64 KiB or of unknown size, and for each
//! one on HTTP/2; nothing for others.

use axum::body::HttpBody as _;
use axum::http::Version;
use axum::response::Response;
use gristmill_core::id::OwnerId;
use gristmill_edge::{AnswerOwner, SMALL_ANSWER_BYTES};

/// Adds the owner to the answer of a call, unless the answer is known to be small and the only one
/// of its connection. The pieces of an answer of unknown size may be large.
pub(crate) fn record(response: &mut Response, version: Version, owner: Option<&OwnerId>) {
    let bytes = response.body().size_hint().exact();
    if version != Version::HTTP_2 && bytes.is_some_and(|bytes| bytes <= SMALL_ANSWER_BYTES as u64) {
        return;
    }
    if let Some(owner) = owner {
        response.extensions_mut().insert(AnswerOwner(owner.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;

    use super::*;

    #[test]
    fn answers_have_an_owner_unless_they_are_known_to_be_small() {
        let owner = OwnerId::new("a").unwrap();
        let of_version = |version, body: Body, owner: Option<&OwnerId>| {
            let mut response = Response::new(body);
            record(&mut response, version, owner);
            response.extensions().get::<AnswerOwner>().map(|AnswerOwner(owner)| owner.clone())
        };
        let of = |body, owner| of_version(Version::HTTP_11, body, owner);
        for (bytes, expected) in
            [(0, None), (64 << 10, None), ((64 << 10) + 1, Some(owner.clone()))]
        {
            let whole = || Body::from(vec![0; bytes]);
            assert_eq!(of(whole(), Some(&owner)), expected, "{bytes}");
            assert_eq!(of(whole(), None), None, "{bytes}");
        }
        let pieces = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n"))]);
        assert_eq!(of(Body::from_stream(pieces), Some(&owner)), Some(owner.clone()), "a stream");
        let small = of_version(Version::HTTP_2, Body::from("small"), Some(&owner));
        assert_eq!(small, Some(owner), "one of many on its connection");
    }
}
