//! The URLs of webhooks in memory, and the tags of jobs: each different text once for an owner.
//!
//! Most jobs of an owner have the same URL, and a URL may have 2,048 bytes. A job holds its URL as
//! long as its webhook may be sent, and its tags as long as it is in memory; a text is removed with
//! the last job that holds it.
//!
//! **Bounds.** [`Owners`](crate::state::owners::Owners) bounds the bytes of all URLs. **Cost.** One
//! map lookup when a job with a webhook is added, and one when it ends; nothing for other jobs.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::limits::JOB_KEY_TAG;

use crate::state::lane::FLOW_BYTES;

/// The URL of a webhook, shared by the jobs of an owner that have the same one
/// ([`urls`](crate::state::urls)). A thin pointer: most jobs have no webhook, and each has this
/// field.
pub(crate) type Url = Arc<Box<str>>;

/// About the bytes of a URL in memory besides its text.
const HEAD_BYTES: u64 = 128;

/// The URLs of one owner.
#[derive(Debug, Default)]
pub(crate) struct Urls {
    /// The URLs, each with the number of jobs that hold it.
    held: HashMap<Url, u32>,
    bytes: u64,
}

impl Urls {
    /// About the bytes of these URLs in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes by which this URL would increase them.
    pub(crate) fn new_bytes(&self, url: &Url) -> u64 {
        if self.held.contains_key(url) { 0 } else { bytes(url) }
    }

    /// One more job holds the URL. Returns the copy that all jobs share.
    pub(crate) fn hold(&mut self, url: Url) -> Url {
        let known = self.held.get_key_value(&url).map(|(known, _)| known.clone());
        let url = known.unwrap_or(url);
        let jobs = self.held.entry(url.clone()).or_default();
        if *jobs == 0 {
            self.bytes += bytes(&url);
        }
        *jobs = jobs.saturating_add(1);
        url
    }

    /// One job fewer holds the URL.
    pub(crate) fn release(&mut self, url: &Url) {
        let Some(jobs) = self.held.get_mut(url) else { return };
        *jobs -= 1;
        if *jobs == 0 {
            self.held.remove(url);
            self.bytes -= bytes(url);
        }
    }
}

fn bytes(url: &Url) -> u64 {
    // Tags with the key of a job also pay for the turns of that key.
    let turns = if url.contains(JOB_KEY_TAG) { FLOW_BYTES } else { 0 };
    url.len() as u64 + HEAD_BYTES + turns
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn url(text: &str) -> Url {
        Arc::new(text.into())
    }

    #[test]
    fn jobs_with_the_same_url_share_it_until_the_last_of_them_ends() {
        let mut urls = Urls::default();
        let long = "x".repeat(2_000);
        let held: Vec<_> = (0..1_000).map(|_| urls.hold(url(&long))).collect();
        assert!(held.iter().all(|one| Arc::ptr_eq(one, &held[0])));
        let other = urls.hold(url("other"));
        assert_eq!(urls.bytes, 2_000 + 5 + 2 * HEAD_BYTES);
        for one in &held {
            urls.release(one);
        }
        assert_eq!((urls.held.len(), urls.bytes), (1, 5 + HEAD_BYTES));
        urls.release(&other);
        urls.release(&other);
        assert_eq!((urls.held.len(), urls.bytes), (0, 0));
    }

    #[test]
    fn a_known_url_takes_no_further_bytes() {
        let mut urls = Urls::default();
        assert_eq!(urls.new_bytes(&url("a")), 1 + HEAD_BYTES);
        urls.hold(url("a"));
        assert_eq!((urls.new_bytes(&url("a")), urls.new_bytes(&url("b"))), (0, 1 + HEAD_BYTES));
    }

    #[test]
    fn tags_pay_for_the_turns_of_their_key() {
        let mut tags = Urls::default();
        tags.hold(url("env=prod\npolicy/key=a"));
        assert_eq!(tags.bytes, 21 + HEAD_BYTES + FLOW_BYTES);
        tags.release(&url("env=prod\npolicy/key=a"));
        assert_eq!(tags.bytes, 0);
    }
}
