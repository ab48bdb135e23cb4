//! The reports of an attempt that the active host has not taken yet.
//!
//! **Promise.** They are kept in their order until they are taken, and are sent again after a lost
//! connection, each with the number that it had. So the active host carries out each one once.
//!
//! **Bounds.** [`has_room`](Unconfirmed::has_room) is false from [`ATTEMPT_BYTES_MAX`] on, and the
//! attempt then waits with its next chunk. Lines of its log are bounded by the runtime, and there
//! is one end.

use std::collections::VecDeque;

use prost::Message as _;

use crate::frames::FRAME_BYTES_MIN;
use crate::messages::{FromRunner, Report};

/// Bytes of the reports of an attempt from which on the attempt waits.
pub(super) const ATTEMPT_BYTES_MAX: usize = 1 << 20;

/// Reports with numbers.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// The number of the last report.
    made: u64,
    kept: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    message: FromRunner,
    bytes: usize,
}

impl Unconfirmed {
    /// The bytes that a report takes here.
    pub(super) fn bytes_of(report: &Report) -> usize {
        let number = FromRunner { report: None, number: u64::MAX };
        // Short frames are padded, and may wait for the connection too.
        (report.encoded_len() + number.encoded_len()).max(FRAME_BYTES_MIN)
    }

    /// Keeps a report, and returns the message that sends it.
    pub(super) fn keep(&mut self, report: Report) -> FromRunner {
        let bytes = Self::bytes_of(&report);
        self.made += 1;
        self.bytes += bytes;
        let message = FromRunner { report: Some(report), number: self.made };
        self.kept.push_back(Kept { message: message.clone(), bytes });
        message
    }

    /// Forgets the reports up to this number, and returns their bytes. Numbers that were never
    /// given, or were taken before, change nothing more.
    pub(super) fn take(&mut self, through: u64) -> usize {
        let before = self.bytes;
        while let Some(first) = self.kept.front()
            && first.message.number <= through
        {
            self.bytes -= first.bytes;
            self.kept.pop_front();
        }
        before - self.bytes
    }

    /// The reports after this number, in their order.
    pub(super) fn after(&self, received: u64) -> impl Iterator<Item = &FromRunner> {
        let messages = self.kept.iter().map(|kept| &kept.message);
        messages.filter(move |message| message.number > received)
    }

    /// The number of the last report; 0 without one.
    pub(super) fn last(&self) -> u64 {
        self.made
    }

    /// Bytes of the reports that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the attempt may add another report now.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < ATTEMPT_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn report(bytes: usize) -> Report {
        Report::Progress(Bytes::from(vec![b'1'; bytes]))
    }

    #[test]
    fn room_is_bounded_in_bytes_and_short_reports_count_as_long_as_their_frames() {
        for (bytes, expected) in [(1, ATTEMPT_BYTES_MAX / FRAME_BYTES_MIN), (400 << 10, 3)] {
            let mut reports = Unconfirmed::default();
            let kept = std::iter::from_fn(|| {
                reports.has_room().then(|| reports.keep(report(bytes)).number)
            });
            assert_eq!(kept.count(), expected, "{bytes}");
        }
    }

    proptest! {
        /// The other side receives a part of what was sent, confirms a part of that, and the
        /// connection is lost: any number of times.
        #[test]
        fn each_report_is_carried_out_once_and_in_order(
            steps in prop::collection::vec((0_usize..5, 0_usize..8, 0_u64..8), 1..40),
        ) {
            let (mut reports, mut made) = (Unconfirmed::default(), Vec::new());
            let (mut carried_out, mut received) = (Vec::new(), 0);
            for (more, arrive, untaken) in steps {
                let mut sent: Vec<_> = reports.after(received).cloned().collect();
                for _ in 0..more {
                    let size = made.len() + 1;
                    made.push(size);
                    sent.push(reports.keep(report(size)));
                }
                for message in sent.into_iter().take(arrive) {
                    prop_assert_eq!(message.number, received + 1);
                    received = message.number;
                    let Some(Report::Progress(bytes)) = message.report else { panic!("{message:?}") };
                    carried_out.push(bytes.len());
                }
                reports.take(received.saturating_sub(untaken));
                let bytes: usize =
                    reports.after(0).map(|kept| Unconfirmed::bytes_of(kept.report.as_ref().unwrap())).sum();
                prop_assert_eq!(reports.bytes(), bytes);
                prop_assert_eq!(&carried_out[..], &made[..carried_out.len()]);
            }
            let rest: Vec<_> = reports.after(received).map(|message| message.number).collect();
            prop_assert_eq!(rest, (received + 1..=made.len() as u64).collect::<Vec<_>>());
            reports.take(u64::MAX);
            prop_assert!(reports.after(0).next().is_none() && reports.bytes() == 0);
        }
    }
}
