//! The headers that a `Connection` header names: they end at the next host (RFC 9110, 7.6.1).
//!
//! The bounds of a head bound the work.

use hyper::header::{self, HeaderMap, HeaderName};

/// Removes the headers that the `Connection` headers name, but not the `Connection` headers.
pub fn remove_named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<_> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse::<HeaderName>().ok())
        .filter(|name| name != header::CONNECTION)
        .collect();
    for name in &named {
        headers.remove(name);
    }
}
