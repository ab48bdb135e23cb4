//! The memory of this host's sandboxes, for the active host: sandboxes grow after they have begun,
//! and the active host begins no attempt for which there is no memory.
//!
//! **Cost.** One look at the account each [`LOOK`], and a message when it has changed by
//! [`CHANGE_MIN`].

use std::time::Duration;

use gristmill_core::runtime::{Runtime, SandboxMemory};

use crate::frames::FrameSender;
use crate::messages::Memory;

/// Interval of the looks.
const LOOK: Duration = Duration::from_millis(250);

/// A smaller change of the bytes is not reported.
const CHANGE_MIN: u64 = 1 << 20;

/// Reports until the receiver is dropped.
pub(super) async fn report(runtime: &dyn Runtime, reports: &FrameSender) {
    let mut reported = 0_u64;
    loop {
        let SandboxMemory { permits, idle, .. } = runtime.memory();
        // Idle instances end for an attempt that needs their memory.
        let used_bytes = permits.taken.saturating_sub(idle).saturating_add(permits.withheld);
        if used_bytes.abs_diff(reported) >= CHANGE_MIN {
            reported = used_bytes;
            if reports.send(&Memory { used_bytes }).is_err() {
                return;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
