//! The attempts that runners have, so that a runner that connects again goes on with them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::runtime::AttemptKey;
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::link::{Link, Room};
use crate::convert;
use crate::messages::Offer;

/// The attempts that runners have.
#[derive(Debug, Default)]
pub(crate) struct RemoteAttempts(Mutex<HashMap<AttemptKey, Remote>>);

/// An attempt on a runner.
#[derive(Debug)]
struct Remote {
    /// The process of the runner, and its data directory.
    instance: u64,
    directory: u64,
    deployment: Arc<Deployment>,
    level: Level,
    found: mpsc::UnboundedSender<Found>,
}

/// What a runner that has connected again has of an attempt.
#[derive(Debug)]
pub(super) enum Found {
    /// It has kept it: here.
    Kept(Room),
    /// It does not have it any more.
    Absent,
    /// Another process has its data directory: the process with the attempt has ended.
    Ended,
}

/// The place of an attempt in the list, which it leaves when this is dropped.
pub(super) struct Listed<'a> {
    attempts: &'a RemoteAttempts,
    key: AttemptKey,
    pub(super) found: mpsc::UnboundedReceiver<Found>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.attempts.0.lock().remove(&self.key);
        // The attempt has ended before it could go on.
        while let Ok(found) = self.found.try_recv() {
            if let Found::Kept(room) = found {
                room.link.end_attempts(std::slice::from_ref(&self.key));
            }
        }
    }
}

impl RemoteAttempts {
    /// Adds an attempt in this room.
    pub(super) fn list(
        &self,
        key: AttemptKey,
        room: &Room,
        deployment: Arc<Deployment>,
    ) -> Listed<'_> {
        let (sender, found) = mpsc::unbounded_channel();
        let Offer { instance, directory, .. } = *room.link.offer();
        let remote = Remote { instance, directory, deployment, level: room.level, found: sender };
        self.0.lock().insert(key.clone(), remote);
        Listed { attempts: self, key, found }
    }

    /// Goes on with the attempts that a runner has kept. Returns the others.
    pub(super) fn present(&self, link: &Arc<Link>) -> Vec<AttemptKey> {
        let offer = link.offer();
        let kept: HashSet<_> = convert::attempt_keys(&offer.attempts).into_iter().collect();
        let remotes = self.0.lock();
        let own = |remote: &&Remote| remote.instance == offer.instance;
        let of_directory = |remote: &Remote| remote.directory == offer.directory;
        for (key, remote) in remotes.iter().filter(|(_, remote)| of_directory(remote)) {
            let found = match kept.contains(key) {
                _ if !own(&remote) => Found::Ended,
                true => Found::Kept(link.room_of_kept(&remote.deployment, remote.level)),
                false => Found::Absent,
            };
            // The attempt may be ending.
            let _ = remote.found.send(found);
        }
        kept.into_iter().filter(|key| remotes.get(key).filter(own).is_none()).collect()
    }
}
