//! How many jobs of an endpoint may start and run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bounds::{Bounds, JOB_KEY_RULE, KEY_WEIGHT, KEY_WEIGHTS_MAX, SEVEN_DAYS_MS, is_job_key};
use crate::settings::{InvalidField, check_count, number, settings};
use crate::whole_number;

settings! {
    /// How many jobs may start: `burst` of them at once, and then one each `perMs / jobs`
    /// milliseconds. So at most `jobs + burst - 1` of them start in each time of `perMs`.
    #[derive(Copy)]
    pub struct StartRate;

    /// How many jobs may start; a field that is left out keeps its value.
    #[derive(Copy)]
    pub struct StartRateInput {}

    numbers {
        /// The time for `jobs`, in milliseconds.
        per_ms: u64, PER_MS = Bounds { min: 1, default: 1_000, max: SEVEN_DAYS_MS };
        /// Jobs that may start at once after a pause.
        burst: u32, BURST = Bounds { min: 1, default: 1, max: 10_000 };
    }
    optional {
        /// Jobs that may start in `perMs`; absent: as many as there are workers.
        jobs: u32, JOBS = Bounds::upto(1_000_000);
    }
    values {}
    objects {}
}

settings! {
    /// What the jobs of each key may do at most, and how the keys share the workers.
    pub struct KeyLimits;

    /// What the jobs of each key may do at most; a field that is left out keeps its value.
    pub struct KeyLimitsInput {}

    numbers {}
    optional {
        /// Jobs of one key that may run at one time, on all hosts; absent: as many as there are
        /// workers.
        concurrency: u32, CONCURRENCY = Bounds::upto(1_000);
    }
    values {
        /// Shares of keys in the turns, 1 to 1,000; 1 for a key that is not named. A key with 3 has
        /// three turns for each one of a key with 1.
        weights: BTreeMap<String, KeyWeight> as KeyWeights = BTreeMap::new(), check_weights;
    }
    objects {
        /// How many jobs of one key may start in some time.
        rate: StartRate, StartRateInput;
    }
}

/// The weight of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyWeight(#[serde(deserialize_with = "whole_number::required")] pub u32);

fn check_weights(field: &str, weights: &BTreeMap<String, KeyWeight>) -> Result<(), InvalidField> {
    check_count(field, weights.len(), KEY_WEIGHTS_MAX)?;
    for (key, weight) in weights {
        let name = format!("{key:.99}");
        if !is_job_key(key) {
            let fault = format!("has the key `{}`, which {JOB_KEY_RULE}", name.escape_debug());
            return Err(InvalidField::new(field, fault));
        }
        number::<u32>(&format!("{field}.{name}"), u64::from(weight.0), KEY_WEIGHT)?;
    }
    Ok(())
}
