//! `context`: facts about the running attempt.

use std::time::Instant;

use gristmill_core::job::retry::RetryWish;

use crate::bindings::gristmill::handler::context::{Host, S3Config};
use crate::sandbox::state::State;

impl Host for State {
    fn attempt(&mut self) -> u32 {
        self.attempt.number
    }

    fn endpoint(&mut self) -> String {
        self.attempt.deployment.endpoint.id.to_string()
    }

    fn remaining_ms(&mut self) -> u64 {
        let remaining = self.watch.deadline().saturating_duration_since(Instant::now());
        u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)
    }

    fn cancelled(&mut self) -> bool {
        self.watch.is_stopping()
    }

    fn s3(&mut self) -> Option<S3Config> {
        self.attempt.s3_config.as_deref().map(|config| S3Config {
            access_id: config.access_id.clone(),
            access_secret: config.access_secret.clone(),
            bucket_name: config.bucket_name.clone(),
            endpoint_url: config.endpoint_url.clone(),
        })
    }

    fn trace_parent(&mut self) -> Option<String> {
        self.attempt.trace.as_ref().map(|trace| trace.to_string())
    }

    fn retire(&mut self) {
        self.retired = true;
    }

    fn retry_after(&mut self, delay_ms: Option<u32>) {
        self.wish = Some(delay_ms.map_or(RetryWish::Never, |ms| RetryWish::After(ms.into())));
    }
}
