//! The settings of the runtime that runs handlers on this host.

use gristmill_egress::AddressPolicy;
use gristmill_runtime::RuntimeSettings;
use gristmill_runtime::compile::process::Compiler;
use tracing::warn;

use super::memory;
use super::process::Process;
use super::settings::ServeSettings;

/// The settings. Compiles run in child processes of this same program.
///
/// # Errors
/// When this program cannot be found.
pub(super) fn of(process: &Process<'_>) -> anyhow::Result<RuntimeSettings> {
    let Process { settings, guests, is_watched, .. } = *process;
    let compiler = match is_watched {
        true => gristmill_author::compiler()?,
        false => Compiler::of_this_program()?,
    };
    Ok(RuntimeSettings {
        running_jobs_max: settings.sandboxes_max(),
        memory_bytes_max: settings.sandbox_bytes_max(),
        available_bytes: memory::available_here(),
        low_priority_threads: Some(guests.low_priority.handle().clone()),
        private_hosts: settings.handler_allow.clone(),
        explains_traps: is_watched,
        tenancy: process.tenancy.clone(),
        disk_space: process.disk_space.clone(),
        addresses: process.address_policy.clone(),
        tracer: process.tracer.clone(),
        ..RuntimeSettings::new(settings.data_dir.clone(), compiler)
    })
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
