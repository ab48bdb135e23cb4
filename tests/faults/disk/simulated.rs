//! A disk with only the guarantees of POSIX: changes that were not synced when the power fails may
//! survive or not, in any order, and a write may survive in part.
//!
//! A file's bytes are safe after a sync of the file, its name after a sync of its directory. Each
//! crash keeps a random part of the other changes: any of the writes, torn at sectors, and the
//! changes of names up to a random one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::log::Event;

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    files: Vec<File>,
    /// The names that the process sees.
    names: BTreeMap<PathBuf, usize>,
    /// The names that are safe.
    safe_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that are not safe, in their order.
    renames: Vec<Name>,
}

#[derive(Debug, Default)]
struct File {
    safe: Vec<u8>,
    unsafe_changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    SetLen(usize),
}

/// A change of a directory: from now on the name refers to this file, or to none.
#[derive(Debug)]
struct Name {
    path: PathBuf,
    file: Option<usize>,
}

/// The part of a file's unsafe changes that is kept.
#[derive(Debug, Clone, Copy)]
enum Keeps {
    Nothing,
    All,
    /// All up to one change, which is torn.
    Some,
    /// Each change and each of its sectors independently.
    Any,
}

impl Disk {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { path, at, bytes } => {
                let at = usize::try_from(*at).unwrap();
                let change = Change::Write { at, bytes: bytes.clone() };
                self.file(path).unsafe_changes.push(change);
            }
            Event::SetLen { path, len } => {
                let change = Change::SetLen(usize::try_from(*len).unwrap());
                self.file(path).unsafe_changes.push(change);
            }
            Event::Sync { path } => self.sync(path),
            Event::Rename { from, to } => {
                let file = self.names.remove(from);
                self.names.extend(file.map(|file| (to.clone(), file)));
                self.renames.push(Name { path: to.clone(), file });
                self.renames.push(Name { path: from.clone(), file: None });
            }
            Event::Create { path } => drop(self.file(path)),
            Event::Link { from, to } => {
                let file = self.names[from];
                self.names.insert(to.clone(), file);
                self.renames.push(Name { path: to.clone(), file: Some(file) });
            }
            Event::Remove { path } => {
                self.names.remove(path);
                self.renames.push(Name { path: path.clone(), file: None });
            }
        }
    }

    fn file(&mut self, path: &Path) -> &mut File {
        let next = self.files.len();
        let file = *self.names.entry(path.to_owned()).or_insert(next);
        if file == next {
            self.files.push(File::default());
            self.renames.push(Name { path: path.to_owned(), file: Some(file) });
        }
        &mut self.files[file]
    }

    fn sync(&mut self, path: &Path) {
        let Some(file) = self.names.get(path) else {
            let (safe, rest) = std::mem::take(&mut self.renames)
                .into_iter()
                .partition::<Vec<_>, _>(|name| name.path.parent() == Some(path));
            self.renames = rest;
            safe.iter().for_each(|name| name.apply(&mut self.safe_names));
            return;
        };
        let file = &mut self.files[*file];
        for change in std::mem::take(&mut file.unsafe_changes) {
            change.apply(&mut file.safe, |_| true);
        }
    }

    /// Writes into `dir` one possible content of the disk after a loss of power now.
    pub(crate) fn lose_power(&self, dir: &Path, rng: &mut StdRng) {
        let mut names = self.safe_names.clone();
        let kept = rng.random_range(0..=self.renames.len());
        self.renames.iter().take(kept).for_each(|name| name.apply(&mut names));
        for (path, file) in names {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, self.files[file].after(rng)).unwrap();
        }
    }
}

impl File {
    fn after(&self, rng: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.safe.clone();
        let changes = &self.unsafe_changes;
        let keeps = *[Keeps::Nothing, Keeps::All, Keeps::Some, Keeps::Any].choose(rng).unwrap();
        let last = rng.random_range(0..=changes.len());
        for (n, change) in changes.iter().enumerate() {
            match keeps {
                Keeps::Nothing => {}
                Keeps::All => change.apply(&mut bytes, |_| true),
                Keeps::Some if n < last => change.apply(&mut bytes, |_| true),
                Keeps::Some if n == last => change.apply(&mut bytes, |_| rng.random()),
                Keeps::Some => {}
                Keeps::Any if rng.random() => change.apply(&mut bytes, |_| rng.random_bool(0.8)),
                Keeps::Any => {}
            }
        }
        bytes
    }
}

impl Change {
    /// Applies its sectors that are kept.
    fn apply(&self, to: &mut Vec<u8>, mut keeps: impl FnMut(usize) -> bool) {
        match self {
            Self::SetLen(len) if keeps(0) => to.resize(*len, 0),
            Self::SetLen(_) => {}
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                for sector in at / SECTOR..end.div_ceil(SECTOR) {
                    if keeps(sector) {
                        let from = (sector * SECTOR).max(*at);
                        let until = ((sector + 1) * SECTOR).min(end);
                        to.resize(to.len().max(until), 0);
                        to[from..until].copy_from_slice(&bytes[from - at..until - at]);
                    }
                }
            }
        }
    }
}

impl Name {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self.file {
            Some(file) => drop(names.insert(self.path.clone(), file)),
            None => drop(names.remove(&self.path)),
        }
    }
}
