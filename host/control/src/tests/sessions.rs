//! Sessions: they last as long as their key and their bounds allow, and no longer.

use gristmill_core::access::key::Scope;
use gristmill_wire::management::NewKey;

use super::*;
use crate::Sessions;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

async fn expiring_key(bench: &Bench, expires_in_s: u64) -> Arc<ApiKey> {
    let admin = bench.key("default", Scope::Admin).await;
    let request = NewKey {
        name: "k".to_owned(),
        scopes: vec![Scope::Read],
        owner: Some(owner_id("a")),
        endpoints: None,
        expires_in_seconds: Some(expires_in_s),
    };
    Arc::new(bench.control.keys.create(&admin, request).await.unwrap().0)
}

fn login(sessions: &Sessions, key: &Arc<ApiKey>) -> String {
    sessions.begin(key.clone()).0.reveal().to_owned()
}

#[tokio::test]
async fn a_session_ends_after_twelve_quiet_hours_or_seven_days() {
    let bench = Bench::new().await;
    let (sessions, key) = (&bench.control.sessions, bench.key("a", Scope::Read).await);
    let (quiet, busy) = (login(sessions, &key), login(sessions, &key));
    for _ in 0..14 {
        bench.clock.advance(12 * HOUR_MS - 1);
        let found = sessions.find(&busy).unwrap();
        assert_eq!(found.key, key);
        let left = found.expires_at.millis_since(bench.clock.now());
        assert!(left <= 12 * HOUR_MS, "{left}");
    }
    assert!(sessions.find(&quiet).is_none());
    // Fourteen milliseconds of the seven days are left.
    bench.clock.advance(13);
    assert!(sessions.find(&busy).is_some());
    bench.clock.advance(1);
    assert!(sessions.find(&busy).is_none());
}

#[tokio::test]
async fn a_session_and_a_link_end_with_their_key() {
    let bench = Bench::new().await;
    let sessions = &bench.control.sessions;
    let admin = bench.key("default", Scope::Admin).await;
    let (revoked, expiring) = (bench.key("a", Scope::Read).await, expiring_key(&bench, 30).await);
    for key in [&revoked, &expiring] {
        assert!(sessions.find(&login(sessions, key)).is_some());
    }
    let shown = sessions.begin(expiring.clone()).1.expires_at;
    assert_eq!(shown, bench.clock.now().plus_millis(30_000), "it ends with its key");
    let tokens = [&revoked, &expiring].map(|key| login(sessions, key));
    let links = [&revoked, &expiring].map(|key| sessions.create_link(key).0);
    bench.control.keys.revoke(&admin, revoked.id.as_str()).await.unwrap();
    bench.clock.advance(30_000);
    for (token, link) in tokens.iter().zip(&links) {
        assert!(sessions.find(token).is_none());
        assert!(sessions.redeem(link.reveal()).is_none());
    }
}

#[tokio::test]
async fn a_link_begins_one_session_within_a_minute() {
    let bench = Bench::new().await;
    let (sessions, key) = (&bench.control.sessions, bench.key("a", Scope::Read).await);
    let (link, expires_at) = sessions.create_link(&key);
    assert_eq!(expires_at, bench.clock.now().plus_millis(MINUTE_MS));
    assert!(sessions.find(link.reveal()).is_none(), "a link is no token");
    bench.clock.advance(MINUTE_MS - 1);
    assert_eq!(sessions.preview(link.reveal()), Some(key.clone()), "a question does not use it up");
    assert_eq!(sessions.redeem(link.reveal()), Some(key.clone()));
    assert_eq!(sessions.redeem(link.reveal()), None, "it was used");
    let (late, _) = sessions.create_link(&key);
    bench.clock.advance(MINUTE_MS - 1);
    assert!(sessions.preview(late.reveal()).is_some());
    bench.clock.advance(1);
    assert_eq!(sessions.preview(late.reveal()), None, "nor does it prolong its life");
    assert_eq!(sessions.redeem(late.reveal()), None);
    let token = login(sessions, &key);
    assert_eq!(sessions.redeem(&token), None, "a token is no link");
}

#[tokio::test]
async fn each_session_has_a_mark_that_its_token_does_not_tell() {
    let bench = Bench::new().await;
    let (sessions, key) = (&bench.control.sessions, bench.key("a", Scope::Read).await);
    let (token, begun) = sessions.begin(key.clone());
    let found = sessions.find(token.reveal()).unwrap();
    assert!(found.has_mark(begun.mark.reveal()), "all calls of a session have the same mark");
    let (_, other) = sessions.begin(key.clone());
    for wrong in ["", token.reveal(), other.mark.reveal(), &begun.mark.reveal()[1..]] {
        assert!(!found.has_mark(wrong), "{wrong}");
    }
    let restarted = Bench::new().await;
    let of_other_host = restarted.control.sessions.session(token.reveal(), key, begun.expires_at);
    assert!(!of_other_host.has_mark(begun.mark.reveal()), "it depends on more than the token");
}

#[tokio::test]
async fn ten_thousand_logins_of_one_key_leave_the_newest_and_those_of_other_keys() {
    let bench = Bench::new().await;
    let sessions = &bench.control.sessions;
    let (greedy, other) = (bench.key("a", Scope::Read).await, bench.key("b", Scope::Read).await);
    let quiet = login(sessions, &other);
    let tokens: Vec<_> = (0..10_000).map(|_| login(sessions, &greedy)).collect();
    let valid = tokens.iter().filter(|token| sessions.find(token).is_some()).count();
    assert_eq!(valid, 64);
    assert!(sessions.find(&tokens[9_999]).is_some());
    assert!(sessions.find(&quiet).is_some());
    sessions.end(&quiet);
    assert!(sessions.find(&quiet).is_none());
}

#[tokio::test]
async fn a_jump_of_the_wall_clock_neither_ends_nor_prolongs_a_session() {
    let bench = Bench::new().await;
    let (sessions, key) = (&bench.control.sessions, bench.key("a", Scope::Read).await);
    let token = login(sessions, &key);
    bench.clock.jump(365 * 24 * i64::try_from(HOUR_MS).unwrap());
    assert!(sessions.find(&token).is_some());
    bench.clock.jump(-2 * 365 * 24 * i64::try_from(HOUR_MS).unwrap());
    assert!(sessions.find(&token).is_some());
    bench.clock.advance(12 * HOUR_MS);
    assert!(sessions.find(&token).is_none());
}
