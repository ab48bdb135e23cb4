//! Splits numbers into prime factors. The table of primes is expensive to compute, so `init`
//! computes it: once in each instance, or when the component is built.

use std::sync::OnceLock;

use gristmill_sdk::{Context, Error, handler};
use serde::{Deserialize, Serialize};

/// The largest primes in the table: their squares cover numbers up to 2^40.
const PRIME_MAX: usize = 1 << 20;

/// The largest accepted number.
const NUMBER_MAX: u64 = 1 << 40;

static PRIMES: OnceLock<Vec<u64>> = OnceLock::new();

#[derive(Deserialize)]
struct Input {
    number: u64,
}

#[derive(Serialize)]
struct Output {
    factors: Vec<u64>,
}

/// The sieve of Eratosthenes.
fn find_primes() -> Vec<u64> {
    let mut is_composite = vec![false; PRIME_MAX + 1];
    let mut primes = vec![];
    for (number, prime) in (0..=PRIME_MAX).zip(0_u64..).skip(2) {
        if is_composite.get(number).is_some_and(|is_composite| !is_composite) {
            primes.push(prime);
            // In a component a position has 32 bits, and the square of a large prime more: nothing
            // is left to mark.
            if let Some(square) = number.checked_mul(number) {
                is_composite.iter_mut().skip(square).step_by(number).for_each(|c| *c = true);
            }
        }
    }
    primes
}

fn init() -> Result<(), Error> {
    PRIMES.get_or_init(find_primes);
    Ok(())
}

fn take_apart(_ctx: &Context, input: Input) -> Result<Output, Error> {
    let mut rest = input.number;
    if !(1..=NUMBER_MAX).contains(&rest) {
        return Err(Error::invalid_input(format_args!(
            "number: {rest} is not in 1..={NUMBER_MAX}"
        )));
    }
    let mut factors = vec![];
    for &prime in PRIMES.get_or_init(find_primes) {
        if prime * prime > rest {
            break;
        }
        while rest.is_multiple_of(prime) {
            factors.push(prime);
            rest /= prime;
        }
    }
    if rest > 1 {
        factors.push(rest);
    }
    Ok(Output { factors })
}

handler!(take_apart, init = init);

#[cfg(test)]
mod tests {
    use gristmill_sdk::testing::TestContext;

    use super::*;

    fn factors(number: u64) -> String {
        let input = format!("{{\"number\":{number}}}");
        TestContext::new().run_json(take_apart, &input).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn numbers_are_products_of_primes() {
        init().unwrap();
        let cases = [
            (1, "[]"),
            (2, "[2]"),
            (360, "[2,2,2,3,3,5]"),
            (999_983, "[999983]"),
            (999_983 * 999_983, "[999983,999983]"),
            (
                1 << 40,
                "[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2]",
            ),
        ];
        for (number, expected) in cases {
            assert_eq!(factors(number), format!("{{\"factors\":{expected}}}"));
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        assert_eq!(factors(0), "number: 0 is not in 1..=1099511627776");
        assert_eq!(factors((1 << 40) + 1), "number: 1099511627777 is not in 1..=1099511627776");
    }
}
