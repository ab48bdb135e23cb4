//! The loss of the host that ran a job, and how often a job may be the reason for it.

use crate::limits::{CRASHES_MAX, LOSSES_MAX};

/// Why the host that ran an attempt is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostLoss {
    /// Its process is known to have ended while the attempt ran there: perhaps because of the job.
    Crash,
    /// It cannot be reached, was paused, or has not kept the attempt. Nothing is known against the
    /// job.
    Unreachable,
}

impl HostLoss {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Crash, Self::Unreachable];
}

/// How often a job may lose its host: it is FAILED then instead of queued again, since it may be
/// the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossBounds {
    /// For [`HostLoss::Crash`].
    pub crashes_max: u8,
    /// For [`HostLoss::Unreachable`].
    pub losses_max: u8,
}

impl Default for LossBounds {
    fn default() -> Self {
        Self { crashes_max: CRASHES_MAX, losses_max: LOSSES_MAX }
    }
}

/// How often a job has lost its host since a client has submitted or retried it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// By [`HostLoss::Crash`].
    pub crashes: u8,
    /// By [`HostLoss::Unreachable`].
    pub others: u8,
}

impl Losses {
    /// With a further loss. The greatest number stays.
    #[must_use]
    pub fn and(self, loss: HostLoss) -> Self {
        let Self { crashes, others } = self;
        match loss {
            HostLoss::Crash => Self { crashes: crashes.saturating_add(1), others },
            HostLoss::Unreachable => Self { crashes, others: others.saturating_add(1) },
        }
    }

    /// Whether a further loss reaches its bound.
    pub fn is_last(self, loss: HostLoss, bounds: LossBounds) -> bool {
        let after = self.and(loss);
        match loss {
            HostLoss::Crash => after.crashes >= bounds.crashes_max,
            HostLoss::Unreachable => after.others >= bounds.losses_max,
        }
    }
}

impl LossBounds {
    /// The error text of a job that has reached the bound of this loss.
    pub fn error(self, loss: HostLoss) -> String {
        let Self { crashes_max, losses_max } = self;
        match loss {
            HostLoss::Crash => {
                format!("the host died while the job ran, {crashes_max} times (--max-crashes)")
            }
            HostLoss::Unreachable => format!(
                "the host that ran the job could not be reached any more, {losses_max} times \
                 (--max-losses)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_has_a_bound_of_its_own() {
        use HostLoss::{Crash, Unreachable};
        let bounds = LossBounds { crashes_max: 2, losses_max: 3 };
        for (before, last) in [
            (&[][..], [false, false]),
            (&[Crash], [true, false]),
            (&[Unreachable, Unreachable], [false, true]),
            (&[Unreachable, Crash, Unreachable], [true, true]),
        ] {
            let losses = before.iter().fold(Losses::default(), |losses, loss| losses.and(*loss));
            assert_eq!(HostLoss::ALL.map(|loss| losses.is_last(loss, bounds)), last, "{before:?}");
        }
        let many = Losses { crashes: u8::MAX, others: u8::MAX };
        assert_eq!(many.and(Crash).and(Unreachable), many);
        let most = LossBounds { crashes_max: u8::MAX, losses_max: u8::MAX };
        assert!(HostLoss::ALL.iter().all(|loss| many.is_last(*loss, most)));
    }

    #[test]
    fn the_error_names_the_setting() {
        for (loss, setting) in
            [(HostLoss::Crash, "--max-crashes"), (HostLoss::Unreachable, "--max-losses")]
        {
            assert!(LossBounds::default().error(loss).contains(setting));
        }
    }
}
