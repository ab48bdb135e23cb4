//! The entries that a job on disk has in memory: in the slab, and by id, time of its deletion,
//! number, webhook URL, tags and trace. A start, and the return of an archived job, add them
//! together.

use crate::state::index::Index;
use crate::state::job::Job;
use crate::state::slab::JobKey;

impl Index {
    /// Adds a job that is on disk to memory. Other counts than that of jobs in memory stay.
    pub(super) fn put(&mut self, mut job: Job) -> JobKey {
        let webhook = job.webhook.take().filter(|_| job.row.needs_input());
        job.webhook = webhook.map(|url| self.owners.hold_url(job.owner, url));
        job.tags = job.tags.take().map(|tags| self.owners.hold_tags(job.owner, &tags));
        if let Some(rare) = job.rare.as_deref_mut() {
            rare.trace = rare.trace.take().map(|trace| self.owners.hold_trace(job.owner, trace));
        }
        self.owners.add_in_memory(job.owner);
        let (id, seq, purge_at, endpoint) = (job.id, job.seq, job.purge_at(), job.endpoint);
        let key = self.jobs.insert(job);
        self.ids.insert(id, key, &self.jobs);
        self.expiry.insert(purge_at, key);
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.history.insert(seq, key);
        }
        key
    }

    /// Removes a job that is on disk from memory. Other counts than that of jobs in memory stay.
    pub(super) fn take(&mut self, key: JobKey) -> Option<Job> {
        let id = self.jobs.get(key)?.id;
        self.ids.remove(id, key);
        let job = self.jobs.remove(key)?;
        self.expiry.remove(job.purge_at(), key);
        self.owners.remove_in_memory(job.owner);
        if let Some(url) = &job.webhook {
            self.owners.release_url(job.owner, url);
        }
        if let Some(tags) = &job.tags {
            self.owners.release_tags(job.owner, tags);
        }
        if let Some(trace) = job.trace() {
            self.owners.release_trace(job.owner, trace);
        }
        if let Some(endpoint) = self.endpoints.get_mut(&job.endpoint) {
            endpoint.history.remove(job.seq, key);
        }
        Some(job)
    }
}
