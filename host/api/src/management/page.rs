//! Lists, page by page. A list stays the bare array that clients expect; the position of the next
//! page is in its `Link` header (RFC 8288): `<…?limit=2&cursor=…>; rel="next"`. A cursor is the
//! position of an element, which is unique in its list. Additions and removals between two pages
//! therefore neither skip nor repeat elements that were present all the time.

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use gristmill_core::limits::PAGE;
use serde::Serialize;

use crate::error::ApiError;
use crate::query::Query;

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

    /// Selects the page from the elements of the list, which are in the order of their positions.
    /// `place` returns the position of an element: a text that no other element has.
    pub(crate) fn of<T, D>(
        self,
        things: impl IntoIterator<Item = T>,
        place: impl Fn(&T) -> String,
        document: impl FnMut(T) -> D,
    ) -> Paged<D> {
        let mut placed: Vec<_> = things
            .into_iter()
            .map(|thing| (place(&thing), thing))
            .filter(|(place, _)| self.after.as_ref().is_none_or(|after| place > after))
            .collect();
        placed.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let is_last = placed.len() <= self.count_max;
        placed.truncate(self.count_max);
        let next = placed.last().filter(|_| !is_last).and_then(|(place, _)| self.link(place));
        Paged {
            documents: placed.into_iter().map(|(_, thing)| thing).map(document).collect(),
            next,
        }
    }

    /// The link to the next page, with all other parameters of the request.
    fn link(&self, place: &str) -> Option<HeaderValue> {
        let given = url::form_urlencoded::parse(self.uri.query().unwrap_or_default().as_bytes());
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(given.filter(|(name, _)| name != "cursor"))
            .append_pair("cursor", place)
            .finish();
        HeaderValue::try_from(format!("</v1{}?{query}>; rel=\"next\"", self.uri.path())).ok()
    }
}

/// A page of a list, as an answer.
#[derive(Debug)]
pub(crate) struct Paged<D> {
    documents: Vec<D>,
    next: Option<HeaderValue>,
}

impl<D: Serialize> IntoResponse for Paged<D> {
    fn into_response(self) -> Response {
        let link = self.next.map(|next| [(header::LINK, next)]);
        (link, Json(self.documents)).into_response()
    }
}

#[cfg(test)]
mod tests {
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
            let paged = page(&uri).await.unwrap().of(things, String::clone, |thing| thing);
            pages.push(paged.documents);
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
    async fn what_was_asked_for_stays_in_the_link() {
        let paged = page("/things?limit=1&flag=x%20y").await.unwrap();
        let link = paged.of(["a", "b"], |thing| (*thing).to_owned(), |thing| thing).next.unwrap();
        assert_eq!(link, "</v1/things?limit=1&flag=x+y&cursor=a>; rel=\"next\"");
    }

    #[tokio::test]
    async fn other_numbers_are_refused() {
        for query in ["limit=0", "limit=1001", "limit=x"] {
            assert!(page(&format!("/?{query}")).await.is_err(), "{query}");
        }
    }
}
