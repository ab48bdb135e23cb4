//! How many jobs of an endpoint, and of each key, may start and run, as options.

use std::collections::BTreeMap;

use clap::Args;
use gristmill_client::wire::bounds::KEY_WEIGHT;
use gristmill_client::wire::management::{KeyLimitsInput, KeyWeight, StartRate, StartRateInput};

use super::parse::bounded;

/// The limits that are given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of starts")]
pub(crate) struct StartOptions {
    /// Jobs that may start in so many milliseconds, such as 100/1000; further ones wait. 0 removes
    /// the limit [default: none].
    #[arg(long, value_name = "JOBS/MS", value_parser = rate)]
    throttle: Option<StartRateInput>,
    /// Jobs that may start at once, after a pause [default: 1].
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(StartRate::BURST))]
    throttle_burst: Option<u64>,
    /// Jobs of one key that may run at one time; 0 removes the limit [default: none].
    #[arg(long, value_name = "N")]
    key_concurrency: Option<u64>,
    /// Jobs of one key that may start in so many milliseconds; 0 removes the limit [default: none].
    #[arg(long, value_name = "JOBS/MS", value_parser = rate)]
    key_rate: Option<StartRateInput>,
    /// Jobs of one key that may start at once, after a pause [default: 1].
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(StartRate::BURST))]
    key_burst: Option<u64>,
    /// The weight of a key, 1 to 1000: with 3 it has three turns for each one of another key; may
    /// be repeated. Replaces all weights of an earlier deploy [default: 1].
    #[arg(long = "key-weight", value_name = "KEY=N", value_parser = weight)]
    key_weights: Vec<(String, KeyWeight)>,
}

impl StartOptions {
    /// The throttle and the limits of keys; `None` without any.
    pub(crate) fn documents(self) -> (Option<StartRateInput>, Option<KeyLimitsInput>) {
        let throttle = with_burst(self.throttle, self.throttle_burst);
        let weights: BTreeMap<_, _> = self.key_weights.into_iter().collect();
        let keys = KeyLimitsInput {
            concurrency: self.key_concurrency,
            weights: (!weights.is_empty()).then_some(weights),
            rate: with_burst(self.key_rate, self.key_burst),
        };
        (throttle, (keys != KeyLimitsInput::default()).then_some(keys))
    }
}

fn with_burst(rate: Option<StartRateInput>, burst: Option<u64>) -> Option<StartRateInput> {
    (rate.is_some() || burst.is_some())
        .then(|| StartRateInput { burst, ..rate.unwrap_or_default() })
}

fn rate(text: &str) -> Result<StartRateInput, String> {
    if text == "0" {
        return Ok(StartRateInput { jobs: Some(0), ..StartRateInput::default() });
    }
    let wrong = || "write JOBS/MS, such as 100/1000 for 100 jobs in a second, or 0".to_owned();
    let (jobs, per_ms) = text.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let (jobs, per_ms) = (number(jobs)?, number(per_ms)?);
    if !StartRate::JOBS.contains(jobs) || !StartRate::PER_MS.contains(per_ms) {
        let (jobs, per_ms) = (StartRate::JOBS, StartRate::PER_MS);
        return Err(format!("write {} to {} jobs, and 1 to {} ms", jobs.min, jobs.max, per_ms.max));
    }
    Ok(StartRateInput { jobs: Some(jobs), per_ms: Some(per_ms), burst: None })
}

fn weight(text: &str) -> Result<(String, KeyWeight), String> {
    let wrong =
        || format!("write KEY=N, such as acme=3, with {} to {}", KEY_WEIGHT.min, KEY_WEIGHT.max);
    // A key may have `=`.
    let (key, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight = weight.parse().ok().filter(|weight: &u32| KEY_WEIGHT.contains((*weight).into()));
    Ok((key.to_owned(), KeyWeight(weight.ok_or_else(wrong)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_jobs_in_a_time() {
        let given = |text| rate(text).map(|rate| (rate.jobs, rate.per_ms));
        assert_eq!(given("100/1000"), Ok((Some(100), Some(1_000))));
        assert_eq!(given("0"), Ok((Some(0), None)));
        for wrong in ["", "5", "5/", "/5", "0/5", "5/0", "a/b", "-1/5", "1000001/5", "1/604800001"]
        {
            assert!(given(wrong).is_err(), "{wrong}");
        }
        assert_eq!(weight("a=b=3"), Ok(("a=b".to_owned(), KeyWeight(3))));
        for wrong in ["", "a", "a=", "a=0", "a=1001", "a=x"] {
            assert!(weight(wrong).is_err(), "{wrong}");
        }
    }
}
