//! The resources of a job that runs on this machine: options of `run` and `test`, and the table
//! `[limits]` of a [project file](super::project), with the same names and bounds.

use clap::Args;
use gristmill_client::wire::management::{EndpointInput, check_fuel};
use gristmill_client::wire::settings::{InvalidField, number};
use gristmill_core::deploy::endpoint::{EndpointSettings, Metering};
use gristmill_core::limits::{Bounds, EXECUTION_TIMEOUT_MS};
use serde::Deserialize;

use gristmill_commands::arguments::parse;

/// How long a job may run, in milliseconds. The minimum is lower than on a host, for testing
/// timeouts.
pub(crate) const TIMEOUT_MS: Bounds =
    Bounds { min: 1, default: EXECUTION_TIMEOUT_MS.default, max: EXECUTION_TIMEOUT_MS.max };

/// The given limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Memory of a job, in MiB [default: 256].
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u64>(EndpointSettings::MEMORY_MIB))]
    memory_mib: Option<u64>,
    /// How long a job may run, in milliseconds [default: 600000].
    #[arg(long, value_name = "MS", value_parser = parse::bounded::<u64>(TIMEOUT_MS))]
    timeout_ms: Option<u64>,
    /// Most fuel of a job [default: fuel is counted and not bounded].
    #[arg(long, value_name = "N", value_parser = parse::bounded::<u64>(EndpointSettings::FUEL))]
    max_fuel: Option<u64>,
    /// How computing is metered [default: fuel].
    #[arg(long, value_parser = parse::metering())]
    metering: Option<Metering>,
    /// Scratch space of a job, at /tmp, in gigabytes; 0: none [default: 0].
    #[arg(long, value_name = "GB")]
    scratch_gb: Option<u32>,
}

impl LimitOptions {
    /// Checks numbers that are not from a command line, and limits that exclude each other.
    ///
    /// # Errors
    /// Names the limit, and its bounds or the remedy.
    pub(crate) fn check(&self) -> Result<(), InvalidField> {
        let numbers = [
            ("memory-mib", self.memory_mib, EndpointSettings::MEMORY_MIB),
            ("timeout-ms", self.timeout_ms, TIMEOUT_MS),
            ("max-fuel", self.max_fuel, EndpointSettings::FUEL),
        ];
        for (name, given, bounds) in numbers {
            if let Some(given) = given {
                number::<u64>(name, given, bounds)?;
            }
        }
        check_fuel("max-fuel", self.max_fuel, self.metering.unwrap_or_default())
    }

    /// These limits, completed by `others`.
    pub(crate) fn over(self, others: Self) -> Self {
        Self {
            memory_mib: self.memory_mib.or(others.memory_mib),
            timeout_ms: self.timeout_ms.or(others.timeout_ms),
            max_fuel: self.max_fuel.or(others.max_fuel),
            metering: self.metering.or(others.metering),
            scratch_gb: self.scratch_gb.or(others.scratch_gb),
        }
    }

    /// The limits as a sandbox takes them.
    pub(crate) fn settings(&self) -> EndpointSettings {
        let default = EndpointSettings::default();
        EndpointSettings {
            execution_timeout_ms: self.timeout_ms(),
            memory_mib: self.memory_mib.unwrap_or(default.memory_mib),
            max_fuel: self.max_fuel,
            metering: self.metering.unwrap_or(default.metering),
            ..default
        }
    }

    /// The given limits as settings of an endpoint.
    pub(crate) fn document(&self) -> EndpointInput {
        EndpointInput {
            memory_mib: self.memory_mib,
            execution_timeout_ms: self.timeout_ms,
            max_fuel: self.max_fuel,
            metering: self.metering,
            ..EndpointInput::default()
        }
    }

    /// Scratch space, if it was given.
    pub(crate) fn given_scratch_gb(&self) -> Option<u32> {
        self.scratch_gb
    }

    /// How long a job may run, in milliseconds.
    pub(crate) fn timeout_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(TIMEOUT_MS.default)
    }

    /// Scratch space of a job, in gigabytes.
    pub(crate) fn scratch_gb(&self) -> u32 {
        self.scratch_gb.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_counts_and_the_default_last() {
        let flags = LimitOptions { memory_mib: Some(8), ..LimitOptions::default() };
        let file =
            LimitOptions { memory_mib: Some(9), scratch_gb: Some(2), ..LimitOptions::default() };
        let limits = flags.over(file);
        assert_eq!(limits.settings().memory_mib, 8);
        assert_eq!((limits.scratch_gb(), limits.timeout_ms()), (2, 600_000));
    }

    #[test]
    fn a_bound_of_fuel_needs_a_metering_that_counts_fuel() {
        let fuel = LimitOptions { max_fuel: Some(5), ..LimitOptions::default() };
        let epoch = LimitOptions { metering: Some(Metering::Epoch), ..LimitOptions::default() };
        assert!(fuel.check().is_ok() && epoch.check().is_ok());
        assert!(fuel.over(epoch).check().unwrap_err().to_string().contains("counts no fuel"));
    }

    #[test]
    fn the_help_names_the_true_defaults() {
        assert_eq!((EndpointSettings::MEMORY_MIB.default, TIMEOUT_MS.default), (256, 600_000));
        assert_eq!(Metering::default().as_str(), "fuel");
    }
}
