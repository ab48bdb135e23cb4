//! Properties of the host that stay as they are from its start on, and the end of its certificate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gristmill_core::time::Timestamp;

/// What the operator has set.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Most sandboxes at one time.
    pub sandboxes_max: u64,
    /// The address at which other hosts reach this one.
    pub cluster_address: Option<String>,
    /// Settings without secrets, by the names of their options.
    pub settings: BTreeMap<String, String>,
}

/// When the TLS certificate that the host uses expires. The listener sets it with each certificate.
#[derive(Debug, Clone, Default)]
pub struct CertificateExpiry(Arc<AtomicU64>);

impl CertificateExpiry {
    /// Seconds since 1970; 0 without TLS, and for a certificate whose time cannot be read.
    pub fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets that time.
    pub fn set_seconds(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

/// When the process started, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    pub(crate) at: Timestamp,
    pub(crate) elapsed: Duration,
}
