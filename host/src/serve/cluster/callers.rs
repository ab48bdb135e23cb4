//! The callers whose calls a host that stands by forwards, as far as the active host's answers have
//! shown them: a standby has no keys.
//!
//! **Promise.** A call waits for its place in turns of its client's address. Calls with a key never
//! wait for those without: each kind has places of its own. A call has a key if its connection has
//! shown a valid one, or if the active host has answered another call with the same credentials as
//! one with a key; then its connection counts for that key at once. A call without credentials is
//! refused here for as long as the active host refuses its address, so that a flood does not reach
//! that host.
//!
//! **Bounds.** [`STRANGERS_MAX`] places for calls without a key, of which an address has [a
//! share](Permits::for_work), and the rest of [`CALLS_MAX`] for the others; [`CREDENTIALS_MAX`] and
//! [`ADDRESSES_MAX`] entries of some bytes. **Cost.** Two locks and a hash for a call.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use gristmill_core::id::{KeyId, OwnerId};
use gristmill_core::sharing::permits::{Permit, Permits};
use gristmill_edge::CallOrigin;
use hyper::{HeaderMap, Response, StatusCode, header};
use parking_lot::Mutex;

use super::calls::CALLS_MAX;

/// Most forwarded calls without a key.
const STRANGERS_MAX: usize = 1_024;

/// Most credentials that are known to be valid. With one more, all are forgotten, and shown again.
const CREDENTIALS_MAX: usize = 4_096;

/// Most addresses that are refused here; further ones are refused by the active host.
const ADDRESSES_MAX: usize = 100_000;

/// Longest refusal without a look at the active host.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// The headers with which a caller shows who it is.
const CREDENTIALS: [header::HeaderName; 2] = [header::AUTHORIZATION, header::COOKIE];

/// The callers of a host that stands by.
#[derive(Debug)]
pub(crate) struct StandbyCallers {
    known: Permits<IpAddr>,
    strangers: Permits<IpAddr>,
    hasher: RandomState,
    valid: Mutex<HashMap<u64, ShownKey>>,
    refused: Mutex<HashMap<IpAddr, Refused>>,
}

/// A valid key, and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownKey {
    pub(crate) owner: OwnerId,
    pub(crate) key: KeyId,
}

/// An address that has made its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    /// The limit.
    calls: u32,
    until: Instant,
}

/// The place of a call, until this is dropped.
pub(crate) type Place = Permit<IpAddr>;

/// The call's address is beyond its limit of calls without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyCalls {
    pub(crate) calls: u32,
    pub(crate) wait: Duration,
}

/// What a call shows of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials(Option<u64>);

impl Default for StandbyCallers {
    fn default() -> Self {
        Self {
            known: Permits::for_work(CALLS_MAX - STRANGERS_MAX),
            strangers: Permits::for_work(STRANGERS_MAX),
            hasher: RandomState::new(),
            valid: Mutex::default(),
            refused: Mutex::default(),
        }
    }
}

impl StandbyCallers {
    pub(crate) fn credentials(&self, headers: &HeaderMap) -> Credentials {
        let shown = CREDENTIALS.iter().flat_map(|name| headers.get_all(name));
        let shown: Vec<_> = shown.map(header::HeaderValue::as_bytes).collect();
        Credentials((!shown.is_empty()).then(|| self.hasher.hash_one(shown)))
    }

    /// Waits for the place of a call.
    ///
    /// # Errors
    /// [`TooManyCalls`] for a call without credentials.
    pub(crate) async fn admit(
        &self,
        credentials: Credentials,
        origin: &CallOrigin,
    ) -> Result<Place, TooManyCalls> {
        let address = origin.peer().known_as();
        let known = |shown| self.valid.lock().get(&shown).cloned();
        let places = match credentials.0 {
            _ if origin.connection_has_key() => &self.known,
            Some(shown) => match known(shown) {
                Some(ShownKey { owner, key }) => {
                    // Beyond the share of the owner, the connection ends after the answer.
                    let _ = origin.record_key(&owner, &key);
                    &self.known
                }
                None => &self.strangers,
            },
            None => {
                self.check(address)?;
                &self.strangers
            }
        };
        Ok(places.owner_share(&address).acquire().await)
    }

    fn check(&self, address: IpAddr) -> Result<(), TooManyCalls> {
        let mut all = self.refused.lock();
        let Some(Refused { calls, until }) = all.get(&address).copied() else { return Ok(()) };
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            all.remove(&address);
            return Ok(());
        }
        Err(TooManyCalls { calls, wait })
    }

    /// Takes note of what the active host has answered, and of the valid key that it has seen.
    pub(crate) fn answered<B>(
        &self,
        credentials: Credentials,
        origin: &CallOrigin,
        key: Option<&ShownKey>,
        answer: &Response<B>,
    ) {
        if let Credentials(Some(shown)) = credentials {
            let mut valid = self.valid.lock();
            match key {
                Some(_) if valid.contains_key(&shown) => {}
                Some(key) => {
                    if valid.len() >= CREDENTIALS_MAX {
                        valid.clear();
                    }
                    valid.insert(shown, key.clone());
                }
                None if answer.status() == StatusCode::UNAUTHORIZED => {
                    valid.remove(&shown);
                }
                None => {}
            }
        }
        if key.is_some() || answer.status() != StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        let Some(refused) = refused(answer.headers()) else { return };
        let mut all = self.refused.lock();
        if all.len() >= ADDRESSES_MAX {
            let now = Instant::now();
            all.retain(|_, refused| refused.until > now);
        }
        if all.len() < ADDRESSES_MAX {
            all.insert(origin.peer().known_as(), refused);
        }
    }
}

/// The refusal of a caller without a key, as the headers of the answer have it.
fn refused(headers: &HeaderMap) -> Option<Refused> {
    let policy = headers.get("ratelimit-policy")?.to_str().ok()?;
    let calls = policy.strip_prefix("\"unauthenticated\";q=")?.split(';').next()?.parse().ok()?;
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    let until = Instant::now() + Duration::from_secs(seconds).min(REFUSAL_MAX);
    Some(Refused { calls, until })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use gristmill_edge::PeerAddress;
    use hyper::HeaderMap;

    use super::*;

    fn from(last: u8) -> CallOrigin {
        PeerAddress([192, 0, 2, last].into()).into()
    }

    fn with(key: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
        headers
    }

    #[test]
    fn callers_with_a_key_have_places_of_their_own_from_their_first_answer_on() {
        let callers = StandbyCallers::default();
        let (stranger, other) = (from(1), from(2));
        let (none, key) = (callers.credentials(&HeaderMap::new()), callers.credentials(&with("k")));
        let admit = |credentials, origin| callers.admit(credentials, origin).now_or_never();
        let mut held = vec![];
        while let Some(admitted) = admit(none, &stranger) {
            held.push(admitted.unwrap());
        }
        assert_eq!(held.len(), STRANGERS_MAX * 3 / 4, "an address leaves places to others");
        assert!(admit(key, &stranger).is_none(), "the key is not known");
        held.push(admit(key, &other).expect("another address").unwrap());
        let shown = ShownKey { owner: OwnerId::new("o").unwrap(), key: KeyId::new("k").unwrap() };
        callers.answered(key, &other, Some(&shown), &Response::new(()));
        let first_call = from(1);
        held.push(admit(key, &first_call).expect("the key is known").unwrap());
        assert!(first_call.connection_has_key(), "before its first answer");
        let mut refusal = Response::new(());
        *refusal.status_mut() = StatusCode::UNAUTHORIZED;
        callers.answered(key, &other, None, &refusal);
        assert!(admit(key, &stranger).is_none(), "the key is not valid any more");
    }

    #[test]
    fn an_address_without_a_key_is_refused_here_after_the_active_host_has_refused_it() {
        let callers = StandbyCallers::default();
        let origin = from(1);
        let mut refusal = Response::new(());
        *refusal.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let none = callers.credentials(&HeaderMap::new());
        let headers = |refusal: &mut Response<()>, policy: &str| {
            refusal.headers_mut().insert("ratelimit-policy", policy.parse().unwrap());
            refusal.headers_mut().insert(header::RETRY_AFTER, "7".parse().unwrap());
        };
        headers(&mut refusal, "\"run\";q=5;w=10");
        callers.answered(none, &origin, None, &refusal);
        assert!(callers.admit(none, &origin).now_or_never().unwrap().is_ok(), "another limit");
        headers(&mut refusal, "\"unauthenticated\";q=5;w=10");
        callers.answered(none, &origin, None, &refusal);
        let refused = callers.admit(none, &origin).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.calls, 5);
        assert!(refused.wait <= REFUSAL_MAX);
        let key = callers.credentials(&with("k"));
        assert!(callers.admit(key, &origin).now_or_never().unwrap().is_ok(), "it may be valid");
        assert!(callers.admit(none, &from(2)).now_or_never().unwrap().is_ok(), "another address");
    }
}
