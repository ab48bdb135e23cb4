//! File operations of handlers, for endpoints with files.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use gristmill_sdk::Error;
use serde::Deserialize;

use crate::{Output, limits};

/// The operation on `path`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Do {
    /// Replaces the file's content by `text`.
    Write,
    /// Appends `text`.
    Append,
    /// Writes `text` over the content from the offset `bytes` on.
    WriteAt,
    /// Returns its content.
    Read,
    /// Returns its last `bytes`.
    Tail,
    /// Returns its size.
    Size,
    /// Truncates or extends it to `bytes`.
    Truncate,
    /// Writes `bytes`, piece by piece, and returns the number of bytes that fitted.
    Fill,
    /// Returns the names in a directory, sorted.
    List,
    /// Creates a directory, with its parents.
    MakeDir,
    /// Removes a file.
    Remove,
    /// Removes a directory with its content.
    RemoveDir,
    /// Moves it to `to`.
    Rename,
    /// Reads the number in it and writes the next one, `bytes` times.
    Count,
    /// Creates a directory, as SQLite does to lock a database, and ends as `text` says: `spin`
    /// never, `trap` with a trap, anything else by returning.
    Lock,
    /// Removes an empty directory.
    Unlock,
    /// Sets the time of its last change to `bytes` seconds, with a descriptor for reading.
    Touch,
    /// Creates a file, and returns how many nanoseconds its last change is after its last access.
    NewTimes,
    /// Creates a file, and returns the error.
    CreateError,
}

/// One operation.
#[derive(Deserialize)]
pub struct Job {
    #[serde(rename = "do")]
    what: Do,
    path: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    bytes: u64,
}

pub fn file(job: &Job) -> Result<Output, Error> {
    let Job { what, path, to, text, bytes } = job;
    let done = |result: std::io::Result<()>| result.map(|()| Output::Done { done: 1 });
    let outcome = match what {
        Do::Write => done(fs::write(path, text)),
        Do::Append => done(append(path, text)),
        Do::WriteAt => done(write_at(path, text, *bytes)),
        Do::Read => fs::read_to_string(path).map(Output::Text),
        Do::Tail => tail(path, *bytes).map(Output::Text),
        Do::Size => fs::metadata(path).map(|metadata| Output::Done { done: metadata.len() }),
        Do::Truncate => {
            done(OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(*bytes)))
        }
        Do::Fill => fill(path, *bytes).map(|done| Output::Done { done }),
        Do::List => list(path).map(|names| Output::Names { names }),
        Do::MakeDir => done(fs::create_dir_all(path)),
        Do::Remove => done(fs::remove_file(path)),
        Do::RemoveDir => done(fs::remove_dir_all(path)),
        Do::Rename => done(fs::rename(path, to)),
        Do::Count => count(path, *bytes).map(|done| Output::Done { done }),
        Do::Lock => {
            let locked = fs::create_dir(path);
            match text.as_str() {
                "spin" if locked.is_ok() => limits::spin(),
                "trap" if locked.is_ok() => limits::trap(),
                _ => done(locked),
            }
        }
        Do::Unlock => done(fs::remove_dir(path)),
        Do::Touch => done(touch(path, *bytes)),
        Do::NewTimes => new_times(path).map(|done| Output::Done { done }),
        Do::CreateError => match fs::File::create(path) {
            Ok(_) => Ok(Output::Nothing),
            Err(error) => Ok(Output::Text(error.to_string())),
        },
    };
    outcome.map_err(|error| Error::failed(format_args!("{path}: {error}")))
}

fn append(path: &str, text: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}

fn write_at(path: &str, text: &str, offset: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(text.as_bytes())
}

fn tail(path: &str, bytes: u64) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(bytes)))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn touch(path: &str, seconds: u64) -> std::io::Result<()> {
    fs::File::open(path)?.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn new_times(path: &str) -> std::io::Result<u64> {
    let times = fs::File::create(path)?.metadata()?;
    let later =
        times.modified()?.duration_since(times.accessed()?).map_err(std::io::Error::other)?;
    Ok(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX))
}

fn fill(path: &str, bytes: u64) -> std::io::Result<u64> {
    let mut file = fs::File::create(path)?;
    let piece = vec![b'x'; 1 << 20];
    let mut written = 0;
    while written < bytes {
        let wanted = usize::try_from(bytes - written).unwrap_or(usize::MAX).min(piece.len());
        match file.write(piece.get(..wanted).unwrap_or(&piece)) {
            Ok(count) => written += count as u64,
            // The C library has the same error for every failed write.
            Err(_) => break,
        }
    }
    Ok(written)
}

fn list(path: &str) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(path)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn count(path: &str, times: u64) -> std::io::Result<u64> {
    let mut number = fs::read_to_string(path).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for _ in 0..times {
        number += 1;
        fs::write(path, number.to_string())?;
    }
    Ok(number)
}
