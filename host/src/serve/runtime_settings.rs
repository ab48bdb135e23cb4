//! The settings of the runtime that runs handlers on this host.

use std::sync::Arc;

use gristmill_core::depot::Depot;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::trace::Tracer;
use gristmill_egress::AddressPolicy;
use gristmill_runtime::RuntimeSettings;
use tracing::warn;

use super::guest_runtimes::GuestRuntimes;
use super::memory;
use super::settings::{ServeSettings, Within};
use crate::compilers;

/// The parts of a runtime.
#[derive(Clone)]
pub(super) struct RuntimeParts<'a> {
    pub(super) settings: &'a ServeSettings,
    pub(super) guests: &'a GuestRuntimes,
    /// Whether a developer watches the jobs, with the stacks of handlers that trap.
    pub(super) is_watched: bool,
    pub(super) tenancy: Tenancy,
    pub(super) disk_space: Arc<DiskSpaceGauge>,
    /// The addresses that requests to public hosts may reach.
    pub(super) addresses: AddressPolicy,
    pub(super) tracer: Tracer,
}

impl RuntimeParts<'_> {
    /// The settings, with the components of all hosts of a database. Compiles run in child processes of this same
    /// program.
    ///
    /// # Errors
    /// When this program cannot be found.
    pub(super) fn settings(
        &self,
        depot: Option<Arc<dyn Depot>>,
    ) -> anyhow::Result<RuntimeSettings> {
        let Self { settings, guests, .. } = self;
        let compiler =
            if self.is_watched { compilers::for_developer()? } else { compilers::for_host()? };
        Ok(RuntimeSettings {
            running_jobs_max: settings.max_running_jobs.as_u32(),
            memory_bytes_max: memory_bytes_max(settings),
            low_priority_threads: Some(guests.low_priority.handle().clone()),
            private_hosts: settings.handler_allow.clone(),
            explains_traps: self.is_watched,
            tenancy: self.tenancy.clone(),
            disk_space: self.disk_space.clone(),
            addresses: self.addresses.clone(),
            tracer: self.tracer.clone(),
            depot,
            ..RuntimeSettings::new(settings.data_dir.clone(), compiler)
        })
    }
}

/// Most memory of all sandboxes together, in bytes.
pub(super) fn memory_bytes_max(settings: &ServeSettings) -> u64 {
    settings.max_sandbox_memory_mib.map_or_else(memory::default_budget, Within::mib_as_bytes)
}

/// The addresses that requests to public hosts may reach.
pub(super) fn address_policy(settings: &ServeSettings) -> AddressPolicy {
    let addresses = AddressPolicy::new(&settings.egress_deny);
    if let Err(error) = addresses.look() {
        warn!(
            %error,
            "cannot list this host's network interfaces: {error}; webhooks, images and handlers' \
             requests to public addresses are refused until that is permitted (systemd: add \
             AF_NETLINK to RestrictAddressFamilies=)"
        );
    }
    addresses
}
