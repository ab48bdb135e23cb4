//! The attempts that runners have, so that a runner that connects again goes on with them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::job::record::HostProcess;
use gristmill_core::runtime::AttemptKey;
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::link::{Link, Room};
use crate::convert;

/// The attempts that runners have.
#[derive(Debug, Default)]
pub(crate) struct RemoteAttempts {
    known: Mutex<HashMap<AttemptKey, Remote>>,
    /// Fires when this host is about to end. From then on it ends no attempt of a runner: the next
    /// active host may want it.
    leaving: CancellationToken,
}

/// An attempt on a runner.
#[derive(Debug)]
struct Remote {
    process: HostProcess,
    deployment: Arc<Deployment>,
    level: Level,
    found: mpsc::UnboundedSender<Found>,
}

/// What a runner that has connected again has of an attempt.
#[derive(Debug)]
pub(super) enum Found {
    /// It has kept it: here, until this time.
    Kept(Room, Instant),
    /// It does not have it any more.
    Absent,
    /// Another process has its data directory: the process with the attempt has ended.
    Ended,
}

/// The place of an attempt in the list, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    attempts: Arc<RemoteAttempts>,
    key: AttemptKey,
    pub(super) found: mpsc::UnboundedReceiver<Found>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.attempts.known.lock().remove(&self.key);
        // The attempt has ended before it could go on.
        while let Ok(found) = self.found.try_recv() {
            if let Found::Kept(room, _) = found {
                self.attempts.end(&room.link, std::slice::from_ref(&self.key));
            }
        }
    }
}

impl RemoteAttempts {
    /// Adds an attempt in this process.
    pub(super) fn list(
        self: &Arc<Self>,
        key: AttemptKey,
        process: HostProcess,
        deployment: Arc<Deployment>,
        level: Level,
    ) -> Listed {
        let (sender, found) = mpsc::unbounded_channel();
        let remote = Remote { process, deployment, level, found: sender };
        self.known.lock().insert(key.clone(), remote);
        Listed { attempts: self.clone(), key, found }
    }

    /// Goes on with the attempts that a runner has kept, and returns their number. Ends the others.
    pub(super) fn present(&self, link: &Arc<Link>) -> usize {
        let process = link.process();
        let mut kept = convert::kept_attempts(&link.offer().attempts);
        let mut wanted = 0;
        let known = self.known.lock();
        let of_directory = |remote: &Remote| remote.process.directory == process.directory;
        for (key, remote) in known.iter().filter(|(_, remote)| of_directory(remote)) {
            let found = match (remote.process == process).then(|| kept.remove(key)) {
                None => Found::Ended,
                Some(Some(until)) => {
                    wanted += 1;
                    Found::Kept(link.room_of_kept(&remote.deployment, remote.level), until)
                }
                Some(None) => Found::Absent,
            };
            // The attempt may be ending.
            let _ = remote.found.send(found);
        }
        drop(known);
        let unwanted: Vec<_> = kept.into_keys().collect();
        self.end(link, &unwanted);
        wanted
    }

    /// Ends attempts of a runner, unless the next active host may want them.
    pub(super) fn end(&self, link: &Arc<Link>, attempts: &[AttemptKey]) {
        if !attempts.is_empty() && !self.leaving.is_cancelled() {
            link.end_attempts(attempts);
        }
    }

    /// This host is about to end.
    pub(super) fn leave(&self) {
        self.leaving.cancel();
    }

    /// Resolves when this host is about to end.
    pub(super) async fn leaving(&self) {
        self.leaving.cancelled().await;
    }
}
