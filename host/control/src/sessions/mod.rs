//! Login sessions of the web console, and links that begin one.
//!
//! A session stands for the key that it began with: it has the key's owner, scopes and endpoints,
//! and it ends with the key. A link begins one session, once, within a minute.
//!
//! A session has two secrets: the token, which browsers send as a cookie to all ports of the host's
//! name, and the mark, which only the console's page keeps and sends. A token without its mark is
//! another program's, or the page's browser has the cookie of another session.
//!
//! **Promise.** The host keeps the hash of a token or link, in memory only: a restart ends them
//! all. All times are measured by the monotonic clock, so that a jump of the wall clock ends no
//! session and prolongs none. **Bounds.** [`SESSIONS_OF_KEY_MAX`] sessions of a key and
//! [`SESSIONS_MAX`] in all, with [`LINKS_OF_KEY_MAX`] and [`LINKS_MAX`] links.

mod issued;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use gristmill_core::access::key::ApiKey;
use gristmill_core::time::{Clock, Timestamp};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use self::issued::{Bounds, Found, Hash, Issued, hash};
use crate::deployed::Deployed;

/// A session ends after this time without a call.
const SESSION_IDLE: Duration = Duration::from_hours(12);

/// A session ends after this time in any case.
const SESSION_LIFE: Duration = Duration::from_hours(7 * 24);

/// Most sessions of a key; the oldest ends.
const SESSIONS_OF_KEY_MAX: usize = 64;

/// Most sessions of all keys; the one that was unused for longest ends.
const SESSIONS_MAX: usize = 4_096;

/// A link that was not used ends after this time.
const LINK_LIFE: Duration = Duration::from_mins(1);

/// Most unused links of a key; the oldest ends.
const LINKS_OF_KEY_MAX: usize = 16;

/// Most unused links of all keys.
const LINKS_MAX: usize = 1_024;

/// A token or mark of a session, or a link.
#[derive(Clone)]
pub struct SecretText(String);

impl SecretText {
    /// The text for the client.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(redacted)")
    }
}

/// A session that goes on.
#[derive(Debug, Clone)]
pub struct Session {
    /// The key that it stands for.
    pub key: Arc<ApiKey>,
    /// Its name.
    pub id: SessionId,
    /// The secret that its page sends with each call.
    pub mark: SecretText,
    /// When it ends unless it is used again.
    pub expires_at: Timestamp,
}

impl Session {
    /// Whether this text is the session's mark. The time does not depend on how much of it fits.
    pub fn has_mark(&self, text: &str) -> bool {
        hash(text) == hash(self.mark.reveal())
    }
}

/// Names a session without its token, for calls that outlast their beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionId(Hash);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(redacted)")
    }
}

/// The sessions and links of all keys.
#[derive(Debug, Clone)]
pub struct Sessions(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    deployed: Arc<Deployed>,
    clock: Arc<dyn Clock>,
    sessions: Mutex<Issued>,
    links: Mutex<Issued>,
    /// The token alone does not suffice to compute the mark.
    salt: [u8; 32],
}

impl Sessions {
    pub(crate) fn new(deployed: Arc<Deployed>, clock: Arc<dyn Clock>) -> Self {
        let sessions = Issued::new(Bounds {
            idle: SESSION_IDLE,
            life: SESSION_LIFE,
            of_key_max: SESSIONS_OF_KEY_MAX,
            all_max: SESSIONS_MAX,
        });
        let links = Issued::new(Bounds {
            idle: LINK_LIFE,
            life: LINK_LIFE,
            of_key_max: LINKS_OF_KEY_MAX,
            all_max: LINKS_MAX,
        });
        let (sessions, links) = (Mutex::new(sessions), Mutex::new(links));
        Self(Arc::new(Parts { deployed, clock, sessions, links, salt: rand::random() }))
    }

    /// Begins a session of a valid key, and returns its token.
    pub fn begin(&self, key: Arc<ApiKey>) -> (SecretText, Session) {
        let token = self.0.sessions.lock().issue(key.clone(), self.0.clock.elapsed());
        let expires_at = self.end_of(&Found { key: key.clone(), left: SESSION_IDLE });
        let session = self.session(&token, key, expires_at);
        (SecretText(token), session)
    }

    /// The session with this token, if it and its key are valid. The call counts as its use.
    pub fn find(&self, token: &str) -> Option<Session> {
        let found = self.0.sessions.lock().find(token, self.0.clock.elapsed())?;
        if self.is_valid(&found.key) {
            let expires_at = self.end_of(&found);
            return Some(self.session(token, found.key, expires_at));
        }
        self.end(token);
        None
    }

    /// Whether the session has not ended. The question does not count as its use, and does not look
    /// at its key.
    pub fn goes_on(&self, SessionId(hash): SessionId) -> bool {
        self.0.sessions.lock().has(&hash, self.0.clock.elapsed())
    }

    /// Ends the session with this token.
    pub fn end(&self, token: &str) {
        self.0.sessions.lock().take(token, self.0.clock.elapsed());
    }

    /// A new link of a valid key, and when it ends.
    pub fn create_link(&self, key: &Arc<ApiKey>) -> (SecretText, Timestamp) {
        let link = self.0.links.lock().issue(key.clone(), self.0.clock.elapsed());
        let expires_at = self.end_of(&Found { key: key.clone(), left: LINK_LIFE });
        (SecretText(link), expires_at)
    }

    /// The key of a link, which stays valid. The question does not prolong its life.
    pub fn preview(&self, link: &str) -> Option<Arc<ApiKey>> {
        let Found { key, .. } = self.0.links.lock().find(link, self.0.clock.elapsed())?;
        self.is_valid(&key).then_some(key)
    }

    /// The key of a link, which is not valid any more then.
    pub fn redeem(&self, link: &str) -> Option<Arc<ApiKey>> {
        let Found { key, .. } = self.0.links.lock().take(link, self.0.clock.elapsed())?;
        self.is_valid(&key).then_some(key)
    }

    pub(crate) fn session(&self, token: &str, key: Arc<ApiKey>, expires_at: Timestamp) -> Session {
        let mark = Sha256::new().chain_update(self.0.salt).chain_update(token).finalize();
        let mark = SecretText(BASE64URL_NOPAD.encode(&mark));
        Session { key, id: SessionId(hash(token)), mark, expires_at }
    }

    fn is_valid(&self, key: &ApiKey) -> bool {
        let Parts { deployed, .. } = &*self.0;
        deployed.check_key(key, &deployed.view()).is_ok()
    }

    /// When a secret ends, at the latest with its key.
    fn end_of(&self, Found { key, left }: &Found) -> Timestamp {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let end = self.0.deployed.now().plus_millis(left_ms);
        key.expires_at.map_or(end, |of_key| of_key.min(end))
    }
}
