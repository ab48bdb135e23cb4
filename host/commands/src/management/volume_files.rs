//! `gristmill volumes ls`, `cp` and `rm`: the files of network volumes.
//!
//! **Promises.** A copy that fails or is interrupted leaves no part of its file, on either side;
//! files that were copied before it stay. **Bounds.** Files of any size are copied, one at a time,
//! without being held in memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use gristmill_client::wire::ErrorCode;
use gristmill_client::wire::id::VolumeId;
use gristmill_client::wire::management::{VolumeFile, VolumeFileType};
use gristmill_client::{Client, ClientError};
use indicatif::ProgressBar;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use crate::arguments::ConnectionArgs;
use crate::calls::repetition::{is_over_limit, pause, within_limits};
use crate::calls::{in_options, unless_signalled};
use crate::output::output_file::{OutputFile, is_open_file};
use crate::output::{self, progress};
use crate::resource::{self, CallArgs};

/// Bytes of a file that are read at one time.
const PIECE_BYTES: usize = 256 << 10;

/// Deepest directory that is copied, as on a volume.
const LEVELS_MAX: usize = gristmill_client::wire::bounds::VOLUME_LEVELS_MAX;

/// A path on a volume, `VOLUME:PATH`; without a path it is the volume's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OnVolume {
    volume: VolumeId,
    /// Without slashes at its ends.
    path: String,
    /// Whether it can only name a directory: `models/`, or the root.
    is_directory: bool,
}

impl FromStr for OnVolume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (volume, path) = text.split_once(':').unwrap_or((text, ""));
        let volume = volume.parse::<VolumeId>().map_err(|error| error.to_string())?;
        let is_directory = path.is_empty() || path.ends_with('/');
        Ok(Self { volume, path: path.trim_matches('/').to_owned(), is_directory })
    }
}

impl OnVolume {
    /// The path of a file with this name, if this is a directory; else its own path.
    fn target(&self, name: Option<&str>) -> anyhow::Result<String> {
        match (self.is_directory, name) {
            (false, _) => Ok(self.path.clone()),
            (true, Some(name)) => Ok(joined(&self.path, name)),
            (true, None) => bail!("name the file on the volume: VOLUME:PATH"),
        }
    }
}

/// One side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// `-`: standard input or output.
    Standard,
    /// `VOLUME:PATH`.
    Volume(OnVolume),
    /// A path on this machine.
    Local(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("the path is empty".to_owned()),
            "-" => Ok(Self::Standard),
            // As in `scp`: a colon before the first slash.
            _ if text.split('/').next().is_some_and(|first| first.contains(':')) => {
                text.parse().map(Self::Volume)
            }
            _ => Ok(Self::Local(text.into())),
        }
    }
}

/// List the files in a directory of a network volume.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The volume's id, and a directory on it; without one, the volume's root.
    #[arg(value_name = "VOLUME[:PATH]")]
    directory: OnVolume,
    #[command(flatten)]
    call: CallArgs,
}

/// Copy files to a network volume, or from one.
///
/// SOURCE or TARGET is on a volume, as VOLUME:PATH; the other one is a path on this machine (with a
/// colon in its first part: `./a:b`), or `-` for standard input or output. A TARGET that ends in
/// `/`, or that is VOLUME: alone, is a directory, in which the copy has the name of SOURCE. Missing
/// directories are created. A file with the name of the copy is replaced once the copy is complete;
/// on this machine it keeps its permissions, a link stays a link to the replaced file, and a device
/// or a pipe is written to.
#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// The file or directory to copy: VOLUME:PATH, a path on this machine, or `-` for standard
    /// input.
    #[arg(value_name = "SOURCE")]
    from: Place,
    /// The path of the copy, or the directory for it: VOLUME:PATH, a path on this machine, or `-`
    /// for standard output.
    #[arg(value_name = "TARGET")]
    to: Place,
    /// Copy a directory with its content. Links and devices are left out.
    #[arg(long, short)]
    recursive: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Delete a file or an empty directory of a network volume.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The volume's id, and the path on it.
    #[arg(value_name = "VOLUME:PATH")]
    path: OnVolume,
    /// Delete a directory with its content.
    #[arg(long, short)]
    recursive: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn ls(args: LsArgs) -> anyhow::Result<()> {
    let LsArgs { directory: OnVolume { volume, path, .. }, call } = args;
    let list = async |client: &Client| client.volume_files(volume.as_str(), &path).await;
    call.print(list, |files| table(&files)).await
}

fn table(files: &[VolumeFile]) -> Vec<String> {
    let rows = files.iter().map(|file| {
        let (size, mark) = match file.kind {
            VolumeFileType::File => (output::size(file.size), ""),
            VolumeFileType::Directory => ("-".to_owned(), "/"),
            VolumeFileType::Other => ("other".to_owned(), ""),
        };
        [size, file.modified_at.clone(), format!("{}{mark}", output::plain(&file.name))]
    });
    output::table(["SIZE", "MODIFIED", "NAME"], rows)
}

pub(crate) async fn rm(args: RmArgs) -> anyhow::Result<()> {
    let RmArgs { path: OnVolume { volume, path, .. }, recursive, connection } = args;
    ensure!(
        !path.is_empty(),
        "name a file or directory: {volume}:PATH; `volumes delete` deletes the volume"
    );
    let call = async |client: &Client| {
        let deleted = client.delete_volume_file(volume.as_str(), &path, recursive).await;
        deleted.map_err(|error| in_options(error, &[("recursive=true", "--recursive")]))
    };
    resource::delete(connection, format_args!("`{path}` of network volume `{volume}`"), call).await
}

pub(crate) async fn cp(args: CpArgs) -> anyhow::Result<()> {
    let CpArgs { from, to, recursive, connection } = args;
    match (from, to) {
        (Place::Volume(_), Place::Volume(_))
        | (Place::Local(_) | Place::Standard, Place::Local(_) | Place::Standard) => {
            bail!(
                "one of SOURCE and TARGET must be on a volume, VOLUME:PATH, and the other one not"
            );
        }
        (Place::Standard, _) | (_, Place::Standard) if recursive => {
            bail!("`-` is one file, and cannot be used with --recursive");
        }
        (Place::Standard, Place::Volume(to)) => {
            let copy = Copy::new(connection.client()?, to.volume.clone());
            Ok(copy.put(tokio::io::stdin(), None, &to.target(None)?).await?)
        }
        (Place::Local(from), Place::Volume(to)) => {
            let copy = Copy::new(connection.client()?, to.volume.clone());
            copy.put_path(&from, &to, recursive).await
        }
        (Place::Volume(from), Place::Standard) => {
            ensure!(!from.path.is_empty(), "name a file on the volume: {}:PATH", from.volume);
            Copy::new(connection.client()?, from.volume.clone()).show(&from.path).await
        }
        (Place::Volume(from), Place::Local(to)) => {
            ensure!(
                recursive || !from.path.is_empty(),
                "{}: is a directory; --recursive copies it with its content",
                from.volume
            );
            let name = from.path.rsplit('/').next().unwrap_or_default();
            let is_directory = to.as_os_str().to_string_lossy().ends_with('/') || to.is_dir();
            let to = if is_directory { to.join(name) } else { to };
            let copy = Copy::new(connection.client()?, from.volume.clone());
            if recursive {
                unless_signalled(copy.get_all(&from.path, &to)).await
            } else if is_special(&to) {
                // It has no temporary file, and its reader may pause for ever.
                copy.get(&from.path, &to).await
            } else {
                unless_signalled(copy.get(&from.path, &to)).await
            }
        }
    }
}

/// Copies between this machine and a volume.
struct Copy {
    client: Client,
    volume: VolumeId,
}

impl Copy {
    fn new(client: Client, volume: VolumeId) -> Self {
        Self { client, volume }
    }

    /// Copies a file, or a directory with its content, to the volume.
    async fn put_path(&self, from: &Path, to: &OnVolume, recursive: bool) -> anyhow::Result<()> {
        let shown = from.display();
        let metadata = std::fs::metadata(from).with_context(|| format!("cannot read {shown}"))?;
        let absolute = std::path::absolute(from)?;
        let name = match absolute.file_name().map(|name| name.to_str()) {
            Some(None) => bail!("{shown} has a name that is not UTF-8, which a volume cannot have"),
            name => name.flatten(),
        };
        let target = match (to.is_directory, metadata.is_dir()) {
            // The content of a directory without a name, such as `.`, becomes the volume's.
            (true, true) if name.is_none() => to.path.clone(),
            _ => to.target(name)?,
        };
        if !metadata.is_dir() {
            return self.put_file(from, &target).await;
        }
        ensure!(recursive, "{shown} is a directory; --recursive copies it with its content");
        let mut waiting = vec![(from.to_owned(), target)];
        while let Some((directory, target)) = waiting.pop() {
            let shown = directory.display();
            let entries = std::fs::read_dir(&directory);
            // A file brings its directories with it.
            let mut is_empty = true;
            for entry in entries.with_context(|| format!("cannot list {shown}"))? {
                let entry = entry.with_context(|| format!("cannot list {shown}"))?;
                let path = entry.path();
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    bail!(
                        "{} has a name that is not UTF-8, which a volume cannot have",
                        path.display()
                    );
                };
                let target = joined(&target, name);
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    waiting.push((path, target));
                    is_empty = false;
                } else if kind.is_file() {
                    self.put_file(&path, &target).await?;
                    is_empty = false;
                } else {
                    output::note(format_args!("left out {}: not a file", path.display()));
                }
            }
            if is_empty && !target.is_empty() {
                self.put_directory(&target).await?;
            }
        }
        Ok(())
    }

    async fn put_directory(&self, to: &str) -> anyhow::Result<()> {
        let create = async || self.client.create_volume_directory(self.volume.as_str(), to).await;
        within_limits(create).await.with_context(|| format!("cannot create `{to}`"))?;
        output::note(format_args!("created the directory `{to}`"));
        Ok(())
    }

    async fn put_file(&self, from: &Path, to: &str) -> anyhow::Result<()> {
        let cannot_read = || format!("cannot read {}", from.display());
        loop {
            let file = tokio::fs::File::open(from).await.with_context(cannot_read)?;
            let bytes = file.metadata().await.with_context(cannot_read)?;
            // A pipe or a device has no size of its own.
            let bytes = bytes.is_file().then_some(bytes.len());
            match self.put(file, bytes, to).await {
                Err(error) if bytes.is_some() && is_over_limit(&error) => pause(&error).await,
                put => return put.with_context(|| format!("cannot copy {}", from.display())),
            }
        }
    }

    async fn put(
        &self,
        content: impl AsyncRead + Send + 'static,
        bytes: Option<u64>,
        to: &str,
    ) -> Result<(), ClientError> {
        let bar = bar(bytes, to);
        let sent = bar.clone();
        let pieces = ReaderStream::with_capacity(content, PIECE_BYTES)
            .inspect_ok(move |piece| sent.inc(piece.len() as u64));
        let written =
            self.client.write_volume_file(self.volume.as_str(), to, bytes, pieces.boxed()).await;
        bar.finish_and_clear();
        written?;
        output::note(format_args!("wrote `{to}`"));
        Ok(())
    }

    /// Writes a file of the volume to standard output.
    async fn show(&self, from: &str) -> anyhow::Result<()> {
        let mut pieces = self.client.read_volume_file(self.volume.as_str(), from).await?;
        let mut out = io::stdout().lock();
        while let Some(piece) = pieces.next().await? {
            out.write_all(&piece)?;
        }
        Ok(out.flush()?)
    }

    /// Copies a file of the volume to this machine.
    async fn get(&self, from: &str, to: &Path) -> anyhow::Result<()> {
        let open = async || self.client.read_volume_file(self.volume.as_str(), from).await;
        let mut pieces = within_limits(open).await?;
        let cannot_write = || format!("cannot write {}", to.display());
        if let Some(directory) = to.parent() {
            std::fs::create_dir_all(directory).with_context(cannot_write)?;
        }
        let bar = bar(pieces.bytes(), from);
        let mut target = Target::open(to).with_context(cannot_write)?;
        while let Some(piece) = pieces.next().await? {
            target.file().write_all(&piece).with_context(cannot_write)?;
            bar.inc(piece.len() as u64);
        }
        bar.finish_and_clear();
        target.complete().with_context(cannot_write)?;
        output::note(format_args!("wrote {}", to.display()));
        Ok(())
    }

    /// Copies a file of the volume to this machine, unless a device or a pipe is there.
    async fn get_beside_others(&self, from: &str, to: &Path) -> anyhow::Result<()> {
        // Its reader may pause for ever, and the files behind it would wait.
        ensure!(
            !is_special(to),
            "{} is a device or a pipe: copy to it without --recursive",
            to.display()
        );
        self.get(from, to).await
    }

    /// Copies a directory of the volume, with its content, or a file to this machine.
    async fn get_all(&self, from: &str, to: &Path) -> anyhow::Result<()> {
        // The number of names behind `from`.
        let mut waiting = vec![(from.to_owned(), to.to_owned(), 0)];
        while let Some((directory, to, level)) = waiting.pop() {
            ensure!(level <= LEVELS_MAX, "`{directory}` is deeper than {LEVELS_MAX} levels");
            let list = async || self.client.volume_files(self.volume.as_str(), &directory).await;
            let files = match within_limits(list).await {
                // `from` is not a directory, and so it is copied as a file. If it is none either,
                // the refusal of this copy names the reason.
                Err(error) if level == 0 && error.code() == Some(ErrorCode::Conflict) => {
                    return self.get_beside_others(&directory, &to).await;
                }
                listed => listed?.read()?,
            };
            std::fs::create_dir_all(&to)
                .with_context(|| format!("cannot write {}", to.display()))?;
            for VolumeFile { name, kind, .. } in files {
                let is_name = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '\0']);
                ensure!(is_name, "the host named a file `{}`", output::plain(&name));
                let (from, to) = (joined(&directory, &name), to.join(&name));
                match kind {
                    VolumeFileType::File => self.get_beside_others(&from, &to).await?,
                    VolumeFileType::Directory => waiting.push((from, to, level + 1)),
                    VolumeFileType::Other => {
                        output::note(format_args!(
                            "left out `{}`: not a file",
                            output::plain(&from)
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The place on this machine that a file of a volume is copied to.
enum Target {
    /// A file, which appears once it is complete.
    File(OutputFile),
    /// A device or a pipe. Its name belongs to others, so that it is not replaced.
    Special(File),
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        if is_special(path) {
            return Ok(Self::Special(OpenOptions::new().append(true).open(path)?));
        }
        Ok(Self::File(OutputFile::begin(path, 0o666)?.like_older()?))
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::File(new) => new.file(),
            Self::Special(file) => file,
        }
    }

    fn complete(self) -> io::Result<()> {
        match self {
            Self::File(new) => new.complete(),
            Self::Special(_) => Ok(()),
        }
    }
}

/// Whether this is a device, a pipe, a socket or an open file of a process, or a link to one.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) || is_open_file(path)
}

fn bar(bytes: Option<u64>, what: &str) -> ProgressBar {
    match bytes {
        Some(bytes) => progress::bytes_bar(bytes, what),
        None => progress::spinner(what),
    }
}

fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_volume(path: &str, is_directory: bool) -> OnVolume {
        OnVolume { volume: "v1".parse().unwrap(), path: path.to_owned(), is_directory }
    }

    #[test]
    fn a_colon_before_the_first_slash_names_a_volume() {
        let place = |text: &str| text.parse::<Place>();
        assert_eq!(place("v1:a/b"), Ok(Place::Volume(on_volume("a/b", false))));
        assert_eq!(place("v1:/a/"), Ok(Place::Volume(on_volume("a", true))));
        assert_eq!(place("v1:"), Ok(Place::Volume(on_volume("", true))));
        assert_eq!(place("-"), Ok(Place::Standard));
        for local in ["a", "./v1:a", "/a/b", "a/b:c"] {
            assert_eq!(place(local), Ok(Place::Local(local.into())));
        }
        assert!(place("").is_err() && place("a b:c").is_err());
    }

    #[test]
    fn a_directory_keeps_the_name_of_its_source() {
        let target = |to: &OnVolume, name| to.target(name).ok();
        let path = |path: &str| Some(path.to_owned());
        assert_eq!(target(&on_volume("a/b", false), Some("c")), path("a/b"));
        assert_eq!(target(&on_volume("a/b", true), Some("c")), path("a/b/c"));
        assert_eq!(target(&on_volume("", true), Some("c")), path("c"));
        assert_eq!(target(&on_volume("", true), None), None);
    }

    #[test]
    fn files_stand_in_columns() {
        let files = r#"[
            {"name":"models","type":"directory","size":0,"modifiedAt":"2026-01-01T00:00:00.000Z"},
            {"name":"a.bin","type":"file","size":2048,"modifiedAt":"2026-01-01T00:00:00.000Z"}]"#;
        let expected = [
            "SIZE     MODIFIED                  NAME",
            "-        2026-01-01T00:00:00.000Z  models/",
            "2.0 KiB  2026-01-01T00:00:00.000Z  a.bin",
        ];
        assert_eq!(table(&serde_json::from_str::<Vec<_>>(files).unwrap()), expected);
    }
}
