//! The choice of a host for an attempt.
//!
//! The host itself is first while it has an idle core, since an attempt on another host takes a
//! round trip. Then the hosts are ordered by their attempts for each core.

/// How busy a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Attempts that run.
    pub(crate) running: u64,
    /// Its cores; at least 1.
    pub(crate) cores: u64,
}

/// A host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The active host.
    Local,
    /// The runner at this index.
    Runner(usize),
}

/// The hosts in the order in which they are asked for a sandbox.
pub(crate) fn order(local: Busy, runners: &[Busy]) -> Vec<Choice> {
    let mut order = vec![(local, Choice::Local)];
    order.extend(runners.iter().enumerate().map(|(index, busy)| (*busy, Choice::Runner(index))));
    if local.running >= local.cores {
        // A stable sort: the host itself is first among equals.
        order.sort_by(|(one, _), (other, _)| {
            let product = |a: &Busy, b: &Busy| u128::from(a.running) * u128::from(b.cores.max(1));
            product(one, other).cmp(&product(other, one))
        });
    }
    order.into_iter().map(|(_, choice)| choice).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn busy(running: u64, cores: u64) -> Busy {
        Busy { running, cores }
    }

    #[test]
    fn the_host_itself_is_first_while_it_has_an_idle_core() {
        use Choice::{Local, Runner};
        for (local, runners, expected) in [
            (busy(0, 2), vec![], vec![Local]),
            (busy(1, 2), vec![busy(0, 8)], vec![Local, Runner(0)]),
            (busy(2, 2), vec![busy(0, 8)], vec![Runner(0), Local]),
            (busy(2, 2), vec![busy(8, 8)], vec![Local, Runner(0)]),
            (busy(4, 2), vec![busy(3, 2), busy(1, 1)], vec![Runner(1), Runner(0), Local]),
            (busy(u64::MAX, 1), vec![busy(u64::MAX, 2)], vec![Runner(0), Local]),
        ] {
            assert_eq!(order(local, &runners), expected, "{local:?} {runners:?}");
        }
    }

    proptest! {
        /// Attempts that are started one by one are spread by the cores of the hosts.
        #[test]
        fn attempts_are_spread_by_cores(cores in prop::collection::vec(1_u64..16, 1..6), attempts in 0_u64..300) {
            let mut hosts: Vec<_> = cores.iter().map(|cores| busy(0, *cores)).collect();
            for _ in 0..attempts {
                let chosen = match order(hosts[0], &hosts[1..])[0] {
                    Choice::Local => 0,
                    Choice::Runner(index) => index + 1,
                };
                hosts[chosen].running += 1;
            }
            for one in &hosts {
                for other in &hosts[1..] {
                    // No runner has a core's attempt more than another host, except the host
                    // itself.
                    prop_assert!(other.running * one.cores <= (one.running + 1) * other.cores + one.cores * other.cores);
                }
            }
            prop_assert_eq!(hosts.iter().map(|host| host.running).sum::<u64>(), attempts);
        }
    }
}
