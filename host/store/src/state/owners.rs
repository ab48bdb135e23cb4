//! Numbers for the owners of jobs: a number takes less space in each job than a name.
//! Each owner has an account of the disk, which counts the bytes of its jobs, its webhook URLs, and
//! the number of its jobs.
//!
//! **Bounds.** Three bounds hold for all endpoints together:
//! * the number of waiting jobs: each takes some 200 bytes of memory;
//! * the number of all jobs in memory: an ended job takes some 512 bytes at most until it is
//!   [archived](crate::state::archived);
//! * the bytes of webhooks and tags: the URLs and the tags of jobs, and the pending deliveries. The
//!   `tracestate` texts of jobs take up to half of it.
//!
//! Each owner has [a share](SharedBound) of these bounds while the host has several owners.
//!
//! An owner stays here until the end of the process. There are at most as many as API keys were
//! ever created, and each takes some 200 bytes.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::job::tags::Tags;
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::shares::{Fit, SharedBound};
use gristmill_core::store::StoreFull;
use gristmill_core::trace::{TraceContext, TraceState};
use gristmill_core::webhook::delivery::NotSent;

use crate::state::pending_bytes::{PendingBytes, delivery_bytes};
use crate::state::urls::{Url, Urls};

/// The number of an owner, valid until the store is closed. It is never written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OwnerKey(u32);

/// All owners of jobs since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    disk_space: Arc<DiskSpaceGauge>,
    all: Vec<Owner>,
    keys: HashMap<OwnerId, OwnerKey>,
    jobs: JobNumbers,
    /// Bytes of the URLs, the tags and the `tracestate` texts of all owners.
    text_bytes: u64,
    max: OwnersMax,
}

/// The bounds of all owners together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnersMax {
    pub(crate) jobs: JobNumbers,
    /// Bytes of memory for webhooks, tags and `tracestate` texts.
    pub(crate) webhook_bytes: u64,
}

/// Numbers of jobs: of one owner, of all owners, or their bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobNumbers {
    /// Jobs that wait to be run.
    pub(crate) waiting: usize,
    /// Jobs in any status, except archived ones.
    pub(crate) in_memory: usize,
}

#[derive(Debug)]
struct Owner {
    name: OwnerId,
    account: DiskAccount,
    urls: Urls,
    tags: Urls,
    /// The `tracestate` texts of its jobs.
    trace_states: Urls,
    jobs: JobNumbers,
}

impl Owners {
    /// Without any owner, on this disk, and with these bounds.
    pub(crate) fn new(disk_space: Arc<DiskSpaceGauge>, max: OwnersMax) -> Self {
        Self { disk_space, max, ..Self::default() }
    }

    /// The number of the owner; a new name gets a new number.
    pub(crate) fn key(&mut self, name: &OwnerId) -> OwnerKey {
        if let Some(key) = self.keys.get(name) {
            return *key;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 owners have jobs");
        let key = OwnerKey(number);
        let account = DiskAccount::new(&self.disk_space, name);
        self.all.push(Owner {
            name: name.clone(),
            account,
            urls: Urls::default(),
            tags: Urls::default(),
            trace_states: Urls::default(),
            jobs: JobNumbers::default(),
        });
        self.keys.insert(name.clone(), key);
        key
    }

    pub(crate) fn name(&self, key: OwnerKey) -> &OwnerId {
        &self.get(key).name
    }

    /// The bytes of the owner on the disk.
    pub(crate) fn account(&self, key: OwnerKey) -> &DiskAccount {
        &self.get(key).account
    }

    /// One more job of the owner holds the webhook URL. Returns the copy that all jobs share.
    pub(crate) fn hold_url(&mut self, key: OwnerKey, url: Url) -> Url {
        self.change_urls(key, |urls| urls.hold(url))
    }

    /// One job of the owner fewer holds the webhook URL.
    pub(crate) fn release_url(&mut self, key: OwnerKey, url: &Url) {
        self.change_urls(key, |urls| urls.release(url));
    }

    /// One more job of the owner has these tags. Returns the copy that all jobs share.
    pub(crate) fn hold_tags(&mut self, key: OwnerKey, tags: &Tags) -> Tags {
        let shared = tags.shared().clone();
        Tags::from_shared(self.change_texts(key, |owner| &mut owner.tags, |tags| tags.hold(shared)))
    }

    /// One job of the owner fewer has these tags.
    pub(crate) fn release_tags(&mut self, key: OwnerKey, tags: &Tags) {
        self.change_texts(key, |owner| &mut owner.tags, |held| held.release(tags.shared()));
    }

    /// One more job of the owner has this trace. Returns it with the copy of its `tracestate` that
    /// all jobs share, and without it when memory has no room: a trace is of use without it, so no
    /// job is refused for it. These texts take at most half of the bound, so that they leave room
    /// for webhooks and tags.
    pub(crate) fn hold_trace(&mut self, key: OwnerKey, trace: TraceContext) -> TraceContext {
        let Some(shared) = trace.state.shared().cloned() else { return trace };
        let owner = self.get(key);
        let more = owner.trace_states.new_bytes(&shared);
        let fit = self.fit(owner.text_bytes(), more, self.text_bytes, self.max.webhook_bytes / 2);
        if more > 0 && fit != Fit::Fits {
            return TraceContext { state: TraceState::default(), ..trace };
        }
        let held =
            self.change_texts(key, |owner| &mut owner.trace_states, |states| states.hold(shared));
        TraceContext { state: TraceState::from_shared(held), ..trace }
    }

    /// One job of the owner fewer has this trace.
    pub(crate) fn release_trace(&mut self, key: OwnerKey, trace: &TraceContext) {
        let Some(shared) = trace.state.shared() else { return };
        self.change_texts(key, |owner| &mut owner.trace_states, |states| states.release(shared));
    }

    fn change_urls<T>(&mut self, key: OwnerKey, change: impl FnOnce(&mut Urls) -> T) -> T {
        self.change_texts(key, |owner| &mut owner.urls, change)
    }

    fn change_texts<T>(
        &mut self,
        key: OwnerKey,
        texts: impl FnOnce(&mut Owner) -> &mut Urls,
        change: impl FnOnce(&mut Urls) -> T,
    ) -> T {
        let owner = self.all.get_mut(key.0 as usize);
        let texts = texts(owner.expect("a number stands for an owner"));
        let before = texts.bytes();
        let changed = change(texts);
        self.text_bytes = self.text_bytes - before + texts.bytes();
        changed
    }

    /// Refuses one more job with these tags when they have no room in memory. They share the bound
    /// of webhooks.
    ///
    /// # Errors
    /// [`StoreFull::HostWebhooks`] and [`StoreFull::OwnerWebhooks`].
    pub(crate) fn check_tags(
        &self,
        key: OwnerKey,
        tags: &Tags,
        pending: PendingBytes,
    ) -> Result<(), StoreFull> {
        let more = self.get(key).tags.new_bytes(tags.shared());
        self.check_texts(key, more, pending)
    }

    /// Refuses one more job with this webhook URL when the owner's webhooks have no room in memory.
    ///
    /// # Errors
    /// [`StoreFull::HostWebhooks`] and [`StoreFull::OwnerWebhooks`].
    pub(crate) fn check_webhook(
        &self,
        key: OwnerKey,
        url: &Url,
        pending: PendingBytes,
    ) -> Result<(), StoreFull> {
        let more = self.get(key).urls.new_bytes(url) + delivery_bytes(url.len());
        self.check_texts(key, more, pending)
    }

    /// Refuses `more` bytes of memory for the owner's webhooks and tags.
    fn check_texts(
        &self,
        key: OwnerKey,
        more: u64,
        pending: PendingBytes,
    ) -> Result<(), StoreFull> {
        if more == 0 {
            return Ok(());
        }
        match self.fit_webhook(key, more, pending) {
            Fit::Fits => Ok(()),
            Fit::Full => Err(StoreFull::HostWebhooks { limit_mib: self.max.webhook_bytes >> 20 }),
            Fit::AtShare => {
                let held_mib = self.webhook_bytes(key, pending) >> 20;
                Err(StoreFull::OwnerWebhooks { held_mib })
            }
        }
    }

    /// Refuses one more pending delivery to this webhook URL.
    ///
    /// # Errors
    /// [`NotSent::OwnerMemoryFull`].
    pub(crate) fn check_delivery(
        &self,
        key: OwnerKey,
        url: &Url,
        pending: PendingBytes,
    ) -> Result<(), NotSent> {
        match self.fit_webhook(key, delivery_bytes(url.len()), pending) {
            Fit::Fits => Ok(()),
            Fit::Full | Fit::AtShare => {
                Err(NotSent::OwnerMemoryFull { held_mib: self.webhook_bytes(key, pending) >> 20 })
            }
        }
    }

    /// Bytes of memory of the owner's webhooks, tags and `tracestate` texts.
    fn webhook_bytes(&self, key: OwnerKey, pending: PendingBytes) -> u64 {
        self.get(key).text_bytes() + pending.of_owner
    }

    fn fit_webhook(&self, key: OwnerKey, more: u64, pending: PendingBytes) -> Fit {
        let (own, all) = (self.webhook_bytes(key, pending), self.text_bytes + pending.of_all);
        self.fit(own, more, all, self.max.webhook_bytes)
    }

    /// Refuses one more waiting job of the owner at the bound of all owners, or at the owner's
    /// share.
    ///
    /// # Errors
    /// [`StoreFull::HostQueue`] and [`StoreFull::OwnerQueue`].
    pub(crate) fn check_waiting(&self, key: OwnerKey) -> Result<(), StoreFull> {
        let (waiting, limit) = (self.get(key).jobs.waiting, self.max.jobs.waiting);
        match self.fit_job(waiting, self.jobs.waiting, limit) {
            Fit::Fits => Ok(()),
            Fit::Full => Err(StoreFull::HostQueue { limit }),
            Fit::AtShare => Err(StoreFull::OwnerQueue { waiting }),
        }
    }

    /// Refuses one more job of the owner at the bounds of waiting jobs and of jobs in memory.
    ///
    /// # Errors
    /// Those of [`check_waiting`](Self::check_waiting) and
    /// [`check_in_memory`](Self::check_in_memory).
    pub(crate) fn check_new(&self, key: OwnerKey) -> Result<(), StoreFull> {
        self.check_waiting(key)?;
        self.check_in_memory(key)
    }

    /// Refuses one more job of the owner at the bound of jobs in memory.
    ///
    /// # Errors
    /// [`StoreFull::HostJobs`] and [`StoreFull::OwnerJobs`].
    pub(crate) fn check_in_memory(&self, key: OwnerKey) -> Result<(), StoreFull> {
        let (jobs, limit) = (self.get(key).jobs.in_memory, self.max.jobs.in_memory);
        match self.fit_job(jobs, self.jobs.in_memory, limit) {
            Fit::Fits => Ok(()),
            Fit::Full => Err(StoreFull::HostJobs { limit }),
            Fit::AtShare => Err(StoreFull::OwnerJobs { jobs }),
        }
    }

    /// Whether an owner with `own` of `all` jobs may have one more.
    fn fit_job(&self, own: usize, all: usize, max: usize) -> Fit {
        self.fit(own as u64, 1, all as u64, max as u64)
    }

    /// Whether an owner with `own` of `all` units may have `more` of them.
    fn fit(&self, own: u64, more: u64, all: u64, max: u64) -> Fit {
        SharedBound::now(max, self.disk_space.has_several_owners()).fit(own, all, more)
    }

    /// Notes whether a job of the owner waited before a change, and waits after it.
    pub(crate) fn recount_waiting(&mut self, key: OwnerKey, before: bool, after: bool) {
        self.recount(key, |jobs| &mut jobs.waiting, before, after);
    }

    /// Notes that another job of the owner waits.
    pub(crate) fn add_waiting(&mut self, key: OwnerKey) {
        self.recount_waiting(key, false, true);
    }

    /// Notes that memory has another job of the owner.
    pub(crate) fn add_in_memory(&mut self, key: OwnerKey) {
        self.recount(key, |jobs| &mut jobs.in_memory, false, true);
    }

    /// Notes that memory has a job of the owner no longer.
    pub(crate) fn remove_in_memory(&mut self, key: OwnerKey) {
        self.recount(key, |jobs| &mut jobs.in_memory, true, false);
    }

    fn recount(
        &mut self,
        key: OwnerKey,
        number: fn(&mut JobNumbers) -> &mut usize,
        before: bool,
        after: bool,
    ) {
        let Some(owner) = self.all.get_mut(key.0 as usize) else { return };
        for jobs in [&mut owner.jobs, &mut self.jobs] {
            let number = number(jobs);
            *number = (*number + usize::from(after)).saturating_sub(usize::from(before));
        }
    }

    fn get(&self, key: OwnerKey) -> &Owner {
        self.all.get(key.0 as usize).expect("a number stands for an owner")
    }
}

impl Owner {
    /// Bytes of its URLs, its tags and its `tracestate` texts.
    fn text_bytes(&self) -> u64 {
        self.urls.bytes() + self.tags.bytes() + self.trace_states.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEBHOOK_BYTES_MAX: u64 = 20_000;

    fn owners() -> (Owners, OwnerKey) {
        let max = OwnersMax { webhook_bytes: WEBHOOK_BYTES_MAX, ..OwnersMax::default() };
        let mut owners = Owners::new(Arc::default(), max);
        let key = owners.key(&OwnerId::new("o").unwrap());
        (owners, key)
    }

    fn traced(state: &str) -> TraceContext {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::from_header(header).unwrap();
        TraceContext { state: TraceState::from_headers([state]), ..context }
    }

    #[test]
    fn jobs_share_a_tracestate_until_the_last_of_them_is_removed() {
        let (mut owners, key) = owners();
        let held: Vec<_> = (0..1_000).map(|_| owners.hold_trace(key, traced("a=1"))).collect();
        assert!(held.iter().all(|trace| *trace == traced("a=1")));
        assert!(owners.text_bytes < 200, "{}", owners.text_bytes);
        for trace in &held {
            owners.release_trace(key, trace);
        }
        assert_eq!(owners.text_bytes, 0);
    }

    #[test]
    fn without_room_a_trace_is_held_without_its_tracestate() {
        let (mut owners, key) = owners();
        let state = |number: usize| format!("a={number},b={}", "v".repeat(200));
        let held: Vec<_> =
            (0..1_000).map(|number| owners.hold_trace(key, traced(&state(number)))).collect();
        assert!(owners.text_bytes <= WEBHOOK_BYTES_MAX / 2, "{}", owners.text_bytes);
        assert_eq!(held[0], traced(&state(0)));
        assert_eq!(held[999], traced(""), "its trace stays");
        let url: Url = Arc::new("u".repeat(2_000).into());
        assert!(owners.check_webhook(key, &url, PendingBytes::default()).is_ok());
        for trace in &held {
            owners.release_trace(key, trace);
        }
        assert_eq!(owners.text_bytes, 0);
        assert_eq!(owners.hold_trace(key, traced(&state(999))), traced(&state(999)));
    }
}
