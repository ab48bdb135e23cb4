//! Replaces a component's initial memory by the memory after `init`, so that instances need not run
//! it.

use std::sync::Arc;
use std::time::Instant;

use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::runtime::{Attempt, AttemptKey};
use gristmill_runtime::compile::preinit::{TIME_MAX, preinit};
use tokio_util::sync::CancellationToken;

use crate::local::{LocalOptions, TerminalSink, local_deployment};
use crate::project::Project;

/// Calls the `init` of a component, with the project's environment and hosts, and keeps its
/// results.
///
/// # Errors
/// When there is no `init`, or it fails.
pub(super) async fn initialized(project: &Project, component: &[u8]) -> anyhow::Result<Vec<u8>> {
    let settings = LocalOptions::default().over(Some(project.clone()));
    let digest = ComponentDigest::of(component);
    let deployment = local_deployment(settings, HandlerKind::Jobs, digest, None);
    let attempt = Attempt {
        key: AttemptKey::without_store(),
        number: 1,
        deployment: Arc::new(deployment),
        input: (),
        s3_config: None,
        trace: None,
        timeout_ms: u64::try_from(TIME_MAX.as_millis()).unwrap_or(u64::MAX),
        deadline: Instant::now() + TIME_MAX,
        stop: CancellationToken::new(),
    };
    Ok(preinit(component, attempt, Arc::new(TerminalSink::default())).await?)
}
