//! Builders of jobs.

use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, SubmissionKind};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start};
use gristmill_core::job::record::NewJob;
use gristmill_core::job::retention::Retention;

/// A job with a new id, the input `null` and nothing that is optional, of `owner`. It may run for
/// ten minutes, lives for a day, and is kept for a minute after its end. A test replaces the fields
/// that it is about: `NewJob { input, ..new_job(shard, owner, endpoint) }`.
pub fn new_job(shard: ShardId, owner: OwnerId, endpoint: EndpointId) -> NewJob {
    NewJob {
        id: JobId::generate(SubmissionKind::Async, shard),
        endpoint,
        owner,
        input: Json::null(),
        policy: Policy {
            execution_timeout_ms: Some(600_000),
            ttl_ms: 86_400_000,
            low_priority: false,
            start: Start::Now,
            retry: None,
        },
        retention: Retention::by_default(60_000),
        webhook: None,
        s3_config: None,
        may_linger: false,
        waiting_jobs_max: None,
        idempotency: None,
        incarnation: EndpointIncarnation::default(),
        tags: None,
        trace: None,
        note: None,
    }
}
