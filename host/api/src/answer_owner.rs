//! The owner whose client reads a large answer: the host bounds the answers that clients have not read
//! yet, with a share for each owner.
//!
//! **Cost.** One allocation for each answer of more than 64 KiB, nothing for others.

use axum::body::HttpBody as _;
use axum::response::Response;
use gristmill_core::id::OwnerId;

/// Answers of at most this size have no owner, since the host does not count them.
const SMALL_BYTES: u64 = 64 << 10;

/// The owner of the calling key, among the extensions of a large answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerOwner(pub OwnerId);

/// Adds the owner to an answer, if its size is known and large.
pub(crate) fn record(response: &mut Response, owner: &OwnerId) {
    if response.body().size_hint().lower() > SMALL_BYTES {
        response.extensions_mut().insert(AnswerOwner(owner.clone()));
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_large_answers_have_an_owner() {
        let owner = OwnerId::new("a").unwrap();
        for (bytes, expected) in
            [(0, None), (64 << 10, None), ((64 << 10) + 1, Some(AnswerOwner(owner.clone())))]
        {
            let mut response = Response::new(Body::from(vec![0; bytes]));
            record(&mut response, &owner);
            assert_eq!(response.extensions().get().cloned(), expected, "{bytes}");
        }
    }
}
