//! The log lines about a database that does not work: one when it begins, one for each further
//! reason, and one when it ends. A thread tries several times a second, and the first reason is
//! often only the end of a connection.
//!
//! **Bound.** A line for a further reason each [`PAUSE`].

use std::time::{Duration, Instant};

/// Shortest time between two reasons in the log.
const PAUSE: Duration = Duration::from_secs(5);

/// What the log says about the database at present.
#[derive(Debug, Default)]
pub struct Outage {
    /// The last reason, and when it was logged.
    logged: Option<(String, Instant)>,
}

impl Outage {
    /// Whether this reason, which has just been seen, is to be logged.
    pub fn is_news(&mut self, reason: &str) -> bool {
        self.is_news_at(reason, Instant::now())
    }

    fn is_news_at(&mut self, reason: &str, now: Instant) -> bool {
        let is_news = match &self.logged {
            None => true,
            Some((logged, at)) => logged != reason && now.duration_since(*at) >= PAUSE,
        };
        if is_news {
            self.logged = Some((reason.to_owned(), now));
        }
        is_news
    }

    /// Records that the database works. Returns whether the log has said that it does not.
    pub fn end(&mut self) -> bool {
        self.logged.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_logged_but_not_many_at_one_time() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        assert!(!outage.end());
        for (reason, second, is_news) in [
            ("the connection was lost", 0, true),
            ("the connection was lost", 9, false),
            ("a wrong password", 9, true),
            ("the connection was lost", 13, false),
            ("the connection was lost", 14, true),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(outage.is_news_at(reason, now), is_news, "{reason} after {second} s");
        }
        assert!(outage.end());
        assert!(!outage.end());
    }
}
