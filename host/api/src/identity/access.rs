//! Whether the host requires keys, or serves every caller on its own machine (`--no-key`); and
//! which callers the listener for collectors answers, which requires none either.
//!
//! Without keys the danger is a browser on that machine, since any website can make it send
//! requests. A call must therefore name this machine as its host, which rules out a website whose
//! name resolves to this machine (DNS rebinding), and a website that sends calls must be served by
//! this machine, too. Browsers send the website in `Origin` when a call writes, and in
//! `Sec-Fetch-Site` with every call to this machine; the latter also refuses images and links of
//! another site, which have no `Origin`.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use gristmill_control::Access;

use crate::answer::error::{ApiError, ErrorCode};
use crate::request::head;

/// The relation of the calling site to the host, as the browser reports it: a website cannot set
/// this header.
pub(crate) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The kind of the call, as the browser reports it.
pub(crate) const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Refuses a call that may come from another site, if no key is required.
///
/// # Errors
/// 401 with the reason.
pub(crate) fn check<B>(access: &Access, request: &Request<B>) -> Result<(), ApiError> {
    if access.key_of_all().is_none() {
        return Ok(());
    }
    let refuse = |sentence| Err(ApiError::new(ErrorCode::Unauthorized, sentence));
    let headers = request.headers();
    let named = head::host(request.uri(), headers);
    if !named.as_ref().is_some_and(|named| is_this_machine(named.host())) {
        return refuse(
            "without keys, this host answers only calls to localhost, 127.0.0.1 or [::1]",
        );
    }
    let is_ours = |origin: &HeaderValue| {
        let url = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        url.and_then(|url| url.host().map(is_this_machine)).unwrap_or(false)
    };
    if !headers.get_all(header::ORIGIN).iter().all(is_ours) {
        return refuse("without keys, this host answers no calls of other sites (Origin)");
    }
    if is_of_other_site(headers) {
        return refuse("without keys, this host answers no calls of other sites (Sec-Fetch-Site)");
    }
    Ok(())
}

/// Refuses a call by an endpoint's own name that may come from another site, if no key is required.
/// A link to a page of the endpoint is no such call.
///
/// # Errors
/// 401 with the reason and the remedy.
pub(crate) fn check_visit(access: &Access, call: &Parts) -> Result<(), ApiError> {
    let named = head::host(&call.uri, &call.headers);
    let is_own = is_own_origin(named.as_ref(), &call.headers) && !is_of_other_site(&call.headers);
    let is_link = [Method::GET, Method::HEAD].contains(&call.method)
        && call.headers.get(&FETCH_MODE).is_some_and(|mode| mode == "navigate");
    if access.key_of_all().is_none() || is_own || is_link {
        return Ok(());
    }
    let sentence = "without keys, this host answers calls of other sites only if the endpoint's `http.cors` \
                    names their origin";
    Err(ApiError::new(ErrorCode::Unauthorized, sentence))
}

/// Whether the call comes from a page of the host that it names, or from no page.
fn is_own_origin(named: Option<&Authority>, headers: &HeaderMap) -> bool {
    let is_own = |origin: &HeaderValue| {
        let url = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        url.as_ref().and_then(Uri::authority) == named
    };
    named.is_some() && headers.get_all(header::ORIGIN).iter().all(is_own)
}

/// Refuses a call that a website may have made a browser send to the listener for collectors.
///
/// A website whose name resolves to the listener must not be answered, and only an IP address and
/// `localhost` can be no website's name. Collectors use other names too, so a call by such a name
/// is refused if it has `Accept-Language`: browsers add it to every call of a page, which may
/// change its value and cannot remove it, and collectors send none. On a loopback address a name
/// with a dot is refused in any case; on others the network decides which programs reach it.
///
/// # Errors
/// 401 with the reason and the remedy.
pub(crate) fn check_collector<B>(is_loopback: bool, request: &Request<B>) -> Result<(), ApiError> {
    let refuse = |sentence| Err(ApiError::new(ErrorCode::Unauthorized, sentence));
    let headers = request.headers();
    let named = head::host(request.uri(), headers);
    if let Some(name) = named.as_ref().map(Authority::host).filter(|host| may_be_a_website(host)) {
        if is_loopback && name.trim_end_matches('.').contains('.') {
            return refuse(
                "this address answers only calls to localhost, an IP address or a name without a dot; a proxy must \
                 send such a `Host`",
            );
        }
        if headers.contains_key(header::ACCEPT_LANGUAGE) {
            return refuse(
                "this address answers browsers, which send `Accept-Language`, only by its IP address or as \
                 localhost",
            );
        }
    }
    match is_of_other_site(headers) {
        true => refuse("this address answers no calls of other sites (Sec-Fetch-Site)"),
        false => Ok(()),
    }
}

fn is_of_other_site(headers: &HeaderMap) -> bool {
    // `none` is an address that the user typed. Other ports of this machine are `same-site`.
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    !headers.get_all(&FETCH_SITE).iter().all(is_own)
}

fn may_be_a_website(host: &str) -> bool {
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    !is_address && !is_this_machine(host)
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        // Names below it may be those of endpoints.
        Err(_) => host == "localhost",
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
