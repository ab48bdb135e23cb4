//! Detects changes of a project's sources.
//!
//! Directories are watched one by one, so that directories with thousands of generated files (build
//! results, packages, caches) cost nothing. Changes that occur together are reported as one.
//! Changes of files that git ignores are not reported; to find out, git runs once for each change,
//! in some 5 ms.
//!
//! A build, or the output of `dev` in a file of the project, may change a file each time, so that
//! builds would never end. A file that starts a build without effect starts no second one: see
//! [`Changes::next`].

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use gristmill_commands::output;
use notify::event::ModifyKind;
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::project::FILE_NAME;
use crate::sources::is_source;

/// A change is reported once there was no further change for this long.
const QUIET: Duration = Duration::from_millis(50);

/// The ends of files that compilers and bundlers read. Each change of such a file is reported, also
/// after changes without effect, such as those of a comment.
const CODE: [&str; 14] = [
    "rs", "py", "pyi", "ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs", "json", "toml", "wit",
];

/// The changes of a project's sources.
pub(super) struct Changes {
    root: PathBuf,
    /// The host's data directory, which may be within the project.
    data_dir: PathBuf,
    watcher: RecommendedWatcher,
    events: UnboundedReceiver<notify::Result<Event>>,
    /// The changes that started the last build.
    reported: HashSet<PathBuf>,
    /// The files that started a build without effect, and were changed again.
    idle: HashSet<PathBuf>,
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
        let (reported, idle) = (HashSet::new(), HashSet::new());
        let mut changes = Self { root, data_dir, watcher, events, reported, idle };
        changes.watch(&changes.root.clone())?;
        Ok(changes)
    }

    /// Waits for a change, and for the end of the changes that occur with it. Returns the first
    /// path that still exists, since editors write another file and then rename it.
    ///
    /// `had_effect` says whether the build since the last call made another component. If it did
    /// not, a repeated change of a file that started it is not reported, until a build has an
    /// effect; files with code are always reported.
    ///
    /// # Errors
    /// When the system stops watching.
    pub(super) async fn next(&mut self, had_effect: bool) -> anyhow::Result<PathBuf> {
        if had_effect {
            self.reported.clear();
            self.idle.clear();
        }
        loop {
            let mut changed = self.batch().await?;
            let ignored = ignored_by_git(&self.root, &changed).await;
            changed.retain(|path| !ignored.contains(path) && !self.is_idle(path));
            if let Some(first) = changed.first() {
                let first = changed.iter().find(|path| path.exists()).unwrap_or(first).clone();
                self.reported = changed.into_iter().collect();
                // If no changed file is known, the project is shown by its own path.
                let within = first.strip_prefix(&self.root).ok();
                let within = within.filter(|path| *path != Path::new(""));
                return Ok(within.map(Path::to_owned).unwrap_or(first));
            }
        }
    }

    /// The changes of sources that occur together, at least one.
    async fn batch(&mut self) -> anyhow::Result<Vec<PathBuf>> {
        let gone = || anyhow!("files are no longer watched");
        let mut changed = Vec::new();
        while changed.is_empty() {
            let event = self.events.recv().await.ok_or_else(gone)?;
            changed.extend(self.source(event.context("cannot watch files")?));
        }
        while let Ok(event) = timeout(QUIET, self.events.recv()).await {
            changed.extend(self.source(event.ok_or_else(gone)?.context("cannot watch files")?));
        }
        // There may be new directories, which are not watched yet.
        self.watch(&self.root.clone())?;
        Ok(changed)
    }

    /// Whether a changed file has started a build without effect. Notes the first such change.
    fn is_idle(&mut self, path: &Path) -> bool {
        let has_code = path.extension().is_some_and(|end| CODE.iter().any(|known| end == *known));
        if has_code || !self.reported.contains(path) && !self.idle.contains(path) || path.is_dir() {
            return false;
        }
        if self.idle.insert(path.to_owned()) {
            let shown = path.strip_prefix(&self.root).unwrap_or(path).display();
            output::note(format_args!(
                "{shown} was changed again, after a build for it that had no effect: it starts no build until \
                 one has an effect"
            ));
        }
        true
    }

    /// The source of an event, if it is a change of a source; the project, if events are missing.
    fn source(&self, event: Event) -> Option<PathBuf> {
        // The system had no room for all events, such as after a change of the branch, and names no
        // path.
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

    /// Watches a directory and those below it. An already watched directory stays watched, and a
    /// directory that was deleted meanwhile needs no watch: builds and editors delete directories
    /// at any time.
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

/// The paths that git ignores in this project: none without git, without a repository, or if the
/// whole project is ignored, such as one in the directory of build results of another.
async fn ignored_by_git(dir: &Path, paths: &[PathBuf]) -> HashSet<PathBuf> {
    let own = dir.join(FILE_NAME);
    let ask = async {
        let mut git = Command::new("git")
            .args(["check-ignore", "-z", "--stdin"])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut input = Vec::new();
        for path in paths.iter().chain([&own]) {
            input.extend(path.as_os_str().as_bytes());
            input.push(0);
        }
        let mut stdin = git.stdin.take();
        let write = async move {
            if let Some(stdin) = &mut stdin {
                // Git ends at once outside of a repository.
                let _ = stdin.write_all(&input).await;
            }
        };
        let (output, ()) = tokio::join!(git.wait_with_output(), write);
        io::Result::Ok(output?.stdout)
    };
    let stdout = ask.await.unwrap_or_default();
    let paths = stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let ignored: HashSet<_> =
        paths.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))).collect();
    if ignored.contains(&own) { HashSet::new() } else { ignored }
}

fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(error) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
