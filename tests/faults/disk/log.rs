//! Parses the log of the preloaded library.

use std::path::PathBuf;

/// One call of the process, in the order of all calls. Paths are relative to the watched directory,
/// whose own path is empty.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Write {
        path: PathBuf,
        at: u64,
        bytes: Vec<u8>,
    },
    SetLen {
        path: PathBuf,
        len: u64,
    },
    /// Of a file or a directory.
    Sync {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    /// The file exists, perhaps from now on.
    Create {
        path: PathBuf,
    },
    /// The file has a second name.
    Link {
        from: PathBuf,
        to: PathBuf,
    },
}

/// Parses a log. A record that was being written when the process ended is left out.
pub(crate) fn parse(mut log: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((event, rest)) = first(log) {
        events.push(event);
        log = rest;
    }
    events
}

fn first(log: &[u8]) -> Option<(Event, &[u8])> {
    let (kind, rest) = log.split_first()?;
    let (path_len, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (data_len, rest) = rest.split_first_chunk()?;
    let (path, rest) = rest.split_at_checked(u32::from_le_bytes(*path_len) as usize)?;
    let (data, rest) = rest.split_at_checked(u32::from_le_bytes(*data_len) as usize)?;
    let name = |bytes: &[u8]| PathBuf::from(str::from_utf8(bytes).unwrap());
    let (path, number) = (name(path), u64::from_le_bytes(*number));
    let event = match kind {
        1 => Event::Write { path, at: number, bytes: data.to_vec() },
        2 => Event::SetLen { path, len: number },
        3 => Event::Sync { path },
        4 => Event::Rename { from: path, to: name(data) },
        5 => Event::Remove { path },
        6 => Event::Link { from: path, to: name(data) },
        7 => Event::Create { path },
        kind => panic!("record of kind {kind}"),
    };
    Some((event, rest))
}
