//! Lists, page by page. A list stays the bare array that clients expect; the position of the next
//! page is in its `Link` header (RFC 8288): `<…?limit=2&cursor=…>; rel="next"`. A cursor is the
//! position of an element, which is unique in its list. Additions and removals between two pages
//! therefore neither skip nor repeat elements that were present all the time.
//!
//! **Bounds.** A page ends after `limit` elements, or after [1 MiB](Elements) of them, but has one
//! at least. **Cost.** Each page sorts the positions of all elements after the cursor. It is
//! written on other threads than those that serve calls.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use gristmill_core::access::key::ApiKey;
use gristmill_core::limits::PAGE;
use serde::Serialize;

use crate::answer::elements::Elements;
use crate::answer::error::ApiError;
use crate::request::query::Query;
use crate::state::ApiState;

/// The requested page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// The position of the last element on the previous page.
    after: Option<String>,
    count_max: usize,
    /// The path below `/v1`.
    uri: Uri,
}

impl<S: Sync> FromRequestParts<S> for Page {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = Query(parts.uri.query().unwrap_or_default());
        let count_max = query.bounded("limit", PAGE)?;
        let after = query.text("cursor").map(Into::into);
        Ok(Self { after, count_max, uri: parts.uri.clone() })
    }
}

impl Page {
    /// The position behind which the page begins.
    pub(crate) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    pub(crate) fn count_max(&self) -> usize {
        self.count_max
    }

    /// Creates the page with `select`, which calls [`of`](Self::of), when it is the caller's turn.
    ///
    /// # Errors
    /// Those of `select`; 500 when it panics.
    pub(crate) async fn make(
        self,
        state: &ApiState,
        caller: &ApiKey,
        select: impl FnOnce(Self) -> Result<Paged, ApiError> + Send + 'static,
    ) -> Result<Paged, ApiError> {
        state.pages.write(caller, move || select(self)).await
    }

    /// Selects the page from the elements of the list, in any order. `cursor_position` returns the
    /// position of an element: a text that no other element has.
    ///
    /// # Errors
    /// 500 when a document has no JSON form.
    pub(crate) fn of<T, D: Serialize>(
        self,
        things: impl IntoIterator<Item = T>,
        cursor_position: impl Fn(&T) -> String,
        mut document: impl FnMut(T) -> D,
    ) -> Result<Paged, ApiError> {
        let mut placed: Vec<_> = things
            .into_iter()
            .map(|thing| (cursor_position(&thing), thing))
            .filter(|(cursor_position, _)| {
                self.after.as_ref().is_none_or(|after| cursor_position > after)
            })
            .collect();
        placed.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let (mut elements, mut last, mut next) = (Elements::default(), None, None);
        for (count, (cursor_position, thing)) in placed.into_iter().enumerate() {
            if count >= self.count_max || !elements.add(&document(thing))? {
                next = last.and_then(|last: String| self.link(&last));
                break;
            }
            last = Some(cursor_position);
        }
        Ok(Paged { json: elements.into_json(), next })
    }

    /// The link to the next page, with all other parameters of the request.
    fn link(&self, cursor_position: &str) -> Option<HeaderValue> {
        let given = url::form_urlencoded::parse(self.uri.query().unwrap_or_default().as_bytes());
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(given.filter(|(name, _)| name != "cursor"))
            .append_pair("cursor", cursor_position)
            .finish();
        HeaderValue::try_from(format!("</v1{}?{query}>; rel=\"next\"", self.uri.path())).ok()
    }
}

/// A page of a list, as an answer.
#[derive(Debug)]
pub(crate) struct Paged {
    json: Vec<u8>,
    next: Option<HeaderValue>,
}

impl Paged {
    /// The only page of an empty list.
    pub(crate) fn empty() -> Self {
        Self { json: b"[]".to_vec(), next: None }
    }
}

impl IntoResponse for Paged {
    fn into_response(self) -> Response {
        let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let link = self.next.map(|next| [(header::LINK, next)]);
        (json, link, self.json).into_response()
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::limits::PAGE_BYTES_MAX;

    use super::*;

    async fn page(uri: &str) -> Result<Page, ApiError> {
        let (mut parts, ()) = axum::http::Request::get(uri).body(()).unwrap().into_parts();
        Page::from_request_parts(&mut parts, &()).await
    }

    /// All pages, by following their links.
    async fn walk(first: &str, things: &[&str]) -> Vec<Vec<String>> {
        let mut pages = vec![];
        let mut uri = first.to_owned();
        loop {
            let things = things.iter().map(|thing| (*thing).to_owned());
            // The position of an element is bounded, its document is not.
            let cursor_position = |thing: &String| thing.chars().take(20).collect();
            let paged =
                page(&uri).await.unwrap().of(things, cursor_position, |thing| thing).unwrap();
            pages.push(serde_json::from_slice(&paged.json).unwrap());
            let Some(next) = paged.next else { return pages };
            let next = next.to_str().unwrap().strip_prefix("</v1").unwrap();
            uri = next.strip_suffix(">; rel=\"next\"").unwrap().to_owned();
        }
    }

    #[tokio::test]
    async fn pages_follow_each_other() {
        let things = ["b", "ä \"&=", "a", "c d", "c"];
        let pages = walk("/things?limit=2&flag=x%20y", &things).await;
        assert_eq!(pages, [vec!["a", "b"], vec!["c", "c d"], vec!["ä \"&="]]);
        assert_eq!(walk("/things", &things).await.len(), 1, "no limit, no pages");
        assert_eq!(walk("/things?limit=5", &things).await.len(), 1);
        assert_eq!(walk("/things?limit=1", &[]).await, [Vec::<String>::new()]);
    }

    #[tokio::test]
    async fn a_page_ends_after_a_mib_and_has_one_element_at_least() {
        let large = |name: &str, bytes: usize| format!("{name:20}{}", "x".repeat(bytes - 20));
        let half = PAGE_BYTES_MAX / 2 - 3; // two of them with `["","",` before a third one
        let things = [
            large("a", half),
            large("b", half),
            large("c", 3 * PAGE_BYTES_MAX),
            large("d", half),
            large("e", half + 1),
            large("f", 20),
        ];
        let things: Vec<&str> = things.iter().map(String::as_str).collect();
        let names = |pages: Vec<Vec<String>>| -> Vec<String> {
            let first = |thing: &String| thing.chars().take(1).collect::<String>();
            pages.iter().map(|page| page.iter().map(first).collect()).collect()
        };
        assert_eq!(names(walk("/things", &things).await), ["ab", "c", "d", "ef"]);
        assert_eq!(names(walk("/things?limit=1", &things).await), ["a", "b", "c", "d", "e", "f"]);
    }

    #[tokio::test]
    async fn the_link_keeps_the_requested_filter() {
        let paged = page("/things?limit=1&flag=x%20y").await.unwrap();
        let paged = paged.of(["a", "b"], |thing| (*thing).to_owned(), |thing| thing).unwrap();
        assert_eq!(paged.next.unwrap(), "</v1/things?limit=1&flag=x+y&cursor=a>; rel=\"next\"");
        assert_eq!(paged.json, b"[\"a\"]");
    }

    #[tokio::test]
    async fn other_numbers_are_refused() {
        for query in ["limit=0", "limit=1001", "limit=x"] {
            assert!(page(&format!("/?{query}")).await.is_err(), "{query}");
        }
    }
}
