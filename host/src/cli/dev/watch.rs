//! Detects changes of a project's sources.
//!
//! Directories are watched one by one, so that directories with thousands of generated files (build
//! results, packages, caches) cost nothing. Changes that occur together are reported as one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use notify::event::ModifyKind;
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::cli::sources::is_source;

/// A change is reported once there was no further change for this long.
const QUIET: Duration = Duration::from_millis(50);

/// The changes of a project's sources.
pub(super) struct Changes {
    root: PathBuf,
    /// The host's data directory, which may be within the project.
    data_dir: PathBuf,
    watcher: RecommendedWatcher,
    events: UnboundedReceiver<notify::Result<Event>>,
}

impl Changes {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the system cannot watch a directory.
    pub(super) fn of(dir: &Path, data_dir: &Path) -> anyhow::Result<Self> {
        let root = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
        let (send, events) = unbounded_channel();
        let watcher = notify::recommended_watcher(move |event| {
            // The receiver is dropped when the session is over.
            let _ = send.send(event);
        });
        let watcher = watcher.context("cannot watch files")?;
        let mut changes = Self { root, data_dir, watcher, events };
        changes.watch(&changes.root.clone())?;
        Ok(changes)
    }

    /// Waits for a change, and for the end of the changes that occur with it. Returns the first
    /// path that still exists, since editors write another file and then rename it.
    ///
    /// # Errors
    /// When the system stops watching.
    pub(super) async fn next(&mut self) -> anyhow::Result<PathBuf> {
        let gone = || anyhow!("files are no longer watched");
        let mut changed = Vec::new();
        while changed.is_empty() {
            let event = self.events.recv().await.ok_or_else(gone)?;
            changed.extend(self.source(event.context("cannot watch files")?));
        }
        while let Ok(event) = timeout(QUIET, self.events.recv()).await {
            changed.extend(self.source(event.ok_or_else(gone)?.context("cannot watch files")?));
        }
        let first = changed.iter().position(|path| path.exists()).unwrap_or(0);
        let changed = changed.swap_remove(first);
        // There may be new directories, which are not watched yet.
        self.watch(&self.root.clone())?;
        // If no changed file is known, the project is shown by its own path.
        let within = changed.strip_prefix(&self.root).ok().filter(|path| *path != Path::new(""));
        Ok(within.map(Path::to_owned).unwrap_or(changed))
    }

    /// The source of an event, if it is a change of a source; the project, if events are missing.
    fn source(&self, event: Event) -> Option<PathBuf> {
        // The system had no room for all events, such as after a change of the branch, and names no path.
        if event.need_rescan() {
            return Some(self.root.clone());
        }
        let is_change = match event.kind {
            EventKind::Create(_) | EventKind::Remove(_) => true,
            EventKind::Modify(kind) => !matches!(kind, ModifyKind::Metadata(_)),
            _ => false,
        };
        let mut paths = event.paths.into_iter().filter(|_| is_change);
        paths.find(|path| self.is_source(path))
    }

    fn is_source(&self, path: &Path) -> bool {
        path.strip_prefix(&self.root).is_ok_and(is_source) && !path.starts_with(&self.data_dir)
    }

    /// Watches a directory and those below it. An already watched directory stays watched, and a directory
    /// that was deleted meanwhile needs no watch: builds and editors delete directories at any time.
    fn watch(&mut self, dir: &Path) -> anyhow::Result<()> {
        match self.watcher.watch(dir, RecursiveMode::NonRecursive) {
            Err(error) if is_missing(&error) && dir != self.root => return Ok(()),
            watched => watched.with_context(|| format!("cannot watch {}", dir.display()))?,
        }
        let Ok(entries) = dir.read_dir() else { return Ok(()) };
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && self.is_source(&path) {
                self.watch(&path)?;
            }
        }
        Ok(())
    }
}

fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(error) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use notify::event::Flag;

    use super::*;

    #[tokio::test]
    async fn changes_are_reported_in_every_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("src")).unwrap();
        fs::create_dir_all(root.join("target")).unwrap();
        let mut changes = Changes::of(root, &root.join("data")).unwrap();
        let mut told = async |path: &str| {
            fs::write(root.join(path), path).unwrap();
            timeout(Duration::from_secs(30), changes.next()).await.unwrap().unwrap()
        };
        assert_eq!(told("src/lib.rs").await, Path::new("src/lib.rs"));
        fs::write(root.join("target/a"), "a").unwrap();
        fs::create_dir(root.join("src/new")).unwrap();
        assert_eq!(told("Cargo.toml").await, Path::new("src/new"), "the first of them");
        assert_eq!(told("src/new/mod.rs").await, Path::new("src/new/mod.rs"));
    }

    #[tokio::test]
    async fn a_directory_that_is_deleted_meanwhile_needs_no_watch() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mut changes = Changes::of(&root, &root.join("data")).unwrap();
        changes.watch(&root.join("src/gone")).unwrap();
        fs::write(root.join("a.rs"), "").unwrap();
        let told = timeout(Duration::from_secs(30), changes.next()).await.unwrap().unwrap();
        assert_eq!(told, Path::new("a.rs"));

        // Without the project there is nothing to watch.
        dir.close().unwrap();
        let error = changes.watch(&root).unwrap_err().to_string();
        assert!(error.starts_with("cannot watch "), "{error}");
    }

    #[tokio::test]
    async fn missing_events_are_a_change_of_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mut changes = Changes::of(&root, &root.join("data")).unwrap();
        let (send, events) = unbounded_channel();
        changes.events = events;
        send.send(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))).unwrap();
        let told = timeout(Duration::from_secs(30), changes.next()).await.unwrap().unwrap();
        assert_eq!(told, root);
    }
}
